//! The kernels for a product, and plans: one of them, and the number of parts of the summed dimension.

use crate::tensor_tile::{Multiprocessors, TensorTile};
use kiln_core::DType;
use kiln_core::ops::MatmulParams;

/// A kernel for matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A thread per element of the result.
    Naive,
    /// Tiles of 32×32 in shared memory.
    Tiled,
    /// Tiles of 64×64, 8×4 a thread in registers, shared memory double-buffered.
    Registers64,
    /// Tiles of 128×128, 8×8 a thread in registers, shared memory double-buffered.
    Registers128,
    /// Tiles of 64×64 on tensor cores, fed by asynchronous copies as wide as the rows of the operands allow.
    Tensor64x64Any,
    /// Tiles of 64×64 on tensor cores, fed by asynchronous copies of 16 bytes, as those below.
    Tensor64x64,
    /// Tiles of 128×64 on tensor cores, for narrow results.
    Tensor128x64,
    /// Tiles of 128×128 on tensor cores.
    Tensor128x128,
    /// Tiles of 128×256 on tensor cores: each element that is read takes part in most products.
    Tensor128x256,
    /// Tiles of 128×128 on tensor cores, by products of warp groups, as those below: bf16 and f16, on devices of compute capability 9.0
    /// alone.
    Warpgroup128x128,
    /// Tiles of 128×256, by products of warp groups.
    Warpgroup128x256,
}

impl Algorithm {
    /// All variants, from the plainest to the fastest.
    pub const ALL: [Algorithm; 11] = [
        Algorithm::Naive,
        Algorithm::Tiled,
        Algorithm::Registers64,
        Algorithm::Registers128,
        Algorithm::Tensor64x64Any,
        Algorithm::Tensor64x64,
        Algorithm::Tensor128x64,
        Algorithm::Tensor128x128,
        Algorithm::Tensor128x256,
        Algorithm::Warpgroup128x128,
        Algorithm::Warpgroup128x256,
    ];

    /// A name for benches: `naive`, `tiled`, `registers64`, …
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Naive => "naive",
            Algorithm::Tiled => "tiled",
            Algorithm::Registers64 => "registers64",
            Algorithm::Registers128 => "registers128",
            Algorithm::Tensor64x64Any => "tensor64x64-any",
            Algorithm::Tensor64x64 => "tensor64x64",
            Algorithm::Tensor128x64 => "tensor128x64",
            Algorithm::Tensor128x128 => "tensor128x128",
            Algorithm::Tensor128x256 => "tensor128x256",
            Algorithm::Warpgroup128x128 => "warpgroup128x128",
            Algorithm::Warpgroup128x256 => "warpgroup128x256",
        }
    }

    /// Rows and columns of the result that a block computes.
    pub fn tile(self) -> [u64; 2] {
        match self {
            Algorithm::Naive => [1; 2],
            Algorithm::Tiled => [32; 2],
            Algorithm::Registers64 => [64; 2],
            Algorithm::Registers128 => [128; 2],
            tensor => tensor.tensor_tile().map_or([1; 2], |t| [t.rows, t.columns]),
        }
    }

    /// True if this variant multiplies on tensor cores, which round operands of f32 to TF32.
    pub fn is_tensor(self) -> bool {
        self.tensor_tile().is_some()
    }

    /// The tile of a variant on tensor cores.
    pub(super) fn tensor_tile(self) -> Option<TensorTile> {
        match self {
            Algorithm::Naive | Algorithm::Tiled | Algorithm::Registers64 | Algorithm::Registers128 => None,
            Algorithm::Tensor64x64Any | Algorithm::Tensor64x64 => Some(TensorTile::T64X64),
            Algorithm::Tensor128x64 => Some(TensorTile::T128X64),
            Algorithm::Tensor128x128 => Some(TensorTile::T128X128),
            Algorithm::Tensor128x256 => Some(TensorTile::T128X256),
            Algorithm::Warpgroup128x128 => Some(TensorTile::WARPGROUP_128X128),
            Algorithm::Warpgroup128x256 => Some(TensorTile::WARPGROUP_128X256),
        }
    }

    /// True if this variant can compute the product `p` in `dtype` on a device with such multiprocessors: all but the tensor-core variants
    /// for rows of multiples of 16 bytes take every product.
    pub fn fits(self, p: &MatmulParams, dtype: DType, on: Multiprocessors) -> bool {
        let Some(tile) = self.tensor_tile() else {
            return true;
        };
        let known = !tile.warpgroups() || (on.warpgroups && dtype != DType::F32);
        known && (self == Algorithm::Tensor64x64Any || rows_aligned(p, dtype))
    }

    /// True if the kernel keeps the input of an activation.
    pub(super) fn keeps(self, p: &MatmulParams) -> bool {
        !self.is_tensor() || (p.trans_a == 0 && p.trans_b == 1 && self != Algorithm::Tensor64x64Any)
    }

    /// True if the kernel multiplies by slopes.
    pub(super) fn has_slopes(self, p: &MatmulParams) -> bool {
        !self.is_tensor() || (p.trans_a == 0 && p.trans_b == 0 && self != Algorithm::Tensor64x64)
    }

    /// True if the kernel makes the input of a linear layer again whose data gradient the product is.
    pub(super) fn remakes(self, p: &MatmulParams) -> bool {
        self.has_slopes(p) && !matches!(self, Algorithm::Naive | Algorithm::Tiled)
    }

    /// Bytes of shared memory that a launch asks for, where it is more than a kernel may declare.
    pub(super) fn dynamic_shared(self) -> u32 {
        match self {
            // Four stages of 64 bytes for each row and column of the tile (`ProductTile128x256::BYTES`), of which tf32 uses three.
            Algorithm::Tensor128x256 => 4 * 64 * (128 + 256),
            // Stages of 128 bytes for each row and column, and a block of ones (`WarpgroupTile::BYTES`).
            Algorithm::Warpgroup128x128 => 3 * 128 * (128 + 128) + 1024,
            Algorithm::Warpgroup128x256 => 4 * 128 * (128 + 256) + 1024,
            _ => 0,
        }
    }

    /// True if this variant can cut the summed dimension into parts.
    pub fn splits(self) -> bool {
        !matches!(self, Algorithm::Naive | Algorithm::Tiled)
    }

    /// The number of tiles of all results of a product.
    pub(super) fn tiles(self, p: &MatmulParams) -> u64 {
        let [rows, columns] = self.tile();
        p.batches() as u64 * p.m.div_ceil(rows) * p.n.div_ceil(columns)
    }
}

/// How a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    algorithm: Algorithm,
    splits: u32,
}

/// Parts of k are multiples of this, which is a multiple of every kernel's step and of the widest copies.
const STEP: u64 = 32;
/// The shortest part of k: with shorter ones, writing and reading partial sums costs more than the parts save.
pub(super) const SHORTEST_PART: u64 = 256;
impl Plan {
    /// A plan to compute by `algorithm`, in one part.
    pub fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, splits: 1 }
    }

    /// This plan with the summed dimension in up to `splits` parts, of at least 32 each. Variants that do not split ignore it.
    #[must_use]
    pub fn split(self, splits: u32) -> Self {
        let splits = if self.algorithm.splits() { splits.max(1) } else { 1 };
        Self { splits, ..self }
    }

    /// The variant.
    pub fn algorithm(self) -> Algorithm {
        self.algorithm
    }

    /// The most parts of the summed dimension.
    pub fn splits(self) -> u32 {
        self.splits
    }

    /// The length of a part of `k`, and the number of parts.
    pub(super) fn parts(self, k: u64) -> (u64, u32) {
        let part = k.div_ceil(u64::from(self.splits)).next_multiple_of(STEP).max(STEP);
        (part, k.div_ceil(part).max(1) as u32)
    }
}

/// A batch of matrices A that lie one behind the other, times one B, is one product with all their rows: tiles then are
/// full where single matrices are low. Other products stay as they are.
pub(super) fn fold(p: &MatmulParams) -> MatmulParams {
    let mut next = (p.m * p.k) as i64;
    for i in (0..p.batch_rank as usize).rev() {
        if p.batch[i] != 1 && (p.a_batch[i] != next || p.b_batch[i] != 0) {
            return *p;
        }
        next *= p.batch[i] as i64;
    }
    if p.trans_a == 1 {
        return *p;
    }
    MatmulParams {
        m: p.batches() as u64 * p.m,
        batch_rank: 0,
        ..*p
    }
}

/// True if the rows of both operands are multiples of 16 bytes, fewer than 2³² of them (`AlignedRows` in kernels/src/common/tensor_tile.cuh).
pub(super) fn rows_aligned(p: &MatmulParams, dtype: DType) -> bool {
    let a = if p.trans_a == 1 { p.m } else { p.k };
    let b = if p.trans_b == 1 { p.k } else { p.n };
    let bytes = |row: u64| row * dtype.size() as u64;
    [a, b]
        .iter()
        .all(|&row| bytes(row).is_multiple_of(16) && bytes(row) < 1 << 36)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::Shape;

    const A100: Multiprocessors = Multiprocessors {
        count: 108,
        warpgroups: false,
    };

    fn product(batch: usize, m: usize, n: usize, k: usize) -> MatmulParams {
        let shape = |dims: &[usize]| Shape::new(dims).expect("a small shape");
        let (p, _) = MatmulParams::new("matmul", &shape(&[batch, m, k]), &shape(&[batch, k, n]), false, false)
            .expect("they fit");
        p
    }

    #[test]
    fn a_plan_fits_the_product() {
        use Algorithm::*;
        let cases = [
            (product(1, 4096, 4096, 4096), DType::F32, false, Registers128, 1),
            (product(1, 4096, 4096, 4096), DType::F32, true, Tensor128x256, 1),
            (product(1, 4096, 4096, 4096), DType::BF16, false, Tensor128x256, 1),
            (product(1, 4096, 4097, 4096), DType::F16, false, Tensor64x64Any, 1),
            (product(1, 64, 4096, 4), DType::BF16, false, Naive, 1),
            (product(1, 32, 10, 128), DType::F32, false, Tiled, 1),
            (product(1, 32, 10, 65536), DType::F32, false, Registers64, 216),
            (product(512, 32, 10, 65536), DType::F32, false, Tiled, 1),
            (product(1, 512, 510, 65536), DType::F16, false, Tensor64x64Any, 3),
            (product(1, 128, 784, 60000), DType::F32, false, Registers64, 8),
            (product(0, 128, 784, 60000), DType::F32, false, Registers64, 216),
        ];
        for (p, dtype, tf32, algorithm, splits) in cases {
            let plan = Plan::choose(&p, dtype, A100, tf32);
            assert_eq!(
                (plan.algorithm(), plan.splits()),
                (algorithm, splits),
                "{p:?} {dtype:?} {tf32}"
            );
        }
    }

    #[test]
    fn aligned_rows_are_16_bytes_fewer_than_2_to_the_32_times() {
        let of = |n: u64| MatmulParams {
            n,
            ..product(1, 64, 64, 64)
        };
        let aligned = [64, 68, (1 << 35) - 8, 1 << 35].map(|n| rows_aligned(&of(n), DType::BF16));
        assert_eq!(aligned, [true, false, true, false]);
    }

    #[test]
    fn a_batch_over_one_matrix_is_one_product() {
        let of = |a: &[usize], b: &[usize], trans_a: bool| {
            let (a, b) = (Shape::new(a).expect("small"), Shape::new(b).expect("small"));
            let (p, _) = MatmulParams::new("matmul", &a, &b, trans_a, false).expect("they fit");
            let folded = fold(&p);
            (folded.batches(), folded.m)
        };
        assert_eq!(of(&[6, 5], &[5, 7], false), (1, 6));
        assert_eq!(of(&[2, 3, 4, 5], &[5, 7], false), (1, 24));
        assert_eq!(of(&[2, 1, 4, 5], &[1, 5, 7], false), (1, 8));
        assert_eq!(of(&[0, 4, 5], &[5, 7], false), (1, 0));
        assert_eq!(of(&[3, 4, 0], &[0, 7], false), (1, 12));
        // Every A has its own B; A is the broadcast one; A's columns lie apart.
        assert_eq!(of(&[3, 4, 5], &[3, 5, 7], false), (3, 4));
        assert_eq!(of(&[2, 3, 4, 5], &[3, 5, 7], false), (6, 4));
        assert_eq!(of(&[2, 1, 4, 5], &[3, 5, 7], false), (6, 4));
        assert_eq!(of(&[4, 5], &[3, 5, 7], false), (3, 4));
        assert_eq!(of(&[3, 5, 4], &[5, 7], true), (3, 4));
    }

    #[test]
    fn parts_cover_k_and_none_is_empty() {
        for splits in [1, 2, 3, 7, 1000, u32::MAX] {
            for k in [0, 1, 31, 32, 33, 95, 96, 97, 1000, 1 << 40] {
                let (part, parts) = Plan::new(Algorithm::Tensor64x64).split(splits).parts(k);
                assert_eq!(part % STEP, 0);
                assert!(parts <= splits.max(1), "k {k}: {parts} parts of {splits}");
                assert!(u64::from(parts) * part >= k);
                assert!(
                    k == 0 || u64::from(parts - 1) * part < k,
                    "k {k}, {splits} splits: {part} {parts}"
                );
            }
        }
    }
}
