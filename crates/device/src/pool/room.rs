//! An arena whose segments come from the driver: the main part of a pool, or a private one.

use super::arena::{Arena, Plan, plan, plan_all};
use super::layout::{Layout, Places};
use super::tally::Tally;
use crate::capture_count;
use crate::capture_mode::CaptureMode;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::ffi::{self, call};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of times that a room gives segments back before it asks for another one. Steps that repeat need none.
const RETURNS: usize = 256;

/// Segments of one owner. It is alive as long as its pool or one of its blocks.
#[derive(Debug)]
pub(crate) struct Room {
    context: Context,
    arena: Mutex<Arena>,
    tally: Arc<Tally>,
    /// The large blocks of the main room since [`begin`](Room::begin).
    layout: Mutex<Layout>,
    /// Where large blocks of a private room are to lie.
    places: Mutex<Places>,
    /// How many times segments may still be given back.
    returns: AtomicUsize,
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
            layout: Mutex::default(),
            places: Mutex::default(),
            returns: AtomicUsize::new(RETURNS),
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
        let at = match self.planned(&mut arena, plan).or_else(|| arena.take(plan)) {
            Some(at) => at,
            None => {
                self.make_room(&mut arena, plan)?;
                let mut segment = allocate(&self.context, plan.segment)?;
                if segment.is_none() && last {
                    plan.segment = plan.bytes;
                    segment = allocate(&self.context, plan.segment)?;
                }
                if let Some(segment) = segment {
                    arena.add(plan, segment);
                    self.tally.allocated(plan.segment);
                }
                // A new segment fits the request that it was made for.
                match arena.take(plan).or_else(|| arena.take(plan.planned())) {
                    Some(at) => at,
                    None => {
                        drop(arena);
                        return Err(self.exhausted(bytes)?);
                    }
                }
            }
        };
        self.tally.taken(arena.size(at));
        if plan.is_large() && !self.private {
            self.layout().take(at, plan.bytes);
        }
        Ok(at)
    }

    /// Before a segment is made: gives back wholly free ones of other large requests, of which it may take the place.
    fn make_room(&self, arena: &mut Arena, plan: Plan) -> Result<()> {
        let left = self.returns.load(Ordering::Relaxed);
        if self.private || !plan.is_large() || left == 0 {
            return Ok(());
        }
        let segments = arena.release_large(plan.segment);
        if segments.is_empty() {
            return Ok(());
        }
        self.returns.store(left - 1, Ordering::Relaxed);
        let waited = capture_count::outside(|| self.context.synchronize()).unwrap_or(Ok(()));
        self.free(segments);
        waited
    }

    /// Makes one segment for large requests that are to lie there, if the driver has the memory.
    pub(super) fn reserve(&self, places: Places) -> Result<()> {
        let Some(plan) = plan_all(places.needed()).filter(|_| !self.direct) else {
            return Ok(());
        };
        if let Some(segment) = allocate(&self.context, plan.segment)? {
            self.arena().add(plan, segment);
            self.tally.allocated(plan.segment);
            *self.places.lock().unwrap_or_else(PoisonError::into_inner) = places.at(segment);
        }
        Ok(())
    }

    /// The part that was planned for a request, if there is one and it is free.
    fn planned(&self, arena: &mut Arena, plan: Plan) -> Option<u64> {
        if !self.private || !plan.is_large() {
            return None;
        }
        let at = self
            .places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next(plan.bytes)?;
        arena.take_at(plan.planned(), at)
    }

    /// Begins to look at large blocks anew.
    pub(super) fn begin(&self) {
        *self.layout() = Layout::default();
    }

    /// The places of the large blocks since [`begin`](Self::begin) that are no more; begins anew.
    pub(super) fn places(&self) -> Places {
        std::mem::take(&mut *self.layout()).places()
    }

    fn layout(&self) -> MutexGuard<'_, Layout> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees a part.
    pub(super) fn give(&self, at: u64) {
        let mut arena = self.arena();
        self.tally.given(arena.size(at));
        if !self.private {
            self.layout().give(at);
        }
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
