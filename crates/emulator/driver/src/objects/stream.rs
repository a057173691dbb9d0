//! Streams: queues of work.

use std::collections::VecDeque;

use super::capture::Joined;
use super::work::Work;
use crate::types::CUcontext;

pub(crate) const NON_BLOCKING: u32 = 1;
/// The priorities that a stream may have: the lower number goes first.
pub(crate) const PRIORITIES: (i32, i32) = (0, -5);

/// One stream.
pub(crate) struct Stream {
    pub(crate) context: CUcontext,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// True if it is ordered with the legacy stream, or is it.
    pub(crate) blocking: bool,
    pub(crate) legacy: bool,
    pub(crate) queue: VecDeque<Op>,
    /// The number of the work that some thread runs now.
    pub(crate) running: Option<u64>,
    /// True if that is a kernel that keeps the memory it can reach, whatever is freed meanwhile.
    pub(crate) keeps: bool,
    /// The number of the work that was issued last.
    pub(crate) last: u64,
    pub(crate) capture: Option<Joined>,
    pub(crate) destroyed: bool,
}

/// One piece of work in a stream.
pub(crate) struct Op {
    pub(crate) seq: u64,
    pub(crate) work: Work,
}

impl Stream {
    /// A stream with nothing in it.
    pub(crate) fn new(context: CUcontext, flags: u32, priority: i32, legacy: bool) -> Self {
        Self {
            context,
            flags,
            priority,
            blocking: flags & NON_BLOCKING == 0,
            legacy,
            queue: VecDeque::new(),
            running: None,
            keeps: false,
            last: 0,
            capture: None,
            destroyed: false,
        }
    }

    /// True if all its work is done.
    pub(crate) fn idle(&self) -> bool {
        self.first().is_none()
    }

    /// The number of the earliest work that is not done.
    pub(crate) fn first(&self) -> Option<u64> {
        self.running.or_else(|| self.queue.front().map(|op| op.seq))
    }
}
