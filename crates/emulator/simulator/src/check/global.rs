//! The history of global memory in one launch, which blocks on several threads share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::order::{Manner, Order, Record};
use super::shared::{Who, Wrong, crowded};
use crate::memory::Range;
use crate::sync::lock;

/// Cells of a page.
pub(super) const PAGE: usize = 256;

/// The last write and two reads of a few bytes. A record's own bits are the number of its block, from 1 on.
///
/// Blocks that touch one cell at the same moment may lose a record, never invent one: at worst a race is not seen.
#[derive(Default)]
pub(super) struct Cell {
    write: AtomicU64,
    reads: [AtomicU64; 2],
    /// The pcs of the three accesses.
    places: [AtomicU32; 3],
}

/// The cells of as many bytes as `PAGE` cells have.
pub(super) struct Page {
    cells: [Cell; PAGE],
}

/// Every page that the launch has touched, by number.
#[derive(Default)]
pub(super) struct Pages {
    shards: [Mutex<HashMap<u64, Arc<Page>>>; 16],
    /// For each block, the time of its last fence; made at the first.
    fences: OnceLock<Box<[AtomicU32]>>,
}

/// A finding, and the pc of the other access.
pub(super) type Found = (Wrong, u32);

/// The block that makes an access.
#[derive(Clone, Copy)]
pub(super) struct Me {
    /// Its number in the launch, from 1 on.
    pub(super) block: u32,
    /// True if one of its threads made an atomic access or a strong read.
    pub(super) acquired: bool,
}

impl Pages {
    pub(super) fn page(&self, number: u64) -> Arc<Page> {
        let shard = &self.shards[number as usize % 16];
        let mut map = lock(shard);
        let fresh = || {
            Arc::new(Page {
                cells: std::array::from_fn(|_| Cell::default()),
            })
        };
        Arc::clone(map.entry(number).or_insert_with(fresh))
    }

    /// A block has made a fence, at this time of its own.
    pub(super) fn fence(&self, block: u32, blocks: u32, now: u32) {
        let fences = self
            .fences
            .get_or_init(|| (0..blocks).map(|_| AtomicU32::new(0)).collect());
        if let Some(fence) = fences.get(block as usize - 1) {
            fence.store(now, Ordering::Release);
        }
    }

    /// True if an access of another block, or of this one, comes before the access in progress of `thread` of this one.
    #[inline]
    fn before(&self, order: &Order, me: Me, record: Record, thread: u32) -> bool {
        if record.0 == 0 {
            return true;
        }
        if record.low() == me.block {
            return order.before(record, thread);
        }
        self.published(me, record)
    }

    /// True if another block's access may be known to this one: it was strong, or a fence followed it, and this block made
    /// an atomic access or a strong read, which may have seen a flag or a count. Whether it did cannot be told here, so it
    /// is assumed.
    #[cold]
    fn published(&self, me: Me, record: Record) -> bool {
        let Some(fences) = self.fences.get() else { return false };
        let fence = fences.get(record.low() as usize - 1);
        me.acquired && (record.strong() || fence.is_some_and(|f| f.load(Ordering::Acquire) > record.time()))
    }

    /// A thread reads a cell. `Ok(true)` when the launch had not touched it before.
    #[inline]
    pub(super) fn read(&self, order: &Order, me: Me, cell: &Cell, who: Who) -> Result<bool, Found> {
        let write = Record(cell.write.load(Ordering::Relaxed));
        let mine = Record::new(order.now, who.thread, who.manner, me.block);
        let [first, second] = [0, 1].map(|n| Record(cell.reads[n].load(Ordering::Relaxed)));
        let ours = |r: Record| r.low() == me.block;
        let replaceable = |r: Record| r.0 == 0 || ours(r) && (r.thread() == who.thread || r.time() < order.floor);
        let slot = if replaceable(first) {
            Some(0)
        } else if replaceable(second)
            || !ours(first) && second.low() == first.low()
            || ours(first) && ours(second) && crowded(first, second, who.thread)
        {
            Some(1)
        } else {
            None
        };
        if let Some(n) = slot {
            cell.reads[n].store(mine.0, Ordering::Relaxed);
            cell.places[1 + n].store(who.pc, Ordering::Relaxed);
        }
        if !(who.manner == Manner::Strong && write.strong() || self.before(order, me, write, who.thread)) {
            return Err((Wrong::Write(write), cell.places[0].load(Ordering::Relaxed)));
        }
        Ok(write.0 | first.0 == 0)
    }

    /// A thread writes a cell. `Ok((fresh, unwritten))`: true if the launch had not touched it, and had not written it.
    #[inline]
    pub(super) fn write(
        &self,
        order: &Order,
        me: Me,
        cell: &Cell,
        who: Who,
        same: impl FnOnce(u32) -> bool,
    ) -> Result<(bool, bool), Found> {
        let mine = Record::new(order.now, who.thread, who.manner, me.block);
        let write = Record(cell.write.swap(mine.0, Ordering::Relaxed));
        let place = cell.places[0].load(Ordering::Relaxed);
        cell.places[0].store(who.pc, Ordering::Relaxed);
        let strong = who.manner == Manner::Strong;
        if !(strong && write.strong() || self.before(order, me, write, who.thread)) {
            let together = write.time() == order.now && write.low() == me.block;
            if !(together && same(write.thread())) {
                return Err((Wrong::Write(write), place));
            }
        }
        let mut read = 0;
        for n in 0..2 {
            let record = Record(cell.reads[n].load(Ordering::Relaxed));
            if record.0 == 0 {
                continue;
            }
            read |= record.0;
            if !(strong && record.strong() || self.before(order, me, record, who.thread)) {
                return Err((Wrong::Read(record), cell.places[1 + n].load(Ordering::Relaxed)));
            }
        }
        if read != 0 {
            cell.reads.iter().for_each(|r| r.store(0, Ordering::Relaxed));
        }
        Ok((write.0 | read == 0, write.0 == 0))
    }
}

impl Page {
    pub(super) fn cell(&self, n: usize) -> &Cell {
        &self.cells[n]
    }
}

/// Pages that a block finds without asking others.
pub(super) const RECENT: usize = 64;

/// The page with this number, from those that were used lately if it is there.
pub(super) fn page<'a>(recent: &'a mut [Option<(u64, Arc<Page>)>], pages: &Pages, number: u64) -> &'a Page {
    let recent = &mut recent[number as usize % RECENT];
    match recent {
        Some((n, _)) if *n == number => {}
        _ => *recent = None,
    }
    &recent.get_or_insert_with(|| (number, pages.page(number))).1
}

/// Reads the states of bytes, and marks them as written.
pub(super) fn states(range: &Range, address: u64, size: u32, reads: bool, writes: bool) -> Result<(), Wrong> {
    let Some(shadow) = &range.shadow else { return Ok(()) };
    let start = (address - range.base) as usize;
    let states = &shadow[start..(start + size as usize).min(range.len as usize)];
    let unwritten = reads && states.iter().any(|s| s.load(Ordering::Relaxed) == 0);
    if writes {
        states.iter().for_each(|s| s.store(1, Ordering::Relaxed));
    }
    if unwritten { Err(Wrong::Unwritten) } else { Ok(()) }
}
