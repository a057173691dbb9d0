//! The kernels that multiply halves.

use crate::gemm::kernels::{Gemm, Kernels, bf16_pairs};
use crate::gemm::pack::UNIT;
use crate::simd::tiles;
use kiln_core::DType;

/// Kernels for words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfKernels {
    /// Tiles of the matrix unit, of pairs of bfloat16.
    Tiles,
    /// AVX-512's products of pairs of bfloat16.
    Pairs,
    /// The kernels of f32, whose words are widened elements.
    Widened,
}

impl HalfKernels {
    /// All kernels, the fastest first.
    pub(crate) const ALL: [HalfKernels; 3] = [HalfKernels::Tiles, HalfKernels::Pairs, HalfKernels::Widened];

    /// True if they multiply elements of `dtype` on this machine.
    pub(crate) fn supports(self, dtype: DType) -> bool {
        match self {
            HalfKernels::Tiles => dtype == DType::BF16 && tiles::available(),
            HalfKernels::Pairs => dtype == DType::BF16 && bf16_pairs().is_some(),
            HalfKernels::Widened => matches!(dtype, DType::BF16 | DType::F16),
        }
    }

    /// The micro-kernels over vectors of words; `None` for those over tiles.
    pub(crate) fn vectors(self) -> Option<&'static Kernels<f32>> {
        match self {
            HalfKernels::Tiles => None,
            HalfKernels::Pairs => bf16_pairs(),
            HalfKernels::Widened => Some(f32::kernels()),
        }
    }

    /// True if a word is a pair of elements, the steps 2i and 2i + 1 of k.
    pub(crate) fn pairs(self) -> bool {
        self != HalfKernels::Widened
    }

    /// The number of words of a vector, or of a row of a tile.
    pub(crate) fn lanes(self) -> usize {
        self.vectors().map_or(tiles::SIDE, |k| k.lanes)
    }

    /// The number of columns of a panel of B.
    pub(crate) fn panel(self) -> usize {
        2 * self.lanes()
    }

    /// The number of rows of C that are computed at once.
    pub(crate) fn tile(self) -> usize {
        self.vectors().map_or(2 * tiles::SIDE, |k| k.tile())
    }

    /// The largest number of steps of k in a block: a panel of it takes most of an L1 cache. It is the same on every machine.
    pub(crate) fn unit(self) -> usize {
        match self {
            HalfKernels::Tiles | HalfKernels::Pairs => 512,
            HalfKernels::Widened => UNIT,
        }
    }

    /// The number of words that hold `steps` steps of k; elements past the last one are zeros.
    pub(crate) fn words(self, steps: usize) -> usize {
        match self {
            HalfKernels::Tiles => steps.div_ceil(2).next_multiple_of(tiles::SIDE),
            HalfKernels::Pairs => steps.div_ceil(2),
            HalfKernels::Widened => steps,
        }
    }

    /// How many multiply-adds take as long as one of f32.
    pub(crate) fn speed(self) -> usize {
        match self {
            HalfKernels::Tiles => 10,
            HalfKernels::Pairs | HalfKernels::Widened => 1,
        }
    }

    /// The time that this many multiply-adds take, as the number of those of f32.
    pub(crate) fn time(self, sums: usize) -> usize {
        match self {
            // Intel's processors, a Granite Rapids among them, multiply pairs at half the rate of f32, and have tiles beside them.
            HalfKernels::Pairs => sums.saturating_mul(2),
            kernels => sums / kernels.speed(),
        }
    }
}
