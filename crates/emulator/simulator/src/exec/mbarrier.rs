//! `mbarrier`: barriers in shared memory, and the threads that wait for their phases.

use super::bulk;
use super::control::Stop;
use crate::FaultKind;
use crate::machine::{Bulk, Group, Inst, MOST_ARRIVALS, Mbarrier, Mbarriers, Run, State, Warp, lanes};

/// Bits of the flags, above those of an access.
pub(crate) mod mbarrier_flags {
    /// Arrives.
    pub(crate) const ARRIVE: u32 = 1 << 16;
    /// Waits for the phase of a parity rather than for the one after a state.
    pub(crate) const PARITY: u32 = 1 << 17;
    /// `cp.async.mbarrier.arrive` without `.noinc`: the arrival is one more than was expected.
    pub(crate) const MORE: u32 = 1 << 18;
}
use mbarrier_flags::{ARRIVE, MORE, PARITY};

impl Warp {
    /// The barriers of the block.
    pub(super) fn mbarriers(&mut self) -> &mut Mbarriers {
        // SAFETY: the block, which owns them, runs its warps one after the other; the reference is used within one handler.
        unsafe { &mut *self.mbarriers }
    }

    /// Changes the barrier at an offset; a fault where there is none, or for the message of the change.
    pub(super) fn at_mbarrier<T>(
        &mut self,
        lane: usize,
        offset: u32,
        change: impl FnOnce(&mut Mbarrier) -> Result<T, String>,
    ) -> Option<T> {
        let none = || format!("at {offset:#x} of shared memory is no mbarrier: it was not initialised");
        let mbarriers = self.mbarriers();
        mbarriers.events += 1;
        match mbarriers.all.get_mut(&offset).ok_or_else(none).and_then(change) {
            Ok(value) => Some(value),
            Err(message) => {
                self.fail(FaultKind::Barrier, lane, message);
                None
            }
        }
    }

    /// The offsets that the lanes name; `None` after a fault.
    ///
    /// # Safety
    /// As for a [`crate::machine::Handler`].
    unsafe fn offsets(&mut self, i: &Inst) -> Option<[u32; 32]> {
        // SAFETY: the caller's contract.
        let found = unsafe { (i.locate)(self, i) };
        let base = self.shared as u64;
        found.then(|| self.pointers.map(|p| p.wrapping_sub(base) as u32))
    }
}

/// `mbarrier.init [a], b`.
pub(crate) unsafe fn init(w: &mut Warp, i: &Inst) {
    // SAFETY: `b` is a row of u32 (`decode`).
    let (Some(offsets), count) = (unsafe { (w.offsets(i), *w.row::<[u32; 32]>(i.b)) }) else {
        return;
    };
    for l in lanes(w.mask) {
        if !(1..=MOST_ARRIVALS).contains(&count[l]) {
            let message = format!("an mbarrier for {} arrivals; 1 to {MOST_ARRIVALS} can be", count[l]);
            return w.fail(FaultKind::Barrier, l, message);
        }
        w.mbarriers().all.insert(offsets[l], Mbarrier::new(count[l]));
    }
}

/// `mbarrier.inval [a]`.
pub(crate) unsafe fn invalidate(w: &mut Warp, i: &Inst) {
    // SAFETY: as for `offsets`.
    let Some(offsets) = (unsafe { w.offsets(i) }) else {
        return;
    };
    for l in lanes(w.mask) {
        if w.at_mbarrier(l, offsets[l], |_| Ok(())).is_none() {
            return;
        }
        w.mbarriers().all.remove(&offsets[l]);
    }
}

/// `mbarrier.arrive d, [a], b` and `mbarrier.arrive.expect_tx d, [a], c`: `b` arrivals, before which `c` bytes are expected.
/// The state `d` is the number of phases before it.
pub(crate) unsafe fn arrive(w: &mut Warp, i: &Inst) {
    // SAFETY: as for `offsets`; `b` and `c` are rows of u32 or nothing, `d` one of u64 (`decode`).
    unsafe {
        let Some(offsets) = w.offsets(i) else { return };
        for l in lanes(w.mask) {
            let count = match i.flags & ARRIVE {
                0 => 0,
                _ if i.b.is_some() => *w.row::<u32>(i.b).add(l),
                _ => 1,
            };
            let bytes = if i.c.is_some() { *w.row::<u32>(i.c).add(l) } else { 0 };
            let before = w.at_mbarrier(l, offsets[l], |at| {
                let before = at.phases;
                at.arrive(count, bytes).map(|()| before)
            });
            let Some(before) = before else { return };
            if i.d.is_some() {
                *w.row::<u64>(i.d).add(l) = before;
            }
        }
    }
}

/// The lanes whose phase is complete, once the copies that the barrier waits for have been made; `None` after a fault.
unsafe fn complete(w: &mut Warp, i: &Inst) -> Option<u32> {
    // SAFETY: as for `offsets`; `b` is a row of u32 for a parity and of u64 for a state (`decode`).
    unsafe {
        let offsets = w.offsets(i)?;
        let mut done = 0;
        for l in lanes(w.mask) {
            let (b, parity) = (i.b, i.flags & PARITY != 0);
            let phase = if parity {
                u64::from(*w.row::<u32>(b).add(l) & 1)
            } else {
                *w.row::<u64>(b).add(l)
            };
            let over = |at: &Mbarrier| {
                if parity {
                    at.phases & 1 != phase
                } else {
                    at.phases > phase
                }
            };
            let known = w.mbarriers().all.get(&offsets[l]).copied();
            if known.is_some_and(|at| !over(&at)) {
                bulk::land_at(w, offsets[l]);
                if w.fault.is_some() {
                    return None;
                }
            }
            match w.mbarriers().all.get(&offsets[l]) {
                Some(at) if over(at) => done |= 1 << l,
                Some(_) => {}
                None => {
                    w.at_mbarrier(l, offsets[l], |_| Ok(()))?;
                }
            }
        }
        if done != 0
            && let Some(mut observer) = w.observer
        {
            // The block's observer lives as long as its warps run, on this thread alone.
            observer.as_mut().phase_passed(w);
        }
        Some(done)
    }
}

/// `mbarrier.test_wait d, [a], b`.
pub(crate) unsafe fn test_wait(w: &mut Warp, i: &Inst) {
    // SAFETY: as for `complete`; `d` is a predicate.
    unsafe {
        let Some(done) = complete(w, i) else { return };
        w.set_predicate(i.d, done);
        if done != w.mask {
            // It will ask again: others should have a turn before.
            w.fuel = w.fuel.min(2);
        }
    }
}

impl Warp {
    /// `mbarrier.try_wait d, [a], b`: lanes wait until the phase is complete, however long that takes.
    pub(super) fn try_wait(&mut self, inst: &Inst) -> Option<Stop> {
        self.pass_by();
        if self.mask != 0 {
            // SAFETY: as for `complete`; `d` is a predicate.
            let waiting = unsafe {
                let Some(done) = complete(self, inst) else {
                    return Some(Stop::Fault);
                };
                let waiting = self.mask & !done;
                self.mask = done;
                self.set_predicate(inst.d, u32::MAX);
                waiting
            };
            if waiting != 0 {
                self.groups.push(Group {
                    mask: waiting,
                    state: State::Phase,
                    ..self.group
                });
                self.group.mask &= !waiting;
            }
        }
        self.group.pc += 1;
        self.next()
    }

    /// Lets lanes that wait for a phase look again, if something has happened since they looked last.
    pub(super) fn look_at_phases(&mut self) {
        let events = self.mbarriers().events;
        if events != self.heard {
            self.heard = events;
            for group in self.groups.iter_mut().filter(|g| g.state == State::Phase) {
                group.state = State::Ready;
            }
        }
    }
}

/// `cp.async.mbarrier.arrive [a]`: an arrival of each lane when its `cp.async` so far are complete.
pub(crate) unsafe fn arrive_after_copies(w: &mut Warp, i: &Inst) {
    // SAFETY: as for `offsets`.
    let Some(offsets) = (unsafe { w.offsets(i) }) else {
        return;
    };
    for l in lanes(w.mask) {
        let expect = |at: &mut Mbarrier| if i.flags & MORE != 0 { at.expect() } else { Ok(()) };
        if w.at_mbarrier(l, offsets[l], expect).is_none() {
            return;
        }
        let base = w.shared as u64;
        let pending = std::mem::take(&mut w.copies.pending);
        let (mine, others): (Vec<_>, Vec<_>) = pending.into_iter().partition(|c| c.lane == l as u32);
        w.copies.pending = others;
        let runs = mine.iter().map(|c| Run {
            from: c.from,
            lead: 0,
            read: c.read,
            to: (c.to - base) as u32,
            len: c.size,
        });
        let bulk = Bulk {
            barrier: offsets[l],
            thread: w.index * 32 + l as u32,
            runs: runs.collect(),
            swizzle: 0,
            bulk: false,
        };
        w.mbarriers().under_way.push(bulk);
    }
}
