//! `cp.async`: copies that are made when they are waited for, so that a read too early sees the old bytes.

use super::bulk::land_of;
use super::space::{find_copied, observe_copied};
use crate::machine::{Copy, Inst, Warp, lanes};

/// `cp.async [a], [b], size, read;` with an optional count of bytes to read in `c`, or a predicate in `e` that makes
/// it zero. `d2`'s row keeps the global addresses while the shared ones are looked up.
pub(crate) unsafe fn issue(w: &mut Warp, i: &Inst) {
    // SAFETY: the operands have the widths that `decode` gave them; `locate` checks the shared addresses in `a`.
    unsafe {
        let size = i.flags & 0xff;
        let global = *w.row::<[u64; 32]>(i.b);
        let ignore = if i.e.is_some() { w.predicate(i.e) } else { 0 };
        if !(i.locate)(w, i) {
            return;
        }
        let to = w.pointers;
        let (mut addresses, mut sizes) = ([0; 32], [0; 32]);
        for l in lanes(w.mask) {
            let mut read = if i.c.is_some() {
                (*w.row::<u32>(i.c).add(l)).min(size)
            } else {
                size
            };
            if ignore >> l & 1 != 0 {
                read = 0;
            }
            let from = global[l].wrapping_add(i.list.0 as i32 as i64 as u64);
            // A read of zero bytes may have any address.
            if read > 0 && !find_copied(w, l, from, u64::from(read), u64::from(size)) {
                return;
            }
            (addresses[l], sizes[l]) = (from, read);
            let group = w.copies.committed[l];
            w.copies.pending.push(Copy {
                lane: l as u32,
                group,
                from,
                to: to[l],
                size,
                read,
            });
        }
        observe_copied(w, &addresses, &sizes);
    }
}

pub(crate) unsafe fn commit(w: &mut Warp, _: &Inst) {
    for l in lanes(w.mask) {
        w.copies.committed[l] += 1;
    }
}

/// `cp.async.wait_group imm` leaves that many groups under way; `wait_all` (-1) leaves none.
pub(crate) unsafe fn wait(w: &mut Warp, i: &Inst) {
    for lane in lanes(w.mask) {
        // What was handed to an mbarrier may be complete at any time.
        land_of(w, lane);
    }
    let mut pending = std::mem::take(&mut w.copies.pending);
    let committed = w.copies.committed;
    let mask = w.mask;
    let due = |c: &Copy| {
        let done = i.imm < 0 || i64::from(c.group) < i64::from(committed[c.lane as usize]) - i.imm;
        mask >> c.lane & 1 != 0 && done
    };
    if let Some(mut observer) = w.observer.filter(|_| w.env().stepped) {
        let bytes = |all: bool| {
            pending
                .iter()
                .filter(|c| all || !due(c))
                .map(|c| u64::from(c.size))
                .sum()
        };
        // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
        unsafe { observer.as_mut() }.waits(w, bytes(true), bytes(false));
    }
    for c in pending.iter().filter(|c| due(c)) {
        // SAFETY: both addresses were found in live memory when the copy was issued; the snapshot keeps it alive.
        unsafe {
            std::ptr::copy_nonoverlapping(c.from as *const u8, c.to as *mut u8, c.read as usize);
            std::ptr::write_bytes((c.to as *mut u8).add(c.read as usize), 0, (c.size - c.read) as usize);
        }
        if let Some(mut observer) = w.observer {
            let (offset, thread) = (c.to - w.shared as u64, w.index * 32 + c.lane);
            // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
            unsafe { observer.as_mut() }.async_done(thread, offset, c.size, false);
        }
    }
    pending.retain(|c| !due(c));
    w.copies.pending = pending;
}
