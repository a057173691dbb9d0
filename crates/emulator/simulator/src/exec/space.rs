//! Addresses: the host bytes that the lanes of an access name, and whether they may touch them.
//!
//! Global and constant addresses are host addresses. Shared and local ones are offsets; as generic addresses they lie
//! in windows far above any host address.

use super::lanes::vectors;
use super::survey::{Address, Window, survey};
use crate::FaultKind;
use crate::machine::{Access, AccessKind, Inst, Locate, Pattern, RECENT, Warp, access_flags, access_kind, lanes};
pub(crate) use kiln_ptx::Space;

/// The first generic address of shared memory.
pub(crate) const SHARED: u64 = 1 << 56;
/// The first generic address of local memory.
pub(crate) const LOCAL: u64 = 2 << 56;
/// The first generic address of kernel parameters.
pub(crate) const PARAM: u64 = 3 << 56;
const WINDOW: u64 = 0xff << 56;

/// The [`Locate`] of instructions that access nothing.
pub(crate) unsafe fn nowhere(_: &mut Warp, _: &Inst) -> bool {
    true
}

/// The function that locates accesses to a space whose address operand has 64 (`wide`) or 32 bits.
pub(crate) fn locate(space: Space, wide: bool, observed: bool) -> Locate {
    macro_rules! pick {
        ($plain:ident, $vector:ident, $($g:tt),*) => {
            if vectors() { $vector::<$($g),*> } else { $plain::<$($g),*> }
        };
    }
    match (space, wide, observed) {
        (Space::Shared, true, false) => pick!(shared_plain, shared_vector, u64, false),
        (Space::Shared, true, true) => pick!(shared_plain, shared_vector, u64, true),
        (Space::Shared, false, false) => pick!(shared_plain, shared_vector, u32, false),
        (Space::Shared, false, true) => pick!(shared_plain, shared_vector, u32, true),
        (Space::Global | Space::Const, _, false) => pick!(global_plain, global_vector, false),
        (Space::Global | Space::Const, _, true) => pick!(global_plain, global_vector, true),
        (Space::Local, ..) => local,
        (Space::Param, ..) => pick!(param_plain, param_vector,),
        (Space::Generic, ..) => generic,
    }
}

/// As [`locate`], for reads that may see another block's writes, and so may be part of waiting for them: they set a mark.
pub(crate) fn locate_polled(space: Space, wide: bool, observed: bool) -> Locate {
    match (space, observed, vectors()) {
        (Space::Global, false, false) => polled_plain::<false>,
        (Space::Global, true, false) => polled_plain::<true>,
        (Space::Global, false, true) => polled_vector::<false>,
        (Space::Global, true, true) => polled_vector::<true>,
        (Space::Generic, ..) => generic_polled,
        _ => locate(space, wide, observed),
    }
}

macro_rules! both {
    ($plain:ident, $vector:ident, $body:ident, [$($g:tt)*], ($($use:tt),*)) => {
        unsafe fn $plain<$($g)*>(w: &mut Warp, i: &Inst) -> bool {
            // SAFETY: the caller's contract (`Handler`).
            unsafe { $body::<$($use,)* false>(w, i) }
        }
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt"))]
        unsafe fn $vector<$($g)*>(w: &mut Warp, i: &Inst) -> bool {
            // SAFETY: the caller's contract (`Handler`); `vectors` found the features.
            unsafe { $body::<$($use,)* true>(w, i) }
        }
    };
}
both!(global_plain, global_vector, global, [const OBSERVED: bool], (OBSERVED));
both!(polled_plain, polled_vector, polled, [const OBSERVED: bool], (OBSERVED));
both!(param_plain, param_vector, param, [], ());
both!(shared_plain, shared_vector, shared, [A: Address, const OBSERVED: bool], (A, OBSERVED));

#[inline(always)]
unsafe fn global<const OBSERVED: bool, const VECTOR: bool>(w: &mut Warp, i: &Inst) -> bool {
    let (base, len) = w.recent[w.pc as usize % RECENT];
    // SAFETY: `a` is a row of u64 (`decode`).
    let fine = unsafe { survey::<u64, VECTOR>(w, i, Window { base, len, host: 0 }) };
    if !fine && !global_slow(w, i) {
        return false;
    }
    if OBSERVED {
        observe(w, i, Space::Global, w.mask, 0)
    } else {
        true
    }
}

#[inline(always)]
unsafe fn polled<const OBSERVED: bool, const VECTOR: bool>(w: &mut Warp, i: &Inst) -> bool {
    w.polled = true;
    // SAFETY: the caller's contract.
    unsafe { global::<OBSERVED, VECTOR>(w, i) }
}

/// Looks every active lane's address up; remembers the last range.
#[cold]
#[inline(never)]
fn global_slow(w: &mut Warp, i: &Inst) -> bool {
    let size = u64::from(i.flags & 0xff);
    for l in lanes(w.mask) {
        if !find_global(w, l, w.pointers[l], size, i.flags) {
            return false;
        }
    }
    true
}

/// True if a lane may touch `size` bytes at a global address; a fault when it may not.
pub(crate) fn find_global(w: &mut Warp, lane: usize, address: u64, size: u64, flags: u32) -> bool {
    reach(w, lane, address, size, flags) && aligned(w, lane, address, size, flags)
}

/// As [`find_global`], for any number of bytes at any address.
pub(crate) fn reach(w: &mut Warp, lane: usize, address: u64, size: u64, flags: u32) -> bool {
    let recent = w.pc as usize % RECENT;
    let within = |(base, len): (u64, u64)| address.wrapping_sub(base) < len && len - (address - base) >= size;
    if !within(w.recent[recent]) {
        let range = w.env().ranges.find(address).map(|r| (r.base, r.len));
        match range.filter(|r| within(*r)) {
            Some(range) => w.recent[recent] = range,
            None => {
                let message = describe(w, address, size, flags);
                w.fail(FaultKind::IllegalAddress, lane, message);
                return false;
            }
        }
    }
    true
}

fn aligned(w: &mut Warp, lane: usize, address: u64, size: u64, flags: u32) -> bool {
    if address & (size - 1) != 0 {
        let verb = verb(flags);
        w.fail(
            FaultKind::Misaligned,
            lane,
            format!("misaligned {verb} of {size} bytes at {address:#x}"),
        );
        return false;
    }
    true
}

fn verb(flags: u32) -> &'static str {
    match access_kind(flags) {
        AccessKind::Load | AccessKind::Guess | AccessKind::StrongLoad => "read",
        AccessKind::Store | AccessKind::StrongStore | AccessKind::AsyncStore => "write",
        AccessKind::Atomic => "atomic access",
    }
}

#[cold]
fn describe(w: &Warp, address: u64, size: u64, flags: u32) -> String {
    let (verb, ranges) = (verb(flags), &w.env().ranges);
    let freed = ranges.was_freed(address);
    let what = if freed { "use after free:" } else { "out-of-bounds" };
    let place = match ranges.find(address) {
        Some(r) => format!("across the end of allocation #{} ({} bytes)", r.id, r.len),
        None => ranges.describe(address),
    };
    format!("{what} {verb} of {size} bytes at {address:#x}: {place}")
}

#[inline(always)]
unsafe fn shared<A: Address, const OBSERVED: bool, const VECTOR: bool>(w: &mut Warp, i: &Inst) -> bool {
    let host = w.shared as u64;
    // SAFETY: `a` is a row of this width (`decode`).
    let fine = unsafe {
        survey::<A, VECTOR>(
            w,
            i,
            Window {
                base: 0,
                len: w.shared_len,
                host,
            },
        )
    };
    if !fine && !shared_slow(w, i) {
        return false;
    }
    if OBSERVED {
        observe(w, i, Space::Shared, w.mask, host)
    } else {
        true
    }
}

#[cold]
#[inline(never)]
fn shared_slow(w: &mut Warp, i: &Inst) -> bool {
    let (size, host) = (u64::from(i.flags & 0xff), w.shared as u64);
    lanes(w.mask).all(|l| find_shared(w, l, w.pointers[l].wrapping_sub(host), size, i.flags))
}

/// True if a lane may touch `size` bytes of shared memory at an offset; a fault when it may not.
pub(crate) fn find_shared(w: &mut Warp, lane: usize, offset: u64, size: u64, flags: u32) -> bool {
    if offset.checked_add(size).is_none_or(|end| end > w.shared_len) {
        let (verb, len) = (verb(flags), w.shared_len);
        let message = format!("out-of-bounds {verb} of {size} bytes at {offset:#x} of {len} bytes of shared memory");
        w.fail(FaultKind::IllegalAddress, lane, message);
        return false;
    }
    aligned(w, lane, offset, size, flags)
}

/// Turns a lane's offset into local memory into a pointer; a fault when it is outside.
fn find_local(w: &mut Warp, lane: usize, offset: u64, size: u64, flags: u32) -> bool {
    if offset.checked_add(size).is_none_or(|end| end > w.local_stride) {
        let verb = verb(flags);
        let message = format!("out-of-bounds {verb} of {size} bytes at {offset:#x} of local memory");
        w.fail(FaultKind::IllegalAddress, lane, message);
        return false;
    }
    if !aligned(w, lane, offset, size, flags) {
        return false;
    }
    w.pointers[lane] = w.local_base(lane) as u64 + offset;
    true
}

fn find_param(w: &mut Warp, lane: usize, offset: u64, size: u64, flags: u32) -> bool {
    let params = w.env().params;
    let reads = matches!(
        access_kind(flags),
        AccessKind::Load | AccessKind::Guess | AccessKind::StrongLoad
    );
    if !reads || offset.checked_add(size).is_none_or(|end| end > params.len() as u64) {
        let (verb, len) = (verb(flags), params.len());
        let message = format!("out-of-bounds {verb} of {size} bytes at {offset:#x} of {len} bytes of parameters");
        w.fail(FaultKind::IllegalAddress, lane, message);
        return false;
    }
    w.pointers[lane] = params.as_ptr() as u64 + offset;
    aligned(w, lane, offset, size, flags)
}

unsafe fn local(w: &mut Warp, i: &Inst) -> bool {
    w.pattern = Pattern::Scattered;
    let size = u64::from(i.flags & 0xff);
    for l in lanes(w.mask) {
        // SAFETY: `a` is a row of u64 (`decode`).
        let address = unsafe { *w.row::<u64>(i.a).add(l) }.wrapping_add(i.imm as u64);
        if !find_local(w, l, address, size, i.flags) {
            return false;
        }
    }
    let base = w.local.as_ptr() as u64;
    !w.env().observed || observe(w, i, Space::Local, w.mask, base)
}

#[inline(always)]
unsafe fn param<const VECTOR: bool>(w: &mut Warp, i: &Inst) -> bool {
    let params = w.env().params;
    let window = Window {
        base: 0,
        len: params.len() as u64,
        host: params.as_ptr() as u64,
    };
    let loads = access_kind(i.flags) == AccessKind::Load;
    // SAFETY: `a` is a row of u64 (`decode`).
    loads && unsafe { survey::<u64, VECTOR>(w, i, window) } || param_slow(w, i)
}

#[cold]
#[inline(never)]
fn param_slow(w: &mut Warp, i: &Inst) -> bool {
    w.pattern = Pattern::Scattered;
    let size = u64::from(i.flags & 0xff);
    for l in lanes(w.mask) {
        // SAFETY: `a` is a row of u64 (`decode`).
        let address = unsafe { *w.row::<u64>(i.a).add(l) }.wrapping_add(i.imm as u64);
        if !find_param(w, l, address, size, i.flags) {
            return false;
        }
    }
    true
}

unsafe fn generic_polled(w: &mut Warp, i: &Inst) -> bool {
    w.polled = true;
    // SAFETY: the caller's contract.
    unsafe { generic(w, i) }
}

unsafe fn generic(w: &mut Warp, i: &Inst) -> bool {
    let observed = w.env().observed;
    let size = u64::from(i.flags & 0xff);
    // SAFETY: `a` is a row of u64 (`decode`).
    let a = unsafe { *w.row::<[u64; 32]>(i.a) };
    let (mut shared_lanes, mut local_lanes, mut global_lanes) = (0u32, 0u32, 0u32);
    for l in lanes(w.mask) {
        match a[l].wrapping_add(i.imm as u64) & WINDOW {
            SHARED => shared_lanes |= 1 << l,
            LOCAL => local_lanes |= 1 << l,
            PARAM => {}
            _ => global_lanes |= 1 << l,
        }
    }
    if global_lanes == w.mask {
        // SAFETY: as above.
        return unsafe {
            if observed {
                global::<true, false>(w, i)
            } else {
                global::<false, false>(w, i)
            }
        };
    }
    w.pattern = Pattern::Scattered;
    for l in lanes(w.mask) {
        if !find_generic(w, l, a[l].wrapping_add(i.imm as u64), size, i.flags) {
            return false;
        }
    }
    if observed {
        let (base, local) = (w.shared as u64, w.local.as_ptr() as u64);
        let parts = [
            (Space::Global, global_lanes, 0),
            (Space::Shared, shared_lanes, base),
            (Space::Local, local_lanes, local),
        ];
        return parts
            .into_iter()
            .all(|(space, mask, base)| mask == 0 || observe(w, i, space, mask, base));
    }
    true
}

/// Turns a lane's generic address into a pointer; a fault when it is outside of its space.
pub(crate) fn find_generic(w: &mut Warp, lane: usize, address: u64, size: u64, flags: u32) -> bool {
    let offset = address & !WINDOW;
    match address & WINDOW {
        SHARED => {
            w.pointers[lane] = w.shared as u64 + offset;
            find_shared(w, lane, offset, size, flags)
        }
        LOCAL => find_local(w, lane, offset, size, flags),
        PARAM => find_param(w, lane, offset, size, flags),
        _ => {
            w.pointers[lane] = address;
            find_global(w, lane, address, size, flags)
        }
    }
}

/// Passes an access to the observer; `false` when that ended the launch.
fn observe(w: &mut Warp, i: &Inst, space: Space, mask: u32, base: u64) -> bool {
    let Some(mut observer) = w.observer else { return true };
    let mut addresses = w.pointers;
    for (l, address) in addresses.iter_mut().enumerate() {
        let lane = if space == Space::Local {
            l as u64 * w.local_stride
        } else {
            0
        };
        *address = address.wrapping_sub(base).wrapping_sub(lane);
    }
    let access = Access {
        kind: access_kind(i.flags),
        space,
        mask,
        size: i.flags & 0xff,
        addresses: &addresses,
    };
    // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
    unsafe { observer.as_mut() }.access(w, &access);
    w.fault.is_none()
}

/// As [`find_global`], for the source of a `cp.async`: `read` bytes at an address that is a multiple of `size`.
pub(crate) fn find_copied(w: &mut Warp, lane: usize, address: u64, read: u64, size: u64) -> bool {
    let flags = access_flags(size as u32, AccessKind::Load);
    if address & (size - 1) != 0 {
        return aligned(w, lane, address, size, flags);
    }
    find_global(w, lane, address, 1, flags) && find_global(w, lane, address + read - 1, 1, flags)
}

/// Passes what the lanes of a `cp.async` read to the observer; `false` when that ended the launch.
pub(crate) fn observe_copied(w: &mut Warp, addresses: &[u64; 32], read: &[u32; 32]) -> bool {
    let Some(mut observer) = w.observer else { return true };
    let mask = lanes(w.mask).filter(|l| read[*l] > 0).fold(0, |mask, l| mask | 1 << l);
    if mask != 0 {
        // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
        unsafe { observer.as_mut() }.copied(w, mask, addresses, read);
    }
    w.fault.is_none()
}
