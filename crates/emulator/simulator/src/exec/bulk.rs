//! `cp.async.bulk`: copies into shared memory that arrive at a barrier. They are made when a thread waits for the barrier, so
//! that a read too early sees the old bytes.

use super::space::{find_generic, find_shared, reach};
use crate::FaultKind;
use crate::machine::{AccessKind, Bulk, Inst, Run, Warp, access_flags, lanes};
use crate::tensor_map::TensorMap;

/// The alignment of a place in shared memory that a tensor copy writes to.
const TENSOR_ALIGN: u64 = 128;
/// The unit of other copies.
const UNIT: u32 = 16;

/// `cp.async.bulk [a], [b], e, [c]`.
pub(crate) unsafe fn copy(w: &mut Warp, i: &Inst) {
    // SAFETY: `a`, `b` and `c` are rows of u64 and `e` one of u32 (`decode`).
    let (to, from, barrier, size) = unsafe {
        (
            *w.row::<[u64; 32]>(i.a),
            *w.row::<[u64; 32]>(i.b),
            *w.row::<[u64; 32]>(i.c),
            *w.row::<[u32; 32]>(i.e),
        )
    };
    for l in lanes(w.mask) {
        if !(to[l] | from[l] | u64::from(size[l])).is_multiple_of(u64::from(UNIT)) {
            let message = format!(
                "cp.async.bulk of {} bytes from {:#x} to {:#x}: all three must be multiples of {UNIT}",
                size[l], from[l], to[l]
            );
            return w.fail(FaultKind::Misaligned, l, message);
        }
        let run = Run {
            from: from[l],
            lead: 0,
            read: size[l],
            to: to[l] as u32,
            len: size[l],
        };
        if !issue(w, l, (to[l], barrier[l]), vec![run], 0) {
            return;
        }
    }
}

/// `cp.async.bulk.tensor [a], [b, {list}], [c]`.
pub(crate) unsafe fn tensor(w: &mut Warp, i: &Inst) {
    // SAFETY: `a`, `b` and `c` are rows of u64, the list holds rows of u32 (`decode`).
    unsafe {
        let (to, map, barrier) = (
            *w.row::<[u64; 32]>(i.a),
            *w.row::<[u64; 32]>(i.b),
            *w.row::<[u64; 32]>(i.c),
        );
        let list = w.list(i);
        for l in lanes(w.mask) {
            let place: Vec<i64> = list.iter().map(|slot| i64::from(*w.row::<i32>(*slot).add(l))).collect();
            let Some(map) = read_map(w, l, map[l], place.len()) else {
                return;
            };
            if !to[l].is_multiple_of(TENSOR_ALIGN) {
                let message = format!(
                    "a tensor copy to {:#x} of shared memory, no multiple of {TENSOR_ALIGN}",
                    to[l]
                );
                return w.fail(FaultKind::Misaligned, l, message);
            }
            let runs = map.runs(&place, to[l] as u32);
            if !issue(w, l, (to[l], barrier[l]), runs, map.swizzle_mask()) {
                return;
            }
        }
    }
}

/// The tensor map at a generic address; `None` after a fault.
fn read_map(w: &mut Warp, lane: usize, address: u64, rank: usize) -> Option<TensorMap> {
    if !address.is_multiple_of(64) {
        let message = format!("a tensor map at {address:#x}, no multiple of 64");
        w.fail(FaultKind::Misaligned, lane, message);
        return None;
    }
    let flags = access_flags(64, AccessKind::Load);
    let mut bytes = [0u8; 128];
    for (n, half) in bytes.chunks_exact_mut(64).enumerate() {
        if !find_generic(w, lane, address + 64 * n as u64, 64, flags) {
            return None;
        }
        // SAFETY: the 64 bytes were found in live memory.
        let found = unsafe { (w.pointers[lane] as *const [u8; 64]).read_unaligned() };
        half.copy_from_slice(&found);
    }
    let fail = |w: &mut Warp, message: String| {
        w.fail(FaultKind::IllegalAddress, lane, message);
        None
    };
    match TensorMap::decode(&bytes) {
        None => fail(w, format!("at {address:#x} is no tensor map")),
        Some(map) if map.rank() != rank => {
            let message = format!("{rank} coordinates for a tensor map of {} dimensions", map.rank());
            fail(w, message)
        }
        Some(map) => Some(map),
    }
}

/// Checks a copy, and notes it; `false` after a fault.
fn issue(w: &mut Warp, lane: usize, (to, barrier): (u64, u64), runs: Vec<Run>, swizzle: u64) -> bool {
    let bulk = Bulk {
        barrier: barrier as u32,
        thread: w.index * 32 + lane as u32,
        runs,
        swizzle,
        bulk: true,
    };
    let len = bulk.bytes();
    if to.checked_add(u64::from(len)).is_none_or(|end| end > w.shared_len) {
        let message = format!(
            "out-of-bounds write of {len} bytes at {to:#x} of {} bytes of shared memory",
            w.shared_len
        );
        w.fail(FaultKind::IllegalAddress, lane, message);
        return false;
    }
    if !find_shared(w, lane, barrier, 8, access_flags(8, AccessKind::Atomic)) {
        return false;
    }
    let flags = access_flags(UNIT, AccessKind::Load);
    for run in bulk.runs.iter().filter(|run| run.read > 0) {
        if !reach(w, lane, run.from, u64::from(run.read), flags) {
            return false;
        }
    }
    if w.at_mbarrier(lane, bulk.barrier, |_| Ok(())).is_none() {
        return false;
    }
    if let Some(mut observer) = w.observer {
        // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
        let observer = unsafe { observer.as_mut() };
        let (mut addresses, mut sizes) = ([0; 32], [0; 32]);
        for run in bulk.runs.iter().filter(|run| run.read > 0) {
            (addresses[lane], sizes[lane]) = (run.from, run.read);
            observer.copied(w, 1 << lane, &addresses, &sizes);
        }
        observer.bulk_issued(w, lane, to as u32, len);
    }
    w.mbarriers().under_way.push(bulk);
    w.fault.is_none()
}

/// Makes the copies that a barrier waits for.
pub(super) fn land_at(w: &mut Warp, barrier: u32) {
    let due = w.mbarriers().due(barrier);
    land(w, due);
}

/// Makes the copies of `cp.async` that a lane has handed to barriers.
pub(super) fn land_of(w: &mut Warp, lane: usize) {
    let thread = w.index * 32 + lane as u32;
    if !w.mbarriers().under_way.is_empty() {
        let due = w.mbarriers().due_of(thread);
        land(w, due);
    }
}

fn land(w: &mut Warp, due: Vec<Bulk>) {
    for bulk in due {
        for run in &bulk.runs {
            // SAFETY: source and destination were found in live memory when the copy was issued; the snapshot keeps it alive.
            unsafe { make(w.shared, run, bulk.swizzle) };
            if let Some(mut observer) = w.observer {
                // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
                let observer = unsafe { observer.as_mut() };
                observer.async_done(bulk.thread, u64::from(run.to), run.len, bulk.bulk);
            }
        }
        if let Some(mut observer) = w.observer {
            // SAFETY: as above.
            unsafe { observer.as_mut() }.async_arrived(bulk.thread);
        }
        let lane = bulk.thread as usize % 32;
        let arrived = w.at_mbarrier(lane, bulk.barrier, |at| {
            if bulk.bulk {
                at.complete(bulk.bytes())
            } else {
                at.arrive(1, 0)
            }
        });
        if arrived.is_none() {
            return;
        }
    }
}

/// Copies one run.
///
/// # Safety
/// The bytes that are read, and those of shared memory, are live.
unsafe fn make(shared: *mut u8, run: &Run, swizzle: u64) {
    let mut bytes = vec![0u8; run.len as usize];
    let part = &mut bytes[run.lead as usize..][..run.read as usize];
    // SAFETY: the caller's contract; the lengths are those of the parts.
    unsafe {
        std::ptr::copy_nonoverlapping(run.from as *const u8, part.as_mut_ptr(), part.len());
        if swizzle == 0 {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), shared.add(run.to as usize), bytes.len());
            return;
        }
        for (n, chunk) in bytes.chunks_exact(16).enumerate() {
            let at = u64::from(run.to) + 16 * n as u64;
            let at = at ^ (at >> 3 & swizzle);
            std::ptr::copy_nonoverlapping(chunk.as_ptr(), shared.add(at as usize), 16);
        }
    }
}
