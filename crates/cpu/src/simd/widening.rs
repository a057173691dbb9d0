//! Vectors filled from elements in memory: from their own, or from halves, which are widened in the register.

use crate::simd::lanes::widen_bf16;
use crate::simd::vector::{Portable, Vector};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

#[cfg(target_arch = "x86_64")]
use crate::simd::vector::x86::{Avx2, Avx512, Bf16Pairs};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// An element in memory that fills the lanes of `V`. As the methods of [`Vector`], those of halves may run only inside functions that
/// were compiled for their instructions: those of `V`, and F16C for f16 in a register of AVX2.
pub(crate) trait Fill<V: Vector>: Copy {
    /// The values of `LANES` elements at `p`, which need not be aligned.
    ///
    /// # Safety
    /// `LANES` elements are readable at `p`.
    unsafe fn load(p: *const Self) -> V;

    /// The values of the first `n ≤ LANES` elements at `p`, with zeros after them.
    ///
    /// # Safety
    /// `n` elements are readable at `p`.
    unsafe fn load_first(p: *const Self, n: usize) -> V;
}

macro_rules! own {
    ($($v:ty: $t:ident),+) => {$(
        impl Fill<$v> for $t {
            #[inline(always)]
            unsafe fn load(p: *const Self) -> $v {
                // SAFETY: the caller's contract.
                unsafe { <$v>::load(p) }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const Self, n: usize) -> $v {
                // SAFETY: the caller's contract.
                unsafe { <$v>::load_first(p, n) }
            }
        }
    )+};
}
own!(Portable<f32>: f32, Portable<f64>: f64);
#[cfg(target_arch = "x86_64")]
own!(Avx2<__m256>: f32, Avx2<__m256d>: f64, Avx512<__m512>: f32, Avx512<__m512d>: f64, Bf16Pairs<__m512>: f32);

macro_rules! widened {
    ($v:ty, $t:ident, |$p:ident| $load:expr) => {
        impl Fill<$v> for $t {
            #[inline(always)]
            unsafe fn load($p: *const Self) -> $v {
                // SAFETY: the caller's contract, and the trait's: the instructions are those of the function that this is part of.
                unsafe { $load }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const Self, n: usize) -> $v {
                let mut x = [$t::ZERO; <$v as Vector>::LANES];
                for (i, x) in x.iter_mut().enumerate().take(n) {
                    // SAFETY: `i < n`, and `n` elements are readable by the caller's contract.
                    *x = unsafe { *p.add(i) };
                }
                // SAFETY: the array holds a vector's elements.
                unsafe { <Self as Fill<$v>>::load(x.as_ptr()) }
            }
        }
    };
}
widened!(Portable<f32>, bf16, |p| {
    Portable(p.cast::<[u16; 4]>().read_unaligned().map(widen_bf16))
});
widened!(Portable<f32>, f16, |p| {
    let mut x = [0.0; 4];
    p.cast::<[f16; 4]>().read_unaligned().convert_to_f32_slice(&mut x);
    Portable(x)
});
// A bfloat16 is the upper half of an f32.
#[cfg(target_arch = "x86_64")]
widened!(Avx2<__m256>, bf16, |p| {
    let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
    Avx2(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(words)))
});
#[cfg(target_arch = "x86_64")]
widened!(Avx512<__m512>, bf16, |p| {
    let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
    Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)))
});
#[cfg(target_arch = "x86_64")]
widened!(Avx2<__m256>, f16, |p| Avx2(_mm256_cvtph_ps(_mm_loadu_si128(p.cast()))));
#[cfg(target_arch = "x86_64")]
widened!(Avx512<__m512>, f16, |p| Avx512(_mm512_cvtph_ps(_mm256_loadu_si256(
    p.cast()
))));
