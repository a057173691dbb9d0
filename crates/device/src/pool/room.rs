//! An arena whose segments come from the driver: the main part of a pool, or a private one.

use super::arena::{Arena, plan};
use super::tally::Tally;
use crate::capture_count;
use crate::capture_mode::CaptureMode;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::ffi::{self, call};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Segments of one owner. It is alive as long as its pool or one of its blocks.
#[derive(Debug)]
pub(crate) struct Room {
    context: Context,
    arena: Mutex<Arena>,
    tally: Arc<Tally>,
    /// True if each block has a segment of its own.
    direct: bool,
    /// True for the pool of a captured graph: its segments stay until the room is dropped.
    private: bool,
}

impl Room {
    pub(super) fn new(context: &Context, tally: Arc<Tally>, direct: bool, private: bool) -> Self {
        Self {
            context: context.clone(),
            arena: Mutex::default(),
            tally,
            direct,
            private,
        }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn tally(&self) -> Arc<Tally> {
        self.tally.clone()
    }

    /// True if the room is a captured graph's.
    pub(super) fn private(&self) -> bool {
        self.private
    }

    pub(super) fn reserved(&self) -> usize {
        self.arena().segments().map(|(_, bytes)| bytes).sum()
    }

    /// A part of at least this many bytes. With `last` the device is nearly full: if it has no room for the segment that other requests
    /// could share, one of the size of this request does.
    pub(super) fn take(&self, bytes: usize, last: bool) -> Result<u64> {
        let mut arena = self.arena();
        self.tally.lock().0.requests += 1;
        let mut plan = plan(bytes, self.direct)
            .ok_or(())
            .or_else(|()| Err(self.exhausted(bytes)?))?;
        let at = match arena.take(plan) {
            Some(at) => at,
            None => {
                let mut segment = allocate(&self.context, plan.segment)?;
                if segment.is_none() && last {
                    plan.segment = plan.bytes;
                    segment = allocate(&self.context, plan.segment)?;
                }
                let Some(segment) = segment else {
                    drop(arena);
                    return Err(self.exhausted(bytes)?);
                };
                arena.add(plan, segment);
                self.tally.allocated(plan.segment);
                // A new segment fits the request that it was made for.
                arena.take(plan).unwrap_or(segment)
            }
        };
        self.tally.taken(arena.size(at));
        Ok(at)
    }

    /// Frees a part.
    pub(super) fn give(&self, at: u64) {
        let mut arena = self.arena();
        self.tally.given(arena.size(at));
        arena.give(at);
        if self.direct && !self.private {
            self.free(arena.release());
        }
    }

    /// Gives segments that are wholly free back to the driver.
    pub(super) fn release(&self) -> Result<()> {
        let mut arena = self.arena();
        // First of all, since an error of an earlier kernel shows here. During a capture it shows later.
        capture_count::outside(|| self.context.synchronize()).unwrap_or(Ok(()))?;
        self.free(arena.release());
        Ok(())
    }

    fn free(&self, segments: impl IntoIterator<Item = (u64, usize)>) {
        let _ = self.context.bind();
        let _relaxed = Relaxed::enter();
        for (at, bytes) in segments {
            self.tally.released(bytes);
            // SAFETY: the address is a segment's, from `allocate`, and no block is left in it; the driver waits for
            // kernels that still use it. The result does not matter: it could only tell of earlier kernels.
            let _ = unsafe { ffi::cuMemFree_v2(at) };
        }
    }

    /// The error for a request that cannot be served.
    fn exhausted(&self, requested: usize) -> Result<Error> {
        let (free, total) = self.context.memory()?;
        Ok(Error::OutOfMemory {
            ordinal: self.context.ordinal(),
            requested,
            free,
            total,
        })
    }

    fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let segments: Vec<(u64, usize)> = self.arena().segments().collect();
        self.free(segments);
    }
}

/// Memory from the driver; `None` if it has not enough.
fn allocate(context: &Context, bytes: usize) -> Result<Option<u64>> {
    context.bind()?;
    let _relaxed = Relaxed::enter();
    let mut address = 0;
    // SAFETY: `address` is a place for what the function writes; the context is current.
    match unsafe { ffi::cuMemAlloc_v2(&mut address, bytes) } {
        ffi::OUT_OF_MEMORY => Ok(None),
        code => crate::error::check("cuMemAlloc_v2", code).map(|()| Some(address)),
    }
}

/// While this lives, its thread may allocate although it captures a stream: the allocation is no part of the capture.
struct Relaxed(i32);

impl Relaxed {
    fn enter() -> Self {
        let mut mode = CaptureMode::Relaxed as i32;
        Self::exchange(&mut mode);
        Self(mode)
    }

    fn exchange(mode: &mut i32) {
        // SAFETY: `mode` is a place for the integer that the function reads and writes. An error leaves it as it is:
        // the mode then stays, and the call that follows answers for itself.
        let _ = unsafe { call!(cuThreadExchangeStreamCaptureMode(mode)) };
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        Self::exchange(&mut self.0);
    }
}
