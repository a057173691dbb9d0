//! Copies and fills that the driver makes.

use super::Memory;

/// Copies `len` bytes; the shadow of the source, where it has one, travels along.
///
/// # Safety
/// Both spans are valid for the call: each lies in one live allocation or is the program's own memory, and nothing frees
/// them meanwhile.
pub unsafe fn copy(memory: &Memory, dst: u64, src: u64, len: u64) {
    if len == 0 {
        return;
    }
    // SAFETY: the caller promises both spans; `copy` allows them to overlap.
    unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, len as usize) };
    let Some(to) = memory.find(dst) else { return };
    let Some(shadow) = &to.shadow else { return };
    match memory.find(src).and_then(|r| Some((r.base, r.shadow?))) {
        None => to.mark(dst, len),
        Some((base, from)) => shadow.copy(dst - to.base, &from, src - base, len),
    }
}

/// Fills `count` elements of `width` (1, 2 or 4) bytes with the low bytes of `value`.
///
/// # Safety
/// As for [`copy`], for `count * width` bytes from `dst` on; `dst` is a multiple of `width`.
pub unsafe fn fill(memory: &Memory, dst: u64, value: u32, width: u64, count: u64) {
    for n in 0..count as usize {
        // SAFETY: the caller promises the span and its alignment.
        unsafe {
            match width {
                1 => *(dst as *mut u8).add(n) = value as u8,
                2 => *(dst as *mut u16).add(n) = value as u16,
                _ => *(dst as *mut u32).add(n) = value,
            }
        }
    }
    if let Some(range) = memory.find(dst) {
        range.mark(dst, count * width);
    }
}
