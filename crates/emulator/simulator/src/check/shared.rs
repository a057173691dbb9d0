//! The history of a block's shared memory.

use super::order::{Manner, Order, Record};

/// The fault of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Nothing has written the bytes that are read. If another thread writes them before the next barrier, that is a race.
    Unwritten,
    /// A `cp.async` is still filling the bytes.
    Unwaited(Record),
    /// A `wgmma` may still read the bytes that are written.
    UnderWay(Record),
    /// A `wgmma` reads what this write wrote, and no fence lies between.
    Proxy(Record),
    /// The access and this write have no order.
    Write(Record),
    /// The access and this read have no order.
    Read(Record),
}

impl Wrong {
    /// The pc of the other access, where there is one.
    pub(super) fn other(self) -> u32 {
        match self {
            Wrong::Unwritten => 0,
            Wrong::Unwaited(r) | Wrong::UnderWay(r) | Wrong::Proxy(r) | Wrong::Write(r) | Wrong::Read(r) => r.low(),
        }
    }
}

/// The last write and two reads since then of a few bytes.
type Cell = [Record; 3];

/// One cell for as many bytes as the smallest access of the kernel has. A record's own bits are the pc.
#[derive(Debug, Default)]
pub(super) struct SharedCells {
    cells: Vec<[u64; 3]>,
}

/// The thread and the instruction of an access, and its manner.
#[derive(Clone, Copy)]
pub(super) struct Who {
    pub(super) thread: u32,
    pub(super) pc: u32,
    pub(super) manner: Manner,
}

impl Who {
    fn record(self, now: u32) -> Record {
        Record::new(now, self.thread, self.manner, self.pc)
    }

    fn strong(self) -> bool {
        self.manner == Manner::Strong
    }
}

impl SharedCells {
    /// Makes room; records that are there already stay, and are too old to matter.
    pub(super) fn reserve(&mut self, cells: usize) {
        if self.cells.len() < cells {
            self.cells = vec![[0; 3]; cells];
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.cells.fill([0; 3]);
    }

    pub(super) fn write_of(&self, cell: usize) -> Record {
        Record(self.cells[cell][0])
    }

    #[inline]
    fn get(&self, cell: usize) -> Cell {
        self.cells[cell].map(Record)
    }

    /// A thread reads a cell; `Ok(true)` when nothing has written it.
    #[inline]
    pub(super) fn read(&mut self, order: &Order, cell: usize, who: Who) -> Result<bool, Wrong> {
        let [write, first, second] = self.get(cell);
        check_write(order, write, who)?;
        let me = who.record(order.now);
        let free = |read: Record| (read.time() < order.floor || read.thread() == who.thread) && !under_way(order, read);
        if free(first) {
            self.cells[cell][1] = me.0;
        } else if free(second) || crowded(first, second, who.thread) && !under_way(order, second) {
            self.cells[cell][2] = me.0;
        }
        Ok(write.time() < order.start)
    }

    /// A warp, of which `who` has a thread, is about to read a cell by a `wgmma`; `Ok(true)` when nothing has written it.
    pub(super) fn read_by_product(&self, order: &Order, cell: usize, who: Who) -> Result<bool, Wrong> {
        let write = self.write_of(cell);
        check_write(order, write, who)?;
        if write.time() >= order.start && !order.crossed(write, who.thread) {
            return Err(Wrong::Proxy(write));
        }
        Ok(write.time() < order.start)
    }

    /// A `wgmma` reads a cell until it is waited for: warpgroups with even and odd numbers are told apart.
    pub(super) fn product(&mut self, order: &Order, cell: usize, who: Who) {
        self.cells[cell][1 + who.thread as usize / 128 % 2] = who.record(order.now).0;
    }

    /// The `wgmma` of this thread's warpgroup that was issued at a time does not read a cell any more.
    pub(super) fn product_done(&mut self, order: &Order, cell: usize, issued: u32, thread: u32) {
        let place = &mut self.cells[cell][1 + thread as usize / 128 % 2];
        let read = Record(*place);
        if read.pending() && read.time() == issued && read.thread() / 128 == thread / 128 {
            *place = Record::new(order.now, thread, Manner::Async, read.low()).0;
        }
    }

    /// A thread writes a cell, or begins to; `Ok(true)` when nothing had written it. `same` is true if another lane of
    /// the same instruction writes the same value.
    #[inline]
    pub(super) fn write(
        &mut self,
        order: &Order,
        cell: usize,
        who: Who,
        same: impl FnOnce(u32) -> bool,
    ) -> Result<bool, Wrong> {
        let [write, first, second] = self.get(cell);
        if write.time() >= order.floor || write.pending() {
            if write.time() == order.now && write.thread() != who.thread {
                if !(who.strong() && write.strong() || same(write.thread())) {
                    return Err(Wrong::Write(write));
                }
            } else {
                check_write(order, write, who)?;
            }
        }
        for read in [first, second] {
            if under_way(order, read) {
                return Err(Wrong::UnderWay(read));
            }
            // What a warpgroup has waited for is complete for all of its warps.
            if read.asynchronous() && read.thread() / 128 == who.thread / 128 {
                continue;
            }
            if !(order.before(read, who.thread) || who.strong() && read.strong()) {
                return Err(Wrong::Read(read));
            }
        }
        self.cells[cell] = [who.record(order.now).0, 0, 0];
        Ok(write.time() < order.start)
    }

    /// The copy into a cell that this thread issued is complete.
    pub(super) fn landed(&mut self, order: &Order, cell: usize, thread: u32, bulk: bool) {
        let write = self.write_of(cell);
        if write.pending() && write.thread() == thread {
            let manner = if bulk { Manner::Async } else { Manner::Plain };
            self.cells[cell][0] = Record::new(order.now, thread, manner, write.low()).0;
        }
    }
}

/// An error unless the last write is ordered before an access.
#[inline]
fn check_write(order: &Order, write: Record, who: Who) -> Result<(), Wrong> {
    if write.pending() && write.time() >= order.start {
        return Err(Wrong::Unwaited(write));
    }
    if order.before(write, who.thread) || who.strong() && write.strong() {
        return Ok(());
    }
    Err(Wrong::Write(write))
}

/// True if a recorded read is that of a `wgmma` which nothing has waited for.
fn under_way(order: &Order, read: Record) -> bool {
    read.pending() && read.time() >= order.start
}

/// True if both known readers belong to one warp, and this one to another: readers of two warps show more races.
pub(super) fn crowded(first: Record, second: Record, thread: u32) -> bool {
    first.thread() / 32 == second.thread() / 32 && first.thread() / 32 != thread / 32
}
