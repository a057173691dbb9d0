//! One pass over the addresses of an access, which checks bounds and alignment and finds the pattern in which they lie.

use crate::machine::{Inst, Pattern, Warp, lanes};

/// The range of addresses of a state space: an access may touch the `len` addresses from `base` on, and an address plus
/// `host` is a pointer.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) host: u64,
}

/// An address operand of 32 or 64 bits.
pub(crate) trait Address: Copy {
    /// The address `offset` bytes on, which wraps at the operand's own width.
    fn plus(self, offset: i64) -> u64;

    /// [`plus`](Address::plus) of four operands.
    ///
    /// # Safety
    /// The row holds four values from `row` on, and the processor has AVX2.
    #[cfg(target_arch = "x86_64")]
    unsafe fn four(row: *const Self, offset: i64) -> std::arch::x86_64::__m256i;
}

impl Address for u32 {
    #[inline(always)]
    fn plus(self, offset: i64) -> u64 {
        u64::from(self.wrapping_add(offset as u32))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn four(row: *const u32, offset: i64) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::{_mm_add_epi32, _mm_loadu_si128, _mm_set1_epi32, _mm256_cvtepu32_epi64};
        // SAFETY: the caller's contract.
        let a = unsafe { _mm_loadu_si128(row.cast()) };
        _mm256_cvtepu32_epi64(_mm_add_epi32(a, _mm_set1_epi32(offset as i32)))
    }
}

impl Address for u64 {
    #[inline(always)]
    fn plus(self, offset: i64) -> u64 {
        self.wrapping_add(offset as u64)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn four(row: *const u64, offset: i64) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::{_mm256_add_epi64, _mm256_loadu_si256, _mm256_set1_epi64x};
        // SAFETY: the caller's contract.
        let a = unsafe { _mm256_loadu_si256(row.cast()) };
        _mm256_add_epi64(a, _mm256_set1_epi64x(offset))
    }
}

/// Fills the pointers of the active lanes, and their pattern; true if all are aligned and inside the window. `VECTOR`
/// says that the processor has AVX2.
///
/// An access is inside when it is not before the base and the room left after it is not negative, as signed numbers.
///
/// # Safety
/// `a` is a row of A.
#[inline(always)]
pub(crate) unsafe fn survey<A: Address, const VECTOR: bool>(w: &mut Warp, i: &Inst, window: Window) -> bool {
    let size = u64::from(i.flags & 0xff);
    let limit = window.len.wrapping_sub(size);
    // SAFETY: the caller's contract.
    let a = unsafe { w.row::<A>(i.a) };
    w.pattern = Pattern::Scattered;
    let room = window.len >= size;
    #[cfg(target_arch = "x86_64")]
    if VECTOR && w.mask == u32::MAX {
        // SAFETY: the caller's contract; VECTOR says that AVX2 is there.
        return room & unsafe { whole_row(a, i.imm, size, limit, window, w) };
    }
    let (mut outside, mut bits) = (0u64, 0u64);
    for l in lanes(w.mask) {
        // SAFETY: the caller's contract.
        let p = unsafe { *a.add(l) }.plus(i.imm);
        let place = p.wrapping_sub(window.base);
        outside |= place | limit.wrapping_sub(place);
        bits |= p;
        w.pointers[l] = p.wrapping_add(window.host);
    }
    room && outside >> 63 == 0 && bits & (size - 1) == 0
}

/// `survey` for all lanes, four at a time.
///
/// # Safety
/// `a` is a row of A, and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn whole_row<A: Address>(a: *const A, offset: i64, size: u64, limit: u64, window: Window, w: &mut Warp) -> bool {
    use std::arch::x86_64::{
        _mm256_add_epi64, _mm256_castsi256_pd, _mm256_movemask_pd, _mm256_or_si256, _mm256_set_epi64x,
        _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_sub_epi64, _mm256_testz_si256,
        _mm256_xor_si256,
    };
    let all = |x: u64| _mm256_set1_epi64x(x as i64);
    // SAFETY: the caller's contract.
    let first = all(unsafe { *a }.plus(offset));
    let (base, limit, host, stride) = (all(window.base), all(limit), all(window.host), all(4 * size));
    let step = size as i64;
    let mut ramp = _mm256_add_epi64(first, _mm256_set_epi64x(3 * step, 2 * step, step, 0));
    let zero = _mm256_setzero_si256();
    let (mut outside, mut bits, mut apart, mut differ) = (zero, zero, zero, zero);
    for four in 0..8 {
        // SAFETY: rows hold 32 values.
        let p = unsafe { A::four(a.add(4 * four), offset) };
        let place = _mm256_sub_epi64(p, base);
        outside = _mm256_or_si256(outside, _mm256_or_si256(place, _mm256_sub_epi64(limit, place)));
        bits = _mm256_or_si256(bits, p);
        apart = _mm256_or_si256(apart, _mm256_xor_si256(p, ramp));
        differ = _mm256_or_si256(differ, _mm256_xor_si256(p, first));
        ramp = _mm256_add_epi64(ramp, stride);
        // SAFETY: there are 32 pointers.
        unsafe { _mm256_storeu_si256(w.pointers.as_mut_ptr().add(4 * four).cast(), _mm256_add_epi64(p, host)) };
    }
    if _mm256_testz_si256(apart, apart) == 1 {
        w.pattern = Pattern::Contiguous;
    } else if _mm256_testz_si256(differ, differ) == 1 {
        w.pattern = Pattern::Uniform;
    }
    let inside = _mm256_movemask_pd(_mm256_castsi256_pd(outside)) == 0;
    inside && _mm256_testz_si256(bits, all(size - 1)) == 1
}
