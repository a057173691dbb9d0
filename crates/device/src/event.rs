//! Points in a stream's work.

use crate::context::Context;
use crate::error::{Result, check};
use crate::ffi::{self, call};

/// A point in a stream's work: recorded on one stream, waited for by others or by the host. An event that was never
/// recorded counts as done.
#[derive(Debug)]
pub struct Event {
    raw: ffi::CUevent,
    context: Context,
}

// SAFETY: the driver takes calls with an event from any thread; the pointer is never dereferenced here.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event without a time, which is the cheaper kind.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Context) -> Result<Self> {
        Self::create(context, ffi::EVENT_DISABLE_TIMING)
    }

    /// An event that keeps the time at which it was reached, for [`elapsed_since`](Self::elapsed_since).
    ///
    /// # Errors
    /// The driver's.
    pub fn timed(context: &Context) -> Result<Self> {
        Self::create(context, ffi::EVENT_DEFAULT)
    }

    fn create(context: &Context, flags: u32) -> Result<Self> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for the handle that the function writes; the context is current.
        unsafe { call!(cuEventCreate(&mut raw, flags))? };
        Ok(Self {
            raw,
            context: context.clone(),
        })
    }

    /// Waits until the event is reached.
    ///
    /// # Errors
    /// The driver's, among them those of kernels that ran before the event.
    pub fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the event is alive as long as `self`.
        unsafe { call!(cuEventSynchronize(self.raw)) }
    }

    /// True if the event is reached.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn is_done(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: the event is alive as long as `self`.
        match unsafe { ffi::cuEventQuery(self.raw) } {
            ffi::NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// The milliseconds from `earlier` to this event. Both are timed, recorded and reached.
    ///
    /// # Errors
    /// The driver's, if one of them is not.
    pub fn elapsed_since(&self, earlier: &Event) -> Result<f32> {
        self.context.bind()?;
        let mut ms = 0.0;
        // SAFETY: `ms` is a place for the number that the function writes; both events are borrowed, so alive.
        unsafe { call!(cuEventElapsedTime(&mut ms, earlier.raw, self.raw))? };
        Ok(ms)
    }

    pub(crate) fn raw(&self) -> ffi::CUevent {
        self.raw
    }

    /// The context that the event was made in.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: this was the only handle. The driver keeps an event until no stream waits for it. The result does not
        // matter: it could only tell of earlier kernels.
        let _ = unsafe { ffi::cuEventDestroy_v2(self.raw) };
    }
}
