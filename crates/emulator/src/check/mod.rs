//! What checker mode watches.
//!
//! `order` says which accesses of a block come before others, `shared` and `global` remember the last accesses of each
//! few bytes, `local` what each thread wrote for itself, `block` brings them together, `report` words the findings, and
//! `findings` keeps one of each until the launch ends.
//!
//! The interpreter calls an [`Observer`] of each block, and only in checker mode: without it the handlers of memory
//! instructions are others, and the calls of rare instructions are behind one test. Everything that needs no history
//! is checked by the interpreter itself: addresses, divergent barriers, warp-wide instructions with wrong masks.

mod block;
mod findings;
mod global;
mod local;
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
    /// A plain read at an address where the function also compares and swaps: what it reads is a first guess, which the
    /// comparison proves or refutes, so it may race with atomic accesses.
    Guess,
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

    /// What was found in blocks up to the one with this number, counted in the grid's order.
    fn findings(&self, last: u64) -> Vec<Fault>;
}

/// What watches a launch in checker mode. `env.ranges` are the allocations, with the shadow of each.
pub(crate) fn watch(env: &Env<'_>) -> Option<Box<dyn Watch>> {
    debug_assert!(env.check);
    Some(Box::new(block::LaunchWatch::new(env)))
}

/// Watches one block. Every call comes from the thread that runs the block, in the order of execution. The warp gives
/// `index`, `pc`, `block` and `thread(lane)`. A finding does not stop the block: what follows may be wrong as well.
pub(crate) trait Observer: Send {
    /// Before the bytes are read or written.
    fn access(&mut self, warp: &mut Warp, access: &Access<'_>);

    /// Every thread of the block that takes part in this barrier has arrived; all are released now.
    fn barrier(&mut self);

    /// Lanes arrive at a `bar.warp.sync` with this member mask; those of `mask` are here, others may wait already.
    fn warp_barrier(&mut self, warp: &mut Warp, member: u32, mask: u32);

    /// The lanes of `mask` run a shuffle, a vote or another warp-wide instruction together.
    fn together(&mut self, warp: &mut Warp, member: u32, mask: u32);

    /// The waiting lane's `cp.async` into shared memory at this offset is complete.
    fn async_done(&mut self, warp: &mut Warp, lane: usize, shared: u64, size: u32);

    /// A fence (`membar`, `fence`) of the active lanes.
    fn fence(&mut self, warp: &mut Warp);

    /// The lanes of `mask` enter a function whose local memory is `len` bytes from `start` on.
    fn enter(&mut self, warp: &Warp, mask: u32, start: u32, len: u32);

    /// A call or a return copies bytes of the lanes of `mask` from one function's local memory to another's.
    fn pass(&mut self, warp: &Warp, mask: u32, from: u32, to: u32, len: u32);

    /// All threads of the block have exited, or a fault stopped them.
    fn end(&mut self);
}
