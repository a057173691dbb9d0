//! The micro-kernels of matrix products for this machine.

use crate::gemm::microkernel::{ColumnTile, DOTS, DotTile, RowTile, columns, dots, rows};
use crate::gemm::square::{Square, square};
use crate::simd::isa::by_isa;
#[cfg(target_arch = "x86_64")]
use crate::simd::isa::has_bf16_pairs;
use crate::simd::real::Real;
use crate::simd::vector::Portable;
#[cfg(target_arch = "x86_64")]
use crate::simd::vector::x86::{Avx2, Avx512, Bf16Pairs};
use half::{bf16, f16};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

/// f32 and f64, the types with micro-kernels.
pub(crate) trait Gemm: Real {
    /// The micro-kernels of every instruction set of this machine, the widest first.
    fn all_kernels() -> &'static [&'static Kernels<Self>];

    /// The micro-kernels of the widest instruction set.
    fn kernels() -> &'static Kernels<Self> {
        Self::all_kernels()[0]
    }
}

/// A micro-kernel over [`RowTile`]s.
pub(crate) type RowKernel<A> = for<'a, 's> unsafe fn(&'a RowTile<'s, A>);
/// A micro-kernel over [`ColumnTile`]s.
pub(crate) type ColumnKernel<A> = for<'a, 's> unsafe fn(&'a ColumnTile<'s, A>);

/// A micro-kernel over [`DotTile`]s.
pub(crate) type DotKernel<A, B = A> = for<'a, 'c> unsafe fn(&'a DotTile<A, B>, &'c mut [[A; DOTS]; DOTS]);

/// The dot-product kernels for one row and for up to [`DOTS`] rows.
pub(crate) type DotKernels<A, B = A> = [DotKernel<A, B>; 2];

/// A kernel that transposes a [`Square`].
pub(crate) type SquareKernel<A> = for<'a> unsafe fn(&'a Square<A>);

/// Micro-kernels of one tile height, for tiles of one vector and of two.
pub(crate) struct MicroKernels<A: 'static> {
    pub(crate) rows: usize,
    pub(crate) by_row: [RowKernel<A>; 2],
    pub(crate) by_column: [ColumnKernel<A>; 2],
}

/// The micro-kernels of one instruction set.
pub(crate) struct Kernels<A: 'static> {
    /// The instruction set's name, for messages of tests.
    #[cfg(test)]
    pub(crate) name: &'static str,
    /// The number of elements of a vector; a panel of B is two vectors wide (`NR`).
    pub(crate) lanes: usize,
    /// The kernels for each tile height (`MR`), in descending order to 1.
    pub(crate) heights: &'static [MicroKernels<A>],
    pub(crate) dots: DotKernels<A>,
    /// Transposes up to `lanes` rows of up to as many columns.
    pub(crate) square: SquareKernel<A>,
}

impl<A> Kernels<A> {
    /// The number of columns of a panel (`NR`).
    pub(crate) fn panel(&self) -> usize {
        2 * self.lanes
    }

    /// The number of rows of the largest tile (`MR`).
    pub(crate) fn tile(&self) -> usize {
        self.heights[0].rows
    }

    /// The kernels of the lowest tile that covers `left` rows, or of the highest tile.
    pub(crate) fn height(&self, left: usize) -> &'static MicroKernels<A> {
        let fits = self.heights.iter().rev().find(|h| h.rows >= left);
        fits.unwrap_or(&self.heights[0])
    }
}

/// The dot-product kernels of one instruction set, of `$rows` rows of `$a` at a time with rows of `$b`.
macro_rules! dot_kernels {
    ($a:ident, $b:ident, $v:ty, [$($feature:literal)?], $rows:literal) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn one(t: &DotTile<$a, $b>, c: &mut [[$a; DOTS]; DOTS]) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { dots::<$v, $b, 1>(t, c) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn more(t: &DotTile<$a, $b>, c: &mut [[$a; DOTS]; DOTS]) {
            // SAFETY: as above.
            unsafe { dots::<$v, $b, $rows>(t, c) }
        }
        [one, more]
    }};
}

/// The kernels of one instruction set, called `$name`, over the vectors `$v`, for tiles of `$rows` rows, and for dot
/// products of `$dots` rows at a time.
macro_rules! kernels {
    ($set:ident, $name:literal, $t:ident, $v:ty, [$($feature:literal)?], $rows:tt, $dots:literal) => {
        static $set: Kernels<$t> = Kernels {
            #[cfg(test)]
            name: $name,
            lanes: <$v as crate::simd::vector::Vector>::LANES,
            heights: kernels!(@each $t, $v, [$($feature)?], $rows),
            dots: dot_kernels!($t, $t, $v, [$($feature)?], $dots),
            square: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn transposed(s: &Square<$t>) {
                    // SAFETY: the caller's contract; the instructions are enabled here.
                    unsafe { square::<$v, { <$v as crate::simd::vector::Vector>::LANES }>(s) }
                }
                transposed
            },
        };
    };
    (@each $t:ident, $v:ty, $feature:tt, [$($rows:literal),+]) => {
        &[$(kernels!(@height $t, $v, $feature, $rows)),+]
    };
    (@height $t:ident, $v:ty, [$($feature:literal)?], $rows:literal) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn row1(t: &RowTile<'_, $t>) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { rows::<$v, $rows, 1>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn row2(t: &RowTile<'_, $t>) {
            // SAFETY: as above.
            unsafe { rows::<$v, $rows, 2>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn column1(t: &ColumnTile<'_, $t>) {
            // SAFETY: as above.
            unsafe { columns::<$v, $rows, 1>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn column2(t: &ColumnTile<'_, $t>) {
            // SAFETY: as above.
            unsafe { columns::<$v, $rows, 2>(t) }
        }
        MicroKernels { rows: $rows, by_row: [row1, row2], by_column: [column1, column2] }
    }};
}

/// The kernels of one element type for every instruction set.
macro_rules! sets {
    ($t:ident, $portable:ident, $avx2:ident, $avx512:ident, $ymm:ident, $zmm:ident) => {
        kernels!($portable, "portable", $t, Portable<$t>, [], [4, 2, 1], 4);
        #[cfg(target_arch = "x86_64")]
        kernels!($avx2, "avx2", $t, Avx2<$ymm>, ["avx2,fma"], [6, 4, 2, 1], 2);
        #[cfg(target_arch = "x86_64")]
        kernels!($avx512, "avx512", $t, Avx512<$zmm>, ["avx512f"], [12, 8, 6, 4, 2, 1], 4);

        impl Gemm for $t {
            by_isa!(fn all_kernels() -> Kernels<$t>, $portable, $avx2, $avx512);
        }
    };
}
sets!(f32, PORTABLE_F32, AVX2_F32, AVX512_F32, __m256, __m512);
sets!(f64, PORTABLE_F64, AVX2_F64, AVX512_F64, __m256d, __m512d);

#[cfg(target_arch = "x86_64")]
kernels!(
    BF16_PAIRS,
    "avx512_bf16",
    f32,
    Bf16Pairs<__m512>,
    ["avx512f,avx512bf16"],
    [12, 8, 6, 4, 2, 1],
    4
);

/// The dot-product kernels of f32 with elements of a narrower type, for every instruction set of this machine, the widest first.
pub(crate) trait Widened: Sized + 'static {
    fn all_dots() -> &'static [&'static DotKernels<f32, Self>];
}

macro_rules! widened {
    ($t:ident, $portable:ident, $avx2:ident, $avx512:ident) => {
        static $portable: DotKernels<f32, $t> = dot_kernels!(f32, $t, Portable<f32>, [], 4);
        #[cfg(target_arch = "x86_64")]
        static $avx2: DotKernels<f32, $t> = dot_kernels!(f32, $t, Avx2<__m256>, ["avx2,fma,f16c"], 2);
        #[cfg(target_arch = "x86_64")]
        static $avx512: DotKernels<f32, $t> = dot_kernels!(f32, $t, Avx512<__m512>, ["avx512f"], 4);

        impl Widened for $t {
            by_isa!(fn all_dots() -> DotKernels<f32, $t>, $portable, $avx2, $avx512);
        }
    };
}
widened!(bf16, PORTABLE_BF16, AVX2_BF16, AVX512_BF16);
widened!(f16, PORTABLE_F16, AVX2_F16, AVX512_F16);

/// The micro-kernels that multiply pairs of bfloat16 along k, where this machine has the instruction: to them an operand is a
/// matrix of words of 32 bits, each of which holds two steps of k.
pub(crate) fn bf16_pairs() -> Option<&'static Kernels<f32>> {
    #[cfg(target_arch = "x86_64")]
    if has_bf16_pairs() {
        return Some(&BF16_PAIRS);
    }
    None
}
