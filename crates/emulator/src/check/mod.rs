//! What checker mode watches.
//!
//! `order` says which accesses of a block come before others, `shared` and `global` remember the last accesses of each
//! few bytes, `block` brings the two together, and `report` words the findings.
//!
//! The interpreter calls an [`Observer`] of each block, and only in checker mode: without it the handlers of memory
//! instructions are others, and the calls of rare instructions are behind one test. Everything that needs no history
//! is checked by the interpreter itself: addresses, divergent barriers, warp-wide instructions with wrong masks.

mod block;
mod global;
mod order;
mod report;
mod shared;

use crate::Fault;
use crate::exec::{Env, Space, Warp};

/// How an access touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Load,
    Store,
    /// A read and a write that no other atomic access comes between.
    Atomic,
    /// `ld.volatile`, `ld.relaxed`, `ld.acquire`: a read that may race.
    StrongLoad,
    /// `st.volatile`, `st.relaxed`, `st.release`: a write that may race.
    StrongStore,
    /// The write of a `cp.async`, when it is issued. The bytes change at its wait.
    AsyncStore,
}

/// One access of a warp; it was found in bounds and aligned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    pub(crate) kind: AccessKind,
    /// Where the addresses lie: never `Generic`, which is split into what the lanes mean.
    pub(crate) space: Space,
    /// The lanes that take part.
    pub(crate) mask: u32,
    /// Bytes of each lane.
    pub(crate) size: u32,
    /// Host addresses for global memory, offsets into the block's shared memory, offsets into the lane's local memory.
    /// Only those of the lanes in `mask` mean anything.
    pub(crate) addresses: &'a [u64; 32],
}

/// Watches one launch: what is shared by its blocks, which run on several threads.
pub(crate) trait Watch: Sync {
    /// The observer of the block with this index in the grid.
    fn block(&self, index: [u32; 3]) -> Box<dyn Observer>;
}

/// What watches a launch in checker mode. `env.ranges` are the allocations, with the shadow of each.
pub(crate) fn watch(env: &Env<'_>) -> Option<Box<dyn Watch>> {
    debug_assert!(env.check);
    Some(Box::new(block::LaunchWatch::new(env)))
}

/// Watches one block. Every call comes from the thread that runs the block, in the order of execution. The warp gives
/// `index`, `pc`, `block` and `thread(lane)`; a finding is reported with `warp.stop(fault)`, which stops
/// the launch.
pub(crate) trait Observer: Send {
    /// Before the bytes are read or written.
    fn access(&mut self, warp: &mut Warp, access: &Access<'_>);

    /// Every thread of the block that takes part in this barrier has arrived; all are released now, unless this finds a
    /// fault.
    fn barrier(&mut self) -> Option<Box<Fault>>;

    /// Lanes arrive at a `bar.warp.sync` with this member mask; those of `mask` are here, others may wait already.
    fn warp_barrier(&mut self, warp: &mut Warp, member: u32, mask: u32);

    /// The lanes of `mask` run a shuffle, a vote or another warp-wide instruction together.
    fn together(&mut self, warp: &mut Warp, member: u32, mask: u32);

    /// The waiting lane's `cp.async` into shared memory at this offset is complete.
    fn async_done(&mut self, warp: &mut Warp, lane: usize, shared: u64, size: u32);

    /// A fence (`membar`, `fence`) of the active lanes.
    fn fence(&mut self, warp: &mut Warp);

    /// All threads of the block have exited, or a fault stopped them. Returns the fault that is to be told.
    fn end(&mut self, fault: Option<Box<Fault>>) -> Option<Box<Fault>>;
}
