//! Barriers in shared memory (`mbarrier`), and the copies that arrive at them.

use std::collections::HashMap;

/// One barrier. Its bytes in shared memory are opaque to kernels: its state is kept here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mbarrier {
    /// Arrivals that complete a phase.
    expected: u32,
    /// Arrivals that are missing.
    pending: u32,
    /// Bytes that are missing.
    bytes: i64,
    /// Phases that are complete.
    pub(crate) phases: u64,
}

/// The most arrivals, and the most bytes, of one phase (PTX ISA, "mbarrier").
pub(crate) const MOST: u32 = (1 << 20) - 1;

impl Mbarrier {
    pub(crate) fn new(expected: u32) -> Mbarrier {
        Mbarrier {
            expected,
            pending: expected,
            bytes: 0,
            phases: 0,
        }
    }

    /// Counts arrivals and bytes that are to come; a message if there are too many.
    pub(crate) fn arrive(&mut self, count: u32, bytes: u32) -> Result<(), String> {
        self.bytes += i64::from(bytes);
        if count > self.pending {
            return Err(format!(
                "{count} arrivals at an mbarrier that waits for {}",
                self.pending
            ));
        }
        if self.bytes > i64::from(MOST) {
            return Err(format!(
                "an mbarrier that waits for {} bytes; {MOST} can be",
                self.bytes
            ));
        }
        self.pending -= count;
        self.settle();
        Ok(())
    }

    /// One arrival more is to come in this phase.
    pub(crate) fn expect(&mut self) -> Result<(), String> {
        if self.pending == MOST {
            return Err(format!("an mbarrier that waits for more than {MOST} arrivals"));
        }
        self.pending += 1;
        Ok(())
    }

    /// Bytes have come.
    pub(crate) fn complete(&mut self, bytes: u32) -> Result<(), String> {
        self.bytes -= i64::from(bytes);
        if self.bytes < -i64::from(MOST) {
            return Err(format!(
                "an mbarrier at which {} bytes more came than it waits for",
                -self.bytes
            ));
        }
        self.settle();
        Ok(())
    }

    fn settle(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phases += 1;
            self.pending = self.expected;
        }
    }
}

/// A part of a copy: bytes that follow one another in shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The address of the source's first byte.
    pub(crate) from: u64,
    /// Zeros before what is read.
    pub(crate) lead: u32,
    /// Bytes that are read.
    pub(crate) read: u32,
    /// The offset in shared memory, before the swizzle.
    pub(crate) to: u32,
    /// All bytes; those after what is read are zero.
    pub(crate) len: u32,
}

/// A copy into shared memory, or several of one thread, that a barrier waits for.
#[derive(Debug)]
pub(crate) struct Bulk {
    /// The offset of the barrier.
    pub(crate) barrier: u32,
    /// The thread that issued it.
    pub(crate) thread: u32,
    pub(crate) runs: Vec<Run>,
    /// Bits of an address, into which those three places above are mixed.
    pub(crate) swizzle: u64,
    /// True for `cp.async.bulk`, whose bytes the barrier counts; false for copies of `cp.async`, for whose thread it is an
    /// arrival when all are complete.
    pub(crate) bulk: bool,
}

impl Bulk {
    pub(crate) fn bytes(&self) -> u32 {
        self.runs.iter().map(|run| run.len).sum()
    }
}

/// The barriers of a block.
#[derive(Debug, Default)]
pub(crate) struct Mbarriers {
    /// By their offsets in shared memory.
    pub(crate) all: HashMap<u32, Mbarrier>,
    /// Copies under way, in the order of their issue.
    pub(crate) under_way: Vec<Bulk>,
    /// Counts what waiting threads may wait for: they look again when it has grown.
    pub(crate) events: u64,
}

impl Mbarriers {
    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.under_way.clear();
        self.events = 0;
    }

    /// Takes the copies that must be made for a barrier: its own, and the `cp.async` that their threads issued before.
    pub(crate) fn due(&mut self, barrier: u32) -> Vec<Bulk> {
        let of = |b: &Bulk| b.barrier == barrier;
        let Some(last) = self.under_way.iter().rposition(of) else {
            return Vec::new();
        };
        let threads: Vec<u32> = self
            .under_way
            .iter()
            .filter(|b| of(b) && !b.bulk)
            .map(|b| b.thread)
            .collect();
        self.take(|n, b| of(b) || n < last && !b.bulk && threads.contains(&b.thread))
    }

    /// Takes the `cp.async` of a thread.
    pub(crate) fn due_of(&mut self, thread: u32) -> Vec<Bulk> {
        self.take(|_, b| !b.bulk && b.thread == thread)
    }

    fn take(&mut self, due: impl Fn(usize, &Bulk) -> bool) -> Vec<Bulk> {
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for (n, bulk) in std::mem::take(&mut self.under_way).into_iter().enumerate() {
            if due(n, &bulk) {
                taken.push(bulk)
            } else {
                kept.push(bulk)
            }
        }
        self.under_way = kept;
        taken
    }
}
