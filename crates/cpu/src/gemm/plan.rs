//! The algorithms of a matrix product: which shapes each supports, its cost, and the choice between them.
//!
//! The choice depends on the shape, on the width of this machine's vectors and on the size of its caches.

use crate::gemm::blocking::Blocking;
use crate::gemm::halves::HalfKernels;
use crate::gemm::kernels::Gemm;
use crate::gemm::shape::GemmShape;
use crate::gemm::{BLOCK_WORK, microkernel};
use crate::parallel::GRAIN;
use kiln_core::DType;

/// An algorithm for a product. Those of f32 and f64 give the same bits but for [`SmallM`](Algorithm::SmallM) and
/// [`SplitK`](Algorithm::SplitK); those of halves differ in the order of their sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// All tasks share packed panels of B.
    Packed,
    /// Every task packs the few columns of B that it needs, which stay in its core's cache.
    PackedByTask,
    /// The rows of B are read in place.
    Unpacked,
    /// Vectors run along k, over rows of A and of a transposed B, both read in place.
    SmallM,
    /// `Cᵀ = Bᵀ·Aᵀ` is computed: A is packed, and a transposed B is read in place.
    InducedTranspose,
    /// The product is the sum, in order, of products over this many parts of k.
    SplitK(usize),
    /// Of halves: both operands are packed as words for these kernels.
    Words(HalfKernels),
}

/// The largest number of rows for [`Algorithm::SmallM`].
const SMALL_M: usize = 4 * microkernel::DOTS;

/// The approximate number of steps of k in a part of [`Algorithm::SplitK`], and the largest number of parts.
const SPLIT_STEPS: usize = 1024;
const MOST_PARTS: usize = 16;

/// The largest number of elements of C for [`Algorithm::SplitK`]; a larger C makes enough tasks by itself.
const SPLIT_C: usize = 1 << 14;

/// The largest number of elements of B that stay in an L2 cache together with their copy.
const IN_CACHE: usize = 1 << 19;

impl Algorithm {
    /// Every algorithm that can compute a product of this shape and dtype.
    pub(crate) fn all(s: &GemmShape, dtype: DType) -> impl Iterator<Item = Algorithm> {
        let wide = [
            Algorithm::Packed,
            Algorithm::PackedByTask,
            Algorithm::Unpacked,
            Algorithm::SmallM,
            Algorithm::InducedTranspose,
            Algorithm::SplitK((s.k / SPLIT_STEPS).min(MOST_PARTS)),
        ];
        let s = *s;
        let every = wide.into_iter().chain(HalfKernels::ALL.map(Algorithm::Words));
        every.filter(move |a| a.supports(&s, dtype))
    }

    /// The name in profiles.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Algorithm::Packed => "packed",
            Algorithm::PackedByTask => "packed by task",
            Algorithm::Unpacked => "unpacked",
            Algorithm::SmallM => "small m",
            Algorithm::InducedTranspose => "induced transpose",
            Algorithm::SplitK(_) => "split k",
            Algorithm::Words(HalfKernels::Tiles) => "bf16 tiles",
            Algorithm::Words(HalfKernels::Pairs) => "bf16 pairs",
            Algorithm::Words(HalfKernels::Widened) => "widened in packing",
        }
    }

    /// True if the algorithm can compute a product of this shape and dtype; C must not be empty.
    pub(crate) fn supports(self, s: &GemmShape, dtype: DType) -> bool {
        let half = matches!(dtype, DType::BF16 | DType::F16);
        match self {
            Algorithm::Words(kernels) => kernels.supports(dtype),
            Algorithm::SmallM => !s.trans_a && s.trans_b && s.m <= SMALL_M,
            _ if half => false,
            Algorithm::Packed | Algorithm::PackedByTask | Algorithm::InducedTranspose => true,
            Algorithm::Unpacked => !s.trans_b && s.k > 0,
            Algorithm::SplitK(parts) => parts > 1 && s.work() > 4 * BLOCK_WORK && s.m.saturating_mul(s.n) <= SPLIT_C,
        }
    }

    /// The [cost](Algorithm::cost) for elements of `dtype`. Rows of halves are widened for a few rows of A at a time, but half as much
    /// memory is read; measured on a Zen 3.
    fn cost_of(self, s: &GemmShape, dtype: DType, blocking: &Blocking, lanes: usize) -> usize {
        let half = matches!(dtype, DType::BF16 | DType::F16);
        let (b, all) = (s.k.saturating_mul(s.n), s.work());
        match self {
            Algorithm::SmallM if half => (all / 4).saturating_mul(6).saturating_add(b.saturating_mul(6)),
            _ => self.cost(s, blocking, lanes),
        }
    }

    /// The estimated time on one core, in multiply-adds in full vectors of `lanes` elements. The costs per element of an
    /// operand were measured on Emerald Rapids and Zen 4.
    pub(crate) fn cost(self, s: &GemmShape, blocking: &Blocking, lanes: usize) -> usize {
        let &GemmShape { m, n, k, .. } = s;
        let product = |a: usize, b: usize| a.saturating_mul(b);
        // Tiles are two vectors wide; a tile of one takes as long, for loading its operands.
        let tiles = |rows: usize, columns: usize| product(product(rows, k), columns.next_multiple_of(2 * lanes));
        let (a, b, c) = (product(m, k), product(k, n), product(m, n));
        match self {
            Algorithm::Packed => {
                // One thread packs a small B while the others wait; packing a larger one starts threads; the largest pass
                // through the L3 cache.
                let (each, start) = match b {
                    _ if b <= 2 * GRAIN => (40, 0),
                    _ if b <= IN_CACHE => (20, BLOCK_WORK),
                    _ => (40, BLOCK_WORK),
                };
                tiles(m, n).saturating_add(product(b, each)).saturating_add(start)
            }
            // Every task reads A again: from the L3 cache if A is larger than half an L2 cache, which on some machines costs nothing
            // where A is copied ahead, by its columns.
            Algorithm::PackedByTask => {
                let again = match s.trans_a {
                    _ if a <= 2 * blocking.own => 0,
                    true => blocking.again,
                    false => 2,
                };
                let reads = again * (n.div_ceil(blocking.own_columns(s, 2 * lanes)) - 1);
                let copies = product(b, 22 * m.div_ceil(512)).saturating_add(product(a, reads));
                (tiles(m, n) / 25).saturating_mul(26).saturating_add(copies)
            }
            // Every block of rows reads B again.
            Algorithm::Unpacked => {
                let each = if b <= IN_CACHE { 8 } else { 22 };
                tiles(m, n).saturating_add(product(b, each * m.div_ceil(48)))
            }
            Algorithm::SmallM => (product(c, k) / 4).saturating_mul(5).saturating_add(product(b, 12)),
            Algorithm::InducedTranspose => {
                let copies = product(a.saturating_add(c), 30);
                (tiles(n, m) / 12).saturating_mul(13).saturating_add(copies)
            }
            // The other algorithms would leave threads without a task.
            Algorithm::SplitK(_) => tiles(m, n) / 4,
            Algorithm::Words(kernels) => {
                let whole = |n: usize, of: usize| n.next_multiple_of(of);
                let lanes = kernels.lanes();
                let (sums, start) = match kernels {
                    HalfKernels::Tiles => (
                        product(product(whole(m, lanes), whole(n, lanes)), whole(k, 2 * lanes)),
                        4,
                    ),
                    HalfKernels::Pairs | HalfKernels::Widened => ((tiles(m, n) / 12).saturating_mul(13), 1),
                };
                // A transposed A and a B that is not are packed by turning blocks in registers.
                let a = product(a, if s.trans_a { 10 } else { 4 } * n.div_ceil(512));
                let copies = product(b, if s.trans_b { 25 } else { 28 }).saturating_add(product(c, 8));
                let threads = if b > 2 * GRAIN { BLOCK_WORK / start } else { 0 };
                kernels
                    .time(sums)
                    .saturating_add(a)
                    .saturating_add(copies)
                    .saturating_add(threads)
            }
        }
    }
}

/// The [names](Algorithm::name) of all algorithms.
pub(crate) const NAMES: &[&str] = &[
    "packed",
    "packed by task",
    "unpacked",
    "small m",
    "induced transpose",
    "split k",
    "bf16 tiles",
    "bf16 pairs",
    "widened in packing",
];

/// The cheapest algorithm for elements of `dtype`, whose accumulation type is `A`, or the one named `prefer` if it supports the
/// shape.
pub(crate) fn choose<A: Gemm>(s: &GemmShape, dtype: DType, prefer: Option<&str>) -> Algorithm {
    let (blocking, lanes) = (Blocking::this::<A>(), A::kernels().lanes);
    Algorithm::all(s, dtype)
        .min_by_key(|a| {
            let other = prefer.is_some_and(|name| name != a.name());
            (other, a.cost_of(s, dtype, blocking, lanes))
        })
        .expect("packed panels compute every product of f32 and f64, words every one of halves")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::machine::{Cache, Machine};

    #[test]
    fn an_algorithm_that_is_preferred_is_taken_where_it_can_be() {
        let s = GemmShape {
            m: 4,
            n: 8,
            k: 5000,
            trans_a: false,
            trans_b: true,
        };
        let all: Vec<&str> = Algorithm::all(&s, DType::F32).map(Algorithm::name).collect();
        for &name in NAMES {
            let chosen = choose::<f32>(&s, DType::F32, Some(name)).name();
            assert_eq!(chosen == name, all.contains(&name), "{name}");
        }
        assert!(all.iter().all(|name| NAMES.contains(name)) && all.len() > 3, "{all:?}");
    }

    #[test]
    fn few_rows_of_halves_are_multiplied_where_they_lie() {
        let choice = |m| {
            let s = GemmShape {
                m,
                n: 1024,
                k: 1024,
                trans_a: false,
                trans_b: true,
            };
            choose::<f32>(&s, DType::BF16, None)
        };
        assert_eq!([choice(1), choice(4)], [Algorithm::SmallM; 2]);
        // The matrix unit computes sixteen rows in the time of one.
        let tiles = HalfKernels::Tiles.supports(DType::BF16);
        assert_eq!(choice(16) == Algorithm::SmallM, !tiles);
        assert!(matches!(choice(64), Algorithm::Words(_)));
    }

    #[test]
    fn choices_follow_the_measurements() {
        use Algorithm::*;
        // A Zen 4, an Emerald Rapids, a Cascade Lake and a Zen 3.
        let processors = [
            ("AMD EPYC", "avx512", 1 << 20, PackedByTask),
            ("Intel(R) Xeon(R)", "avx512", 2 << 20, PackedByTask),
            ("Intel(R) Xeon(R)", "avx512", 1 << 20, Packed),
            ("AMD EPYC", "avx2", 1 << 19, Packed),
        ];
        for (name, instruction_set, l2, of_transposed_a) in processors {
            let cache = |level, size, ways| Cache {
                level,
                size,
                ways,
                threads: 1,
            };
            let machine = Machine {
                name: name.to_owned(),
                instruction_set,
                bf16: "widened",
                caches: vec![cache(1, 32 << 10, 8), cache(2, l2, 16)],
            };
            let lanes = if instruction_set == "avx512" { 16 } else { 8 };
            let blocking = Blocking::for_machine(&machine, DType::F32);
            let choice = |m, n, k, trans_a, trans_b| {
                let s = GemmShape {
                    m,
                    n,
                    k,
                    trans_a,
                    trans_b,
                };
                Algorithm::all(&s, DType::F32)
                    .min_by_key(|a| a.cost(&s, &blocking, lanes))
                    .unwrap()
            };
            for trans_b in [false, true] {
                assert_eq!(choice(1024, 1024, 1024, false, trans_b), Packed);
                assert_eq!(choice(512, 512, 512, false, trans_b), Packed);
                assert_eq!(choice(384, 384, 2048, true, trans_b), of_transposed_a);
                assert_eq!(choice(384, 1536, 2048, true, trans_b), of_transposed_a, "{name} {l2}");
                assert_eq!(choice(384, 384, 2048, false, trans_b), Packed);
                for m in [32, 64, 128] {
                    assert_eq!(choice(m, 1024, 1024, false, trans_b), InducedTranspose);
                }
            }
            assert_eq!(choice(256, 256, 256, false, false), PackedByTask);
            for m in (1..=SMALL_M).filter(|_| lanes == 16) {
                for (n, k) in [(1, 1), (10, 84), (1000, 10), (1024, 1024), (512, 16)] {
                    assert_eq!(choice(m, n, k, false, true), SmallM);
                }
            }
            assert_eq!(choice(31, 33, 9001, true, false), SplitK(8));
        }
    }
}
