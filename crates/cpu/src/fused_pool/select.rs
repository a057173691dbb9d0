//! The vector operations of max pooling: the larger of two values with its index, and selection by index.

use crate::simd::vector::{Portable, Vector};

/// As with [`Vector`], only functions that run on machines with the instruction set may call these.
pub(crate) trait SimdMax: Vector {
    /// `(x, at)` in the lanes where `x` is greater than `self`, or is NaN and `self` is not; `(self, place)` elsewhere.
    fn max_with_index(self, place: Self, x: Self, at: Self) -> (Self, Self);
    /// Writes `first` plus the first `n` elements, which are small integers.
    ///
    /// # Safety
    /// `n ≤ LANES` elements are writable at `p`.
    unsafe fn store_places(self, first: i32, p: *mut i32, n: usize);
    /// `self` in those of the first `n` lanes whose index at `p` is `at`, zero elsewhere.
    ///
    /// # Safety
    /// `n ≤ LANES` elements are readable at `p`.
    unsafe fn select_eq_index(self, p: *const i32, n: usize, at: i32) -> Self;
}

macro_rules! portable {
    ($t:ident) => {
        impl SimdMax for Portable<$t> {
            #[inline(always)]
            fn max_with_index(self, place: Self, x: Self, at: Self) -> (Self, Self) {
                let (mut best, mut places) = (self.0, place.0);
                for i in 0..Self::LANES {
                    if x.0[i] > best[i] || (x.0[i].is_nan() && !best[i].is_nan()) {
                        (best[i], places[i]) = (x.0[i], at.0[i]);
                    }
                }
                (Portable(best), Portable(places))
            }
            #[inline(always)]
            unsafe fn store_places(self, first: i32, p: *mut i32, n: usize) {
                for i in 0..n.min(Self::LANES) {
                    // SAFETY: `i < n`, and `n` elements are writable by the caller's contract.
                    unsafe { *p.add(i) = first + self.0[i] as i32 };
                }
            }
            #[inline(always)]
            unsafe fn select_eq_index(self, p: *const i32, n: usize, at: i32) -> Self {
                let mut out = Self::zero();
                for i in 0..n.min(Self::LANES) {
                    // SAFETY: `i < n`, and `n` elements are readable by the caller's contract.
                    if unsafe { *p.add(i) } == at {
                        out.0[i] = self.0[i];
                    }
                }
                out
            }
        }
    };
}
portable!(f32);
portable!(f64);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::SimdMax;
    use crate::simd::vector::x86::{Avx2, Avx512, bits, lanes32};
    use std::arch::x86_64::*;

    /// The mask of the first `n` of four 32-bit lanes.
    #[inline(always)]
    unsafe fn half_lanes32(n: usize) -> __m128i {
        // SAFETY: the caller runs on AVX2.
        unsafe { _mm_cmpgt_epi32(_mm_set1_epi32(n as i32), _mm_setr_epi32(0, 1, 2, 3)) }
    }

    macro_rules! choice {
        ($name:ident<$reg:ident>, |$a:ident, $x:ident| $wins:expr, |$m:ident, $old:ident, $new:ident| $blend:expr,
         |$self_:ident, $first:ident, $p:ident, $n:ident| $store:expr,
         |$self2:ident, $q:ident, $k:ident, $at:ident| $select_eq_index:expr) => {
            impl SimdMax for $name<$reg> {
                #[inline(always)]
                fn max_with_index(self, place: Self, x: Self, at: Self) -> (Self, Self) {
                    let ($a, $x) = (self.0, x.0);
                    // SAFETY: the trait's contract: the set was found on this machine.
                    let $m = unsafe { $wins };
                    let blend = |$old, $new| {
                        // SAFETY: as above.
                        $name(unsafe { $blend })
                    };
                    (blend($a, $x), blend(place.0, at.0))
                }
                #[inline(always)]
                unsafe fn store_places(self, $first: i32, $p: *mut i32, $n: usize) {
                    let $self_ = self.0;
                    // SAFETY: as above; the mask has the first n lanes, which the caller vouches for.
                    unsafe { $store }
                }
                #[inline(always)]
                unsafe fn select_eq_index(self, $q: *const i32, $k: usize, $at: i32) -> Self {
                    let $self2 = self.0;
                    // SAFETY: as above; the mask has the first n lanes, which the caller vouches for.
                    $name(unsafe { $select_eq_index })
                }
            }
        };
    }

    choice!(
        Avx512<__m512>,
        |a, x| _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, a) & _mm512_cmp_ps_mask::<_CMP_ORD_Q>(a, a),
        |m, old, new| _mm512_mask_blend_ps(m, old, new),
        |v, first, p, n| {
            let places = _mm512_add_epi32(_mm512_cvtps_epi32(v), _mm512_set1_epi32(first));
            _mm512_mask_storeu_epi32(p, bits::<16>(n), places)
        },
        |v, p, n, at| {
            let places = _mm512_maskz_loadu_epi32(bits::<16>(n), p);
            let here = _mm512_cmpeq_epi32_mask(places, _mm512_set1_epi32(at));
            _mm512_maskz_mov_ps(here & bits::<16>(n), v)
        }
    );
    choice!(
        Avx512<__m512d>,
        |a, x| _mm512_cmp_pd_mask::<_CMP_NLE_UQ>(x, a) & _mm512_cmp_pd_mask::<_CMP_ORD_Q>(a, a),
        |m, old, new| _mm512_mask_blend_pd(m, old, new),
        |v, first, p, n| {
            let places = _mm256_add_epi32(_mm512_cvtpd_epi32(v), _mm256_set1_epi32(first));
            _mm256_maskstore_epi32(p, lanes32(n), places)
        },
        |v, p, n, at| {
            let places = _mm512_cvtepi32_epi64(_mm256_maskload_epi32(p, lanes32(n)));
            let here = _mm512_cmpeq_epi64_mask(places, _mm512_set1_epi64(at.into()));
            _mm512_maskz_mov_pd(here & bits::<8>(n) as u8, v)
        }
    );
    choice!(
        Avx2<__m256>,
        |a, x| _mm256_and_ps(_mm256_cmp_ps::<_CMP_NLE_UQ>(x, a), _mm256_cmp_ps::<_CMP_ORD_Q>(a, a)),
        |m, old, new| _mm256_blendv_ps(old, new, m),
        |v, first, p, n| {
            let places = _mm256_add_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(first));
            _mm256_maskstore_epi32(p, lanes32(n), places)
        },
        |v, p, n, at| {
            let within = lanes32(n);
            let here = _mm256_cmpeq_epi32(_mm256_maskload_epi32(p, within), _mm256_set1_epi32(at));
            _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_and_si256(here, within)))
        }
    );
    choice!(
        Avx2<__m256d>,
        |a, x| _mm256_and_pd(_mm256_cmp_pd::<_CMP_NLE_UQ>(x, a), _mm256_cmp_pd::<_CMP_ORD_Q>(a, a)),
        |m, old, new| _mm256_blendv_pd(old, new, m),
        |v, first, p, n| {
            let places = _mm_add_epi32(_mm256_cvtpd_epi32(v), _mm_set1_epi32(first));
            _mm_maskstore_epi32(p, half_lanes32(n), places)
        },
        |v, p, n, at| {
            let within = half_lanes32(n);
            let here = _mm_cmpeq_epi32(_mm_maskload_epi32(p, within), _mm_set1_epi32(at));
            let here = _mm256_cvtepi32_epi64(_mm_and_si128(here, within));
            _mm256_and_pd(v, _mm256_castsi256_pd(here))
        }
    );
}
