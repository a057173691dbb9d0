//! The vector registers of each instruction set, as one trait for the micro-kernels.

/// A register of [`LANES`](Vector::LANES) elements.
///
/// The methods compile to instructions of one instruction set, so they may run only inside functions
/// that [`Kernels`](crate::gemm::Kernels) returns after detecting that set on this machine.
pub(crate) trait Vector: Copy {
    type Element: Copy;
    const LANES: usize;

    fn zero() -> Self;
    fn splat(x: Self::Element) -> Self;
    /// `self + a·b`, as a fused multiply-add where the machine has one.
    fn add_product(self, a: Self, b: Self) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// The sum of all elements.
    fn sum(self) -> Self::Element;
    /// Interleaves the elements of both: `self[0], other[0], self[1], …`, as two vectors.
    fn interleave(self, other: Self) -> [Self; 2];
    /// `max(self, 0)` that keeps NaN.
    fn relu(self) -> Self;
    /// Prefetches the line at `p`, which need not be readable, into the L1 cache.
    fn prefetch(p: *const Self::Element);
    /// Loads `LANES` elements at `p`, which need not be aligned.
    ///
    /// # Safety
    /// `LANES` elements are readable at `p`.
    unsafe fn load(p: *const Self::Element) -> Self;
    /// Writes all elements to `p`, which need not be aligned.
    ///
    /// # Safety
    /// `LANES` elements are writable at `p`.
    unsafe fn store(self, p: *mut Self::Element);
    /// Loads the first `n ≤ LANES` elements at `p`, with zeros after them.
    ///
    /// # Safety
    /// `n` elements are readable at `p`.
    unsafe fn load_first(p: *const Self::Element, n: usize) -> Self;
    /// Writes the first `n ≤ LANES` elements.
    ///
    /// # Safety
    /// `n` elements are writable at `p`.
    unsafe fn store_first(self, p: *mut Self::Element, n: usize);
}

/// Prefetches the lines of `len` elements at `p`, which need not be readable.
#[inline(always)]
pub(crate) fn fetch<A>(p: *const A, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..len * size_of::<A>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast::<i8>().wrapping_add(at)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (p, len);
}

/// Returns `p`, of which the compiler then knows nothing: it keeps the pointer in a register and adds to it as written, and derives no
/// other addresses from it.
#[inline(always)]
#[expect(
    clippy::pointers_in_nomem_asm_block,
    reason = "no instruction, so nothing is read through the pointer"
)]
pub(crate) fn opaque<A>(mut p: *const A) -> *const A {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no instruction.
    unsafe {
        std::arch::asm!("/* {} */", inout(reg) p, options(pure, nomem, nostack, preserves_flags));
    }
    p
}

/// Four elements as an array, for machines without kernels for their vector units here; the compiler uses what the target
/// has.
#[derive(Clone, Copy)]
pub(crate) struct Portable<A>(pub(crate) [A; 4]);

macro_rules! portable {
    ($t:ident) => {
        impl Vector for Portable<$t> {
            type Element = $t;
            const LANES: usize = 4;

            #[inline(always)]
            fn zero() -> Self {
                Portable([0.0; 4])
            }
            #[inline(always)]
            fn splat(x: $t) -> Self {
                Portable([x; 4])
            }
            #[inline(always)]
            fn add_product(self, a: Self, b: Self) -> Self {
                // Without a fused instruction on the target, `mul_add` is a slow call.
                Portable(std::array::from_fn(|i| {
                    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
                        a.0[i].mul_add(b.0[i], self.0[i])
                    } else {
                        self.0[i] + a.0[i] * b.0[i]
                    }
                }))
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                Portable(std::array::from_fn(|i| self.0[i] + other.0[i]))
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                Portable(std::array::from_fn(|i| self.0[i] - other.0[i]))
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                Portable(std::array::from_fn(|i| self.0[i] * other.0[i]))
            }
            #[inline(always)]
            fn relu(self) -> Self {
                Portable(self.0.map(|x| if x < 0.0 { 0.0 } else { x }))
            }
            #[inline(always)]
            fn prefetch(_: *const $t) {}
            #[inline(always)]
            fn interleave(self, other: Self) -> [Self; 2] {
                let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
                [Portable([a, e, b, f]), Portable([c, g, d, h])]
            }
            #[inline(always)]
            fn sum(self) -> $t {
                let [a, b, c, d] = self.0;
                (a + c) + (b + d)
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: the caller's contract.
                Portable(unsafe { p.cast::<[$t; 4]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: the caller's contract.
                unsafe { p.cast::<[$t; 4]>().write_unaligned(self.0) };
            }
            #[inline(always)]
            unsafe fn load_first(p: *const $t, n: usize) -> Self {
                if n >= 4 {
                    // SAFETY: the caller's contract.
                    return unsafe { Self::load(p) };
                }
                let mut x = [0.0; 4];
                for (i, x) in x.iter_mut().enumerate().take(n) {
                    // SAFETY: `i < n`, and `n` elements are readable by the caller's contract.
                    *x = unsafe { *p.add(i) };
                }
                Portable(x)
            }
            #[inline(always)]
            unsafe fn store_first(self, p: *mut $t, n: usize) {
                for (i, x) in self.0.into_iter().enumerate().take(n) {
                    // SAFETY: `i < n`, and `n` elements are writable by the caller's contract.
                    unsafe { *p.add(i) = x };
                }
            }
        }
    };
}
portable!(f32);
portable!(f64);

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    /// A vector register of AVX-512.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512<R>(pub(crate) R);
    /// A vector register of AVX2 with FMA.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2<R>(pub(crate) R);

    macro_rules! vector {
        ($name:ident, $reg:ident, $t:ident, $lanes:literal, $splat:ident, $fma:ident, $add:ident, $sub:ident, $mul:ident, $max:ident, $load:ident, $store:ident,
         |$p:ident, $n:ident| $load_first:expr, |$x:ident, $q:ident, $m:ident| $store_first:expr,
         |$y:ident, $z:ident| $interleave:expr) => {
            impl Vector for $name<$reg> {
                type Element = $t;
                const LANES: usize = $lanes;

                #[inline(always)]
                fn zero() -> Self {
                    Self::splat(0.0)
                }
                #[inline(always)]
                fn splat(x: $t) -> Self {
                    // SAFETY: the trait's contract: the set was found on this machine.
                    $name(unsafe { $splat(x) })
                }
                #[inline(always)]
                fn add_product(self, a: Self, b: Self) -> Self {
                    // SAFETY: as above.
                    $name(unsafe { $fma(a.0, b.0, self.0) })
                }
                #[inline(always)]
                fn add(self, other: Self) -> Self {
                    // SAFETY: as above.
                    $name(unsafe { $add(self.0, other.0) })
                }
                #[inline(always)]
                fn sub(self, other: Self) -> Self {
                    // SAFETY: as above.
                    $name(unsafe { $sub(self.0, other.0) })
                }
                #[inline(always)]
                fn mul(self, other: Self) -> Self {
                    // SAFETY: as above.
                    $name(unsafe { $mul(self.0, other.0) })
                }
                #[inline(always)]
                fn relu(self) -> Self {
                    // The instruction returns its second operand if either is NaN.
                    // SAFETY: as above.
                    $name(unsafe { $max($splat(0.0), self.0) })
                }
                #[inline(always)]
                fn sum(self) -> $t {
                    let mut x = [0.0; $lanes];
                    // SAFETY: as above; the array holds a register.
                    unsafe { $store(x.as_mut_ptr(), self.0) };
                    let mut n = $lanes / 2;
                    while n > 0 {
                        for i in 0..n {
                            x[i] += x[i + n];
                        }
                        n /= 2;
                    }
                    x[0]
                }
                #[inline(always)]
                fn prefetch(p: *const $t) {
                    // SAFETY: a hint, which reads nothing.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) };
                }
                #[inline(always)]
                fn interleave(self, other: Self) -> [Self; 2] {
                    let ($y, $z) = (self.0, other.0);
                    // SAFETY: as above.
                    let [low, high] = unsafe { $interleave };
                    // Not by `map`, which is a call through memory where the inliner's budget is spent.
                    [$name(low), $name(high)]
                }
                #[inline(always)]
                unsafe fn load(p: *const $t) -> Self {
                    // SAFETY: as above, and the caller's contract.
                    $name(unsafe { $load(p) })
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut $t) {
                    // SAFETY: as above, and the caller's contract.
                    unsafe { $store(p, self.0) };
                }
                #[inline(always)]
                unsafe fn load_first($p: *const $t, $n: usize) -> Self {
                    // SAFETY: as above; the mask has the first n lanes, which the caller vouches for.
                    $name(unsafe { $load_first })
                }
                #[inline(always)]
                unsafe fn store_first(self, $q: *mut $t, $m: usize) {
                    let $x = self.0;
                    // SAFETY: as above; the mask has the first n lanes, which the caller vouches for.
                    unsafe { $store_first }
                }
            }
        };
    }

    /// A mask of the first `n` of `LANES` bits.
    #[inline(always)]
    pub(crate) fn bits<const LANES: usize>(n: usize) -> u16 {
        (u32::MAX >> (32 - n.clamp(1, LANES))) as u16
    }

    /// A mask of the first `n` of eight 32-bit lanes.
    #[inline(always)]
    pub(crate) unsafe fn lanes32(n: usize) -> __m256i {
        // SAFETY: the caller runs on AVX2.
        unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
    }

    /// A mask of the first `n` of four 64-bit lanes.
    #[inline(always)]
    unsafe fn lanes64(n: usize) -> __m256i {
        // SAFETY: the caller runs on AVX2.
        unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
    }

    /// Interleaves the elements of two registers.
    #[inline(always)]
    unsafe fn interleave16(a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: the caller runs on AVX-512.
        unsafe {
            let first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let second = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            [
                _mm512_permutex2var_ps(a, first, b),
                _mm512_permutex2var_ps(a, second, b),
            ]
        }
    }

    vector!(
        Avx512,
        __m512,
        f32,
        16,
        _mm512_set1_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_mul_ps,
        _mm512_max_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        |p, n| _mm512_maskz_loadu_ps(bits::<16>(n), p),
        |x, q, m| _mm512_mask_storeu_ps(q, bits::<16>(m), x),
        |a, b| interleave16(a, b)
    );
    vector!(
        Avx512,
        __m512d,
        f64,
        8,
        _mm512_set1_pd,
        _mm512_fmadd_pd,
        _mm512_add_pd,
        _mm512_sub_pd,
        _mm512_mul_pd,
        _mm512_max_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        |p, n| _mm512_maskz_loadu_pd(bits::<8>(n) as u8, p),
        |x, q, m| _mm512_mask_storeu_pd(q, bits::<8>(m) as u8, x),
        |a, b| {
            let first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
            let second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
            [
                _mm512_permutex2var_pd(a, first, b),
                _mm512_permutex2var_pd(a, second, b),
            ]
        }
    );
    /// A vector register of AVX-512, whose products are those of pairs of bfloat16: a word of an operand is two of them.
    #[derive(Clone, Copy)]
    pub(crate) struct Bf16Pairs<R>(pub(crate) R);

    /// `c + a₀·b₀ + a₁·b₁` in every lane, rounded to the nearest f32 after each addition; subnormal operands and results are
    /// zeros.
    #[inline(always)]
    unsafe fn dot_pairs(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the caller runs on AVX-512 with its bfloat16 instructions; both types are registers of 512 bits.
        unsafe {
            let (a, b) = (
                std::mem::transmute::<__m512, __m512bh>(a),
                std::mem::transmute::<__m512, __m512bh>(b),
            );
            _mm512_dpbf16_ps(c, a, b)
        }
    }

    vector!(
        Bf16Pairs,
        __m512,
        f32,
        16,
        _mm512_set1_ps,
        dot_pairs,
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_mul_ps,
        _mm512_max_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        |p, n| _mm512_maskz_loadu_ps(bits::<16>(n), p),
        |x, q, m| _mm512_mask_storeu_ps(q, bits::<16>(m), x),
        |a, b| interleave16(a, b)
    );
    vector!(
        Avx2,
        __m256,
        f32,
        8,
        _mm256_set1_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_mul_ps,
        _mm256_max_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        |p, n| _mm256_maskload_ps(p, lanes32(n)),
        |x, q, m| _mm256_maskstore_ps(q, lanes32(m), x),
        |a, b| {
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            [
                _mm256_permute2f128_ps::<0x20>(low, high),
                _mm256_permute2f128_ps::<0x31>(low, high),
            ]
        }
    );
    vector!(
        Avx2,
        __m256d,
        f64,
        4,
        _mm256_set1_pd,
        _mm256_fmadd_pd,
        _mm256_add_pd,
        _mm256_sub_pd,
        _mm256_mul_pd,
        _mm256_max_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        |p, n| _mm256_maskload_pd(p, lanes64(n)),
        |x, q, m| _mm256_maskstore_pd(q, lanes64(m), x),
        |a, b| {
            let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            [
                _mm256_permute2f128_pd::<0x20>(low, high),
                _mm256_permute2f128_pd::<0x31>(low, high),
            ]
        }
    );
}
