//! The order of the accesses inside of one block.
//!
//! Time is a number that grows with every access and every synchronisation of the block. A record of an access keeps
//! its time; an access before a barrier is older than the barrier's time, and one comparison shows it.

use crate::machine::lanes;

/// One access that was made: its time, its thread, its manner, and 20 bits that its keeper chooses. Zero is no access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record(pub(super) u64);

/// The manner of a recorded access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Plain = 0,
    /// Atomic, volatile, or ordered by its scope: it may race with others of its kind.
    Strong = 1,
    /// A write by a `cp.async` that nothing has waited for, or a read by a `wgmma` that nothing has.
    Pending = 2,
    /// A write or a read by the asynchronous proxy that is complete.
    Async = 3,
}

/// The largest value of a record's own bits.
pub(super) const LOW: u32 = (1 << 20) - 1;

impl Record {
    pub(super) fn new(time: u32, thread: u32, manner: Manner, low: u32) -> Record {
        let low = u64::from(low.min(LOW));
        Record(u64::from(time) << 32 | u64::from(thread & 1023) << 22 | (manner as u64) << 20 | low)
    }

    pub(super) fn time(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn thread(self) -> u32 {
        (self.0 >> 22) as u32 & 1023
    }

    pub(super) fn strong(self) -> bool {
        self.0 >> 20 & 3 == Manner::Strong as u64
    }

    pub(super) fn pending(self) -> bool {
        self.0 >> 20 & 3 == Manner::Pending as u64
    }

    pub(super) fn asynchronous(self) -> bool {
        self.0 >> 20 & 3 == Manner::Async as u64
    }

    pub(super) fn low(self) -> u32 {
        self.0 as u32 & LOW
    }
}

/// The accesses that the lanes of a warp are ordered after.
#[derive(Debug, Default)]
struct WarpOrder {
    /// Accesses of the warp before this time come before the next access of any of its lanes.
    together: u32,
    /// `[l][m]`: accesses of lane m before this time come before the next access of lane l. None while only whole warps met.
    known: Option<Box<[[u32; 32]; 32]>>,
    /// Lanes that wait at a warp barrier.
    waiting: u32,
    /// The last fence, or ordered access, of one of its lanes.
    fence: u32,
    /// The last atomic access or strong read of one of its lanes.
    acquire: u32,
    /// The last `fence.proxy.async` of one of its lanes.
    proxy_fence: u32,
}

/// The order of one block; kept from block to block, so that no record has to be cleared: all are older.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The time of the access in progress.
    pub(super) now: u32,
    /// The time at which the block started.
    pub(super) start: u32,
    /// Accesses before this time come before the next access of any thread: there was a barrier.
    pub(super) floor: u32,
    /// True if some thread of the block made an ordered access or a fence.
    fenced: bool,
    warps: Vec<WarpOrder>,
}

impl Order {
    /// Begins a block; `false` when the time's number would overflow, and all records must be cleared first.
    pub(super) fn begin(&mut self, warps: usize) -> bool {
        let fits = self.now < 1 << 31;
        if !fits {
            *self = Order::default();
        }
        self.now += 1;
        (self.start, self.floor, self.fenced) = (self.now, self.now, false);
        self.warps.resize_with(self.warps.len().max(warps), WarpOrder::default);
        for warp in &mut self.warps {
            warp.waiting = 0;
        }
        fits
    }

    /// The time of a new access.
    pub(super) fn tick(&mut self) -> u32 {
        self.now += 1;
        self.now
    }

    /// Every thread has arrived.
    pub(super) fn barrier(&mut self) {
        self.floor = self.tick();
    }

    /// Lanes of a warp, of which `live` have not exited, have met.
    pub(super) fn meet(&mut self, warp: u32, mask: u32, live: u32) {
        let now = self.tick();
        let warp = &mut self.warps[warp as usize];
        if mask & live == live {
            warp.together = now;
            return;
        }
        let known = warp.known.get_or_insert_with(|| Box::new([[0; 32]; 32]));
        let mut all = [0; 32];
        for l in lanes(mask) {
            for (all, known) in all.iter_mut().zip(&known[l]) {
                *all = (*all).max(*known);
            }
        }
        for l in lanes(mask) {
            all[l] = now;
        }
        for l in lanes(mask) {
            known[l] = all;
        }
    }

    /// Lanes arrive at a warp barrier. Those of its mask that waited there already have done nothing since, so that all
    /// meet now.
    pub(super) fn arrive(&mut self, warp: u32, member: u32, mask: u32, live: u32) {
        let waiting = self.warps[warp as usize].waiting;
        let here = waiting & member | mask;
        self.meet(warp, here, live);
        let complete = member & live & !here == 0;
        self.warps[warp as usize].waiting = if complete { waiting & !here } else { waiting | mask };
    }

    /// A lane made a fence, or an access that releases.
    pub(super) fn fence(&mut self, warp: u32) {
        let now = self.tick();
        self.warps[warp as usize].fence = now;
        self.fenced = true;
    }

    /// A lane made an atomic access or a strong read.
    pub(super) fn acquire(&mut self, warp: u32) {
        self.warps[warp as usize].acquire = self.now;
    }

    /// A lane made a fence between its own accesses and asynchronous ones.
    pub(super) fn proxy_fence(&mut self, warp: u32) {
        let now = self.tick();
        self.warps[warp as usize].proxy_fence = now;
    }

    /// True if a fence lies between a recorded write and an asynchronous access of `thread` in progress.
    pub(super) fn crossed(&self, write: Record, thread: u32) -> bool {
        let after = |thread: u32| self.warps[thread as usize / 32].proxy_fence > write.time();
        write.asynchronous() || after(write.thread()) || after(thread)
    }

    /// True if a recorded access of this block comes before the access in progress of `thread`.
    #[inline]
    pub(super) fn before(&self, record: Record, thread: u32) -> bool {
        record.time() < self.floor || record.thread() == thread || self.before_by_warp(record, thread)
    }

    fn before_by_warp(&self, record: Record, thread: u32) -> bool {
        let (time, other) = (record.time(), record.thread());
        let (mine, theirs) = (&self.warps[thread as usize / 32], &self.warps[other as usize / 32]);
        let met = thread / 32 == other / 32
            && (time < mine.together
                || mine
                    .known
                    .as_ref()
                    .is_some_and(|k| time < k[thread as usize % 32][other as usize % 32]));
        let released = theirs.fence > time || record.strong() && self.fenced;
        met || released && mine.acquire > time
    }
}
