//! The micro-kernels of depthwise convolutions: a block of columns and channels of the result in registers, over all taps.

use crate::gemm::Gemm;
use crate::simd::isa::by_isa;
#[cfg(target_arch = "x86_64")]
use crate::simd::vector::x86::{Avx2, Avx512};
use crate::simd::vector::{Portable, Vector};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

/// Where the channels of a tap begin, in elements: in the image for the first column, and in the weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tap {
    pub(super) image: usize,
    pub(super) weight: usize,
}

/// `y[t·y_step + c] = Σ x[tap.image + t·x_step + c] · w[tap.weight + c]` over the taps, for `t` below `columns` and `c` below `channels`.
pub(super) struct Sums<'a> {
    pub(super) taps: &'a [Tap],
    pub(super) columns: usize,
    pub(super) channels: usize,
    pub(super) x_step: usize,
    pub(super) y_step: usize,
}

/// `dw[tap.weight + c] += Σ x[tap.image + t·x_step + c] · g[t·g_step + c]` over `t` below `columns`, for each tap and `c` below `channels`.
pub(super) struct Products<'a> {
    pub(super) taps: &'a [Tap],
    pub(super) columns: usize,
    pub(super) channels: usize,
    pub(super) x_step: usize,
    pub(super) g_step: usize,
}

/// f32 and f64, the types with these kernels.
pub(crate) trait Depthwise: Gemm {
    /// The kernels of every instruction set of this machine, in the order of [`Gemm::all_kernels`].
    fn all_depthwise_kernels() -> &'static [&'static DepthwiseKernels<Self>];

    /// The kernels of the widest instruction set.
    fn depthwise_kernels() -> &'static DepthwiseKernels<Self> {
        Self::all_depthwise_kernels()[0]
    }
}

/// The kernels of one instruction set.
pub(crate) struct DepthwiseKernels<A> {
    sums: unsafe fn(&Sums<'_>, *const A, *const A, *mut A),
    products: unsafe fn(&Products<'_>, *const A, *const A, *mut A),
}

/// One more than the last element that is read or written from a start, over `columns` columns.
fn reach(start: usize, columns: usize, step: usize, channels: usize) -> usize {
    start + (columns - 1) * step + channels
}

impl<A> DepthwiseKernels<A> {
    /// # Panics
    /// If an operand is too short: a bug in the op.
    pub(super) fn sums(&self, s: &Sums<'_>, x: &[A], w: &[A], y: &mut [A]) {
        if s.columns == 0 || s.channels == 0 {
            return;
        }
        for tap in s.taps {
            assert!(reach(tap.image, s.columns, s.x_step, s.channels) <= x.len() && tap.weight + s.channels <= w.len());
        }
        assert!(reach(0, s.columns, s.y_step, s.channels) <= y.len());
        // SAFETY: what is read and written was compared above; the instructions are this machine's.
        unsafe { (self.sums)(s, x.as_ptr(), w.as_ptr(), y.as_mut_ptr()) }
    }

    /// # Panics
    /// If an operand is too short: a bug in the op.
    pub(super) fn products(&self, p: &Products<'_>, x: &[A], g: &[A], dw: &mut [A]) {
        if p.columns == 0 || p.channels == 0 {
            return;
        }
        for tap in p.taps {
            assert!(
                reach(tap.image, p.columns, p.x_step, p.channels) <= x.len() && tap.weight + p.channels <= dw.len()
            );
        }
        assert!(reach(0, p.columns, p.g_step, p.channels) <= g.len());
        // SAFETY: as above.
        unsafe { (self.products)(p, x.as_ptr(), g.as_ptr(), dw.as_mut_ptr()) }
    }
}

/// The first `n` elements at `p`; all of them if `WHOLE`.
///
/// # Safety
/// These elements are readable.
#[inline(always)]
unsafe fn load<V: Vector, const WHOLE: bool>(p: *const V::Element, n: usize) -> V {
    // SAFETY: the caller's contract.
    unsafe { if WHOLE { V::load(p) } else { V::load_first(p, n) } }
}

/// # Safety
/// The first `n` elements at `p`, or all of a vector if `WHOLE`, are writable.
#[inline(always)]
unsafe fn store<V: Vector, const WHOLE: bool>(v: V, p: *mut V::Element, n: usize) {
    // SAFETY: the caller's contract.
    unsafe { if WHOLE { v.store(p) } else { v.store_first(p, n) } }
}

/// [`Sums`] of all columns, for the channels of `N` vectors; of one vector's first `n` channels if not `WHOLE`.
///
/// # Safety
/// The slices that `x`, `w` and `y` point into hold every element that is read or written; this machine has the instructions of `V`.
#[inline(always)]
unsafe fn sums_of<V: Vector, const N: usize, const WHOLE: bool>(
    s: &Sums<'_>,
    x: *const V::Element,
    w: *const V::Element,
    y: *mut V::Element,
    n: usize,
) {
    let mut t = 0;
    macro_rules! blocks {
        ($($columns:literal),+) => {
            $(while s.columns - t >= $columns {
                let mut sums = [[V::zero(); N]; $columns];
                for tap in s.taps {
                    for v in 0..N {
                        // SAFETY: the caller's contract.
                        unsafe {
                            let w: V = load::<V, WHOLE>(w.add(tap.weight + v * V::LANES), n);
                            let x = x.add(tap.image + t * s.x_step + v * V::LANES);
                            for (i, sum) in sums.iter_mut().enumerate() {
                                sum[v] = sum[v].add_product(load::<V, WHOLE>(x.add(i * s.x_step), n), w);
                            }
                        }
                    }
                }
                for (i, sum) in sums.iter().enumerate() {
                    for (v, &sum) in sum.iter().enumerate() {
                        // SAFETY: the caller's contract.
                        unsafe { store::<V, WHOLE>(sum, y.add((t + i) * s.y_step + v * V::LANES), n) };
                    }
                }
                t += $columns;
            })+
        };
    }
    blocks!(4, 2, 1);
}

/// Computes [`Sums`] of all channels.
///
/// # Safety
/// As [`sums_of`].
#[inline(always)]
unsafe fn sums<V: Vector>(s: &Sums<'_>, x: *const V::Element, w: *const V::Element, y: *mut V::Element) {
    let mut c = 0;
    while c < s.channels {
        let left = s.channels - c;
        // SAFETY: the channels from `c` on; the caller's contract.
        unsafe {
            let (x, w, y) = (x.add(c), w.add(c), y.add(c));
            if left >= 2 * V::LANES {
                sums_of::<V, 2, true>(s, x, w, y, 0);
                c += 2 * V::LANES;
            } else if left >= V::LANES {
                sums_of::<V, 1, true>(s, x, w, y, 0);
                c += V::LANES;
            } else {
                sums_of::<V, 1, false>(s, x, w, y, left);
                c = s.channels;
            }
        }
    }
}

/// [`Products`] of `K` taps at once while there are as many, for the channels of `N` vectors; of one vector's first `n` channels if not
/// `WHOLE`. Returns the taps that are left.
///
/// # Safety
/// As [`sums_of`].
#[inline(always)]
unsafe fn products_of<'t, V: Vector, const K: usize, const N: usize, const WHOLE: bool>(
    p: &Products<'_>,
    taps: &'t [Tap],
    x: *const V::Element,
    g: *const V::Element,
    dw: *mut V::Element,
    n: usize,
) -> &'t [Tap] {
    let (groups, rest) = taps.as_chunks::<K>();
    for taps in groups {
        let mut sums = [[V::zero(); N]; K];
        for t in 0..p.columns {
            for v in 0..N {
                // SAFETY: the caller's contract.
                unsafe {
                    let g: V = load::<V, WHOLE>(g.add(t * p.g_step + v * V::LANES), n);
                    for (sum, tap) in sums.iter_mut().zip(taps) {
                        let x = x.add(tap.image + t * p.x_step + v * V::LANES);
                        sum[v] = sum[v].add_product(load::<V, WHOLE>(x, n), g);
                    }
                }
            }
        }
        for (sum, tap) in sums.iter().zip(taps) {
            for (v, &sum) in sum.iter().enumerate() {
                // SAFETY: the caller's contract.
                unsafe {
                    let to = dw.add(tap.weight + v * V::LANES);
                    store::<V, WHOLE>(load::<V, WHOLE>(to, n).add(sum), to, n);
                }
            }
        }
    }
    rest
}

/// Computes [`Products`] of all channels: of `K` taps at once, of three while there are as many, then of one.
///
/// # Safety
/// As [`sums_of`].
#[inline(always)]
unsafe fn products<V: Vector, const K: usize>(
    p: &Products<'_>,
    x: *const V::Element,
    g: *const V::Element,
    dw: *mut V::Element,
) {
    let mut c = 0;
    while c < p.channels {
        let left = p.channels - c;
        macro_rules! all {
            ($vectors:literal, $whole:literal) => {{
                // SAFETY: the channels from `c` on; the caller's contract.
                unsafe {
                    let (x, g, dw) = (x.add(c), g.add(c), dw.add(c));
                    let rest = products_of::<V, K, $vectors, $whole>(p, p.taps, x, g, dw, left);
                    let rest = products_of::<V, 3, $vectors, $whole>(p, rest, x, g, dw, left);
                    products_of::<V, 1, $vectors, $whole>(p, rest, x, g, dw, left);
                }
            }};
        }
        if left >= 2 * V::LANES {
            all!(2, true);
            c += 2 * V::LANES;
        } else if left >= V::LANES {
            all!(1, true);
            c += V::LANES;
        } else {
            all!(1, false);
            c = p.channels;
        }
    }
}

/// The kernels over the vectors `$v`, with weight gradients of `$taps` taps at once.
macro_rules! kernels {
    ($set:ident, $t:ident, $v:ty, [$($feature:literal)?], $taps:literal) => {
        static $set: DepthwiseKernels<$t> = {
            $(#[target_feature(enable = $feature)])?
            unsafe fn sums_here(s: &Sums<'_>, x: *const $t, w: *const $t, y: *mut $t) {
                // SAFETY: the caller's contract; the instructions are enabled here.
                unsafe { sums::<$v>(s, x, w, y) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn products_here(p: &Products<'_>, x: *const $t, g: *const $t, dw: *mut $t) {
                // SAFETY: as above.
                unsafe { products::<$v, $taps>(p, x, g, dw) }
            }
            DepthwiseKernels { sums: sums_here, products: products_here }
        };
    };
}

/// The sets of one element type.
macro_rules! sets {
    ($t:ident, $portable:ident, $avx2:ident, $avx512:ident, $ymm:ident, $zmm:ident) => {
        kernels!($portable, $t, Portable<$t>, [], 3);
        #[cfg(target_arch = "x86_64")]
        kernels!($avx2, $t, Avx2<$ymm>, ["avx2,fma"], 3);
        #[cfg(target_arch = "x86_64")]
        kernels!($avx512, $t, Avx512<$zmm>, ["avx512f"], 9);

        impl Depthwise for $t {
            by_isa!(fn all_depthwise_kernels() -> DepthwiseKernels<$t>, $portable, $avx2, $avx512);
        }
    };
}
sets!(f32, PORTABLE_F32, AVX2_F32, AVX512_F32, __m256, __m512);
sets!(f64, PORTABLE_F64, AVX2_F64, AVX512_F64, __m256d, __m512d);

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::philox::{Key, uniform};
    use proptest::prelude::*;

    fn values(len: usize, stream: u32) -> Vec<f64> {
        let key = Key::new(11, stream, 0);
        (0..len as u64).map(|i| f64::from(uniform(key.word(i)))).collect()
    }

    proptest! {
        #[test]
        fn kernels_of_every_instruction_set_compute_their_definition(
            places in prop::collection::vec((0usize..40, 0usize..30), 0..12),
            (columns, channels) in (1usize..11, 1usize..45),
            (x_step, more) in (0usize..50, 0usize..9),
        ) {
            let step = channels + more;
            // Taps of a weight do not overlap.
            let taps: Vec<Tap> = places.iter().enumerate().map(|(i, p)| Tap { image: p.0, weight: i * step + p.1 % (more + 1) }).collect();
            let x = values(40 + columns * x_step + channels, 1);
            let w = values((taps.len() + 1) * step, 2);
            let g = values(columns * step, 3);
            let mut y = vec![-1.0; columns * step];
            let mut dw = w.clone();
            for t in 0..columns {
                for c in 0..channels {
                    let x = |tap: &Tap| x[tap.image + t * x_step + c];
                    y[t * step + c] = taps.iter().map(|tap| x(tap) * w[tap.weight + c]).sum();
                    taps.iter().for_each(|tap| dw[tap.weight + c] += x(tap) * g[t * step + c]);
                }
            }
            let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
            for kernels in f64::all_depthwise_kernels() {
                let (mut got, mut got_dw) = (vec![-1.0; y.len()], w.clone());
                kernels.sums(&Sums { taps: &taps, columns, channels, x_step, y_step: step }, &x, &w, &mut got);
                prop_assert!(near(&got, &y), "{got:?} {y:?}");
                kernels.products(&Products { taps: &taps, columns, channels, x_step, g_step: step }, &x, &g, &mut got_dw);
                prop_assert!(near(&got_dw, &dw), "{got_dw:?} {dw:?}");
            }
        }
    }
}
