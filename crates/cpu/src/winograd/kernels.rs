//! The transforms for this machine.

use crate::gemm::Gemm;
use crate::simd::isa::by_isa;
use crate::simd::vector::Portable;
#[cfg(target_arch = "x86_64")]
use crate::simd::vector::x86::{Avx2, Avx512};
use crate::winograd::transform::{self, Job, Transform, Transforms};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

/// The transforms of one instruction set.
pub(crate) struct TransformSet<A> {
    /// The transforms of F(2×2, 3×3).
    pub(crate) small: Transforms<A, 16, 4>,
    /// The transforms of F(4×2, 3×3).
    pub(crate) large: Transforms<A, 24, 8>,
}

/// f32 and f64, the types with transforms.
pub(crate) trait Winograd: Gemm {
    /// The transforms of every instruction set of this machine, in the order of [`Gemm::all_kernels`].
    fn all_transforms() -> &'static [&'static TransformSet<Self>];

    /// The transforms of the widest instruction set.
    fn transforms() -> &'static TransformSet<Self> {
        Self::all_transforms()[0]
    }
}

macro_rules! transforms {
    ($set:ident, $t:ident, $v:ty, [$($feature:literal)?]) => {
        static $set: TransformSet<$t> = TransformSet {
            small: transforms!(@winograd $t, $v, [$($feature)?], [4, 4], [2, 2]),
            large: transforms!(@winograd $t, $v, [$($feature)?], [6, 4], [4, 2]),
        };
    };
    (@winograd $t:ident, $v:ty, $feature:tt, $tile:tt, $result:tt) => {
        Transforms {
            image: transforms!(@transform $t, $v, $feature, Image, $tile, $tile),
            image_grad: transforms!(@transform $t, $v, $feature, ImageGrad, $tile, $tile),
            weight: transforms!(@transform $t, $v, $feature, Weight, [3, 3], $tile),
            result: transforms!(@transform $t, $v, $feature, Result, $tile, $result),
            result_grad: transforms!(@transform $t, $v, $feature, ResultGrad, $result, $tile),
            weight_grad: transforms!(@transform $t, $v, $feature, WeightGrad, $tile, [3, 3]),
        }
    };
    (@transform $t:ident, $v:ty, [$($feature:literal)?], $name:ident, [$h:literal, $w:literal], [$to_h:literal, $to_w:literal]) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn transform(job: &Job<$t>) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { transform::run::<$v, transform::$name, $h, $w, $to_h, $to_w>(job) }
        }
        // SAFETY: a job of a tile of this size has as many pointers; the instructions are those of the set.
        unsafe { Transform::new(transform) }
    }};
}

/// The transforms of one element type for every instruction set.
macro_rules! sets {
    ($t:ident, $portable:ident, $avx2:ident, $avx512:ident, $ymm:ident, $zmm:ident) => {
        transforms!($portable, $t, Portable<$t>, []);
        #[cfg(target_arch = "x86_64")]
        transforms!($avx2, $t, Avx2<$ymm>, ["avx2,fma"]);
        #[cfg(target_arch = "x86_64")]
        transforms!($avx512, $t, Avx512<$zmm>, ["avx512f"]);

        impl Winograd for $t {
            by_isa!(fn all_transforms() -> TransformSet<$t>, $portable, $avx2, $avx512);
        }
    };
}
sets!(f32, PORTABLE_F32, AVX2_F32, AVX512_F32, __m256, __m512);
sets!(f64, PORTABLE_F64, AVX2_F64, AVX512_F64, __m256d, __m512d);
