//! Queues of work on a device.

use crate::capture::{self, Capture};
use crate::context::Context;
use crate::error::{Result, check};
use crate::event::Event;
use crate::ffi::{self, call};
use crate::launch_log;
use crate::pool::Block;
use crate::staging::Staging;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The priority of a stream's work where the device has to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// After the others.
    Low,
    /// The default; on devices of two priorities the same as low.
    #[default]
    Normal,
    /// Before the others.
    High,
}

/// A queue of work on a device: its work runs in order, and beside that of other streams. It does not synchronise with
/// the NULL stream.
#[derive(Debug)]
pub struct Stream {
    raw: ffi::CUstream,
    context: Context,
    pub(crate) staging: Mutex<Staging>,
    /// The capture that this stream began. The lock is held from the test for a capture to the call that depends on the test,
    /// so that no capture begins between the two.
    capture: Mutex<Option<Capture>>,
}

// SAFETY: the driver takes calls with a stream from any thread; the pointer is never dereferenced here.
unsafe impl Send for Stream {}
// SAFETY: as above; the staging area has a lock.
unsafe impl Sync for Stream {}

/// Held while work is given to a stream.
pub(crate) type Turn<'s> = MutexGuard<'s, Option<Capture>>;

impl Stream {
    /// A stream of this device.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Context, priority: Priority) -> Result<Self> {
        let (least, greatest) = context.priorities()?;
        // Numbers fall as priority rises, and zero lies between where the device has three.
        let priority = match priority {
            Priority::Low => least,
            Priority::Normal => 0i32.clamp(greatest.min(least), least.max(greatest)),
            Priority::High => greatest,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for the handle that the function writes; the context is current since `priorities`.
        unsafe { call!(cuStreamCreateWithPriority(&mut raw, ffi::STREAM_NON_BLOCKING, priority))? };
        Ok(Self {
            raw,
            context: context.clone(),
            staging: Mutex::new(Staging::default()),
            capture: Mutex::default(),
        })
    }

    /// The context that the stream was made in.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits until the stream's work is done.
    ///
    /// # Errors
    /// The driver's, among them those of kernels that ran earlier; [`Error::Capture`](crate::Error::Capture) while the
    /// stream is captured.
    pub fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the stream is alive as long as `self`.
        unsafe { call!(cuStreamSynchronize(self.raw)) }
    }

    /// True if the stream's work is done.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn is_idle(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: the stream is alive as long as `self`.
        match unsafe { ffi::cuStreamQuery(self.raw) } {
            ffi::NOT_READY => Ok(false),
            code => check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Makes later work of this stream wait for the event, on the device. In a capture this makes the stream part of it,
    /// if the event is.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _turn = self.turn();
        self.context.bind()?;
        // SAFETY: stream and event are borrowed, so alive.
        unsafe { call!(cuStreamWaitEvent(self.raw, event.raw(), 0)) }
    }

    /// Records the event after the work that the stream has now. It replaces an earlier recording.
    ///
    /// # Errors
    /// The driver's; the event must be of this stream's device.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.context.expect("record", event.context())?;
        self.context.bind()?;
        // SAFETY: stream and event are borrowed, so alive.
        unsafe { call!(cuEventRecord(event.raw(), self.raw)) }
    }

    /// True while the stream's work goes into a graph, also after something has invalidated the capture.
    ///
    /// # Errors
    /// The driver's.
    pub fn capturing(&self) -> Result<bool> {
        self.context.bind()?;
        let mut status = 0;
        // SAFETY: the stream is alive as long as `self`; `status` is a place for the integer that the function writes.
        unsafe { call!(cuStreamIsCapturing(self.raw, &mut status))? };
        Ok(status != 0)
    }

    /// Keeps the blocks for as long as a graph may use them, if the stream is captured. The work that uses them is given to the
    /// stream while the guard lives.
    pub(crate) fn keeping<'b>(&self, blocks: impl IntoIterator<Item = &'b Block>) -> Result<Turn<'_>> {
        let turn = self.turn();
        if capture::under_way() && self.capturing()? {
            blocks.into_iter().for_each(capture::keep);
        }
        Ok(turn)
    }

    /// A guard: no capture of this stream begins or ends while it lives.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a block for as long as a graph may use it, if the stream is captured. [`Arg::block`](crate::Arg::block) does so
    /// too; this is for addresses that a kernel finds within its arguments.
    ///
    /// # Errors
    /// The driver's.
    pub fn keep(&self, block: &Block) -> Result<()> {
        if capture::under_way() {
            launch_log::keep(block.len());
        }
        self.keeping([block]).map(drop)
    }

    /// The driver's handle, for libraries that work on a stream. It is valid as long as this stream is.
    pub fn raw(&self) -> *mut std::ffi::c_void {
        self.raw.cast()
    }

    pub(crate) fn handle(&self) -> ffi::CUstream {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: this was the only handle. The driver finishes the stream's work first, on its own time. The result
        // does not matter: it could only tell of earlier kernels.
        let _ = unsafe { ffi::cuStreamDestroy_v2(self.raw) };
    }
}
