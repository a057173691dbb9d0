//! Host memory that the device reads and writes by itself.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::ffi::{self, call};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Page-locked host memory, zeroed at first: copies between it and the device run beside everything else.
///
/// It keeps track of the copies that are under way. Reading it waits for those that write it; writing or dropping it waits
/// for all of them.
#[derive(Debug)]
pub struct Pinned {
    bytes: NonNull<u8>,
    len: usize,
    context: Context,
    uses: Mutex<Uses>,
}

/// Events behind the copies that are under way.
#[derive(Debug, Default)]
struct Uses {
    reading: Vec<Event>,
    writing: Vec<Event>,
}

// SAFETY: the memory is owned by this object alone, and its bytes are reached through `&self` and `&mut self` as those
// of a `Box<[u8]>`; the device's part in this is kept apart by waiting for its copies.
unsafe impl Send for Pinned {}
// SAFETY: as above; `uses` has a lock.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// This many bytes of zeros.
    ///
    /// # Errors
    /// The driver's, if the host has not that much memory to lock.
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        context.bind()?;
        let mut address = std::ptr::null_mut();
        // SAFETY: `address` is a place for the pointer that the function writes; the context is current.
        unsafe { call!(cuMemHostAlloc(&mut address, bytes.max(1), ffi::HOST_ALLOC_PORTABLE))? };
        let Some(start) = NonNull::new(address.cast::<u8>()) else {
            return Err(Error::driver("cuMemHostAlloc", ffi::OUT_OF_MEMORY));
        };
        // SAFETY: the driver gave at least this many bytes, and nothing else has them.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
        Ok(Self {
            bytes: start,
            len: bytes,
            context: context.clone(),
            uses: Mutex::default(),
        })
    }

    /// The context that the memory was made in. Streams of every device may copy it.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits until the device neither reads nor writes the memory.
    ///
    /// # Errors
    /// The driver's, among them those of kernels that ran earlier.
    pub fn wait(&self) -> Result<()> {
        let mut uses = self.uses();
        let all: Vec<Event> = std::mem::take(&mut *uses).into_events().collect();
        all.iter().try_for_each(Event::synchronize)
    }

    /// Records a copy that a stream has just been given, by the event that `record` records after it.
    pub(crate) fn used(&self, written: bool, record: impl FnOnce() -> Result<Event>) -> Result<()> {
        let mut uses = self.uses();
        uses.forget_done();
        let event = record()?;
        match written {
            true => uses.writing.push(event),
            false => uses.reading.push(event),
        }
        Ok(())
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.bytes.as_ptr()
    }

    /// The address by which kernels of every device reach the memory (unified addressing: the host's own). A kernel's writes
    /// may be read after its stream was synchronised.
    pub fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    /// The number of bytes, without waiting for copies.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Uses {
    fn into_events(self) -> impl Iterator<Item = Event> {
        self.reading.into_iter().chain(self.writing)
    }

    fn forget_done(&mut self) {
        for list in [&mut self.reading, &mut self.writing] {
            list.retain(|e| !matches!(e.is_done(), Ok(true)));
        }
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let mut uses = self.uses();
        for event in uses.writing.drain(..) {
            // After an error the context is dead and copies nothing more.
            let _ = event.synchronize();
        }
        // SAFETY: `len` bytes were allocated and initialised in `new`; no copy writes them now, and one that will needs
        // `&mut self`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len) }
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // After an error the context is dead and copies nothing more.
        let _ = self.wait();
        // SAFETY: as in `deref`; no copy reads them either.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.wait();
        let _ = self.context.bind();
        // SAFETY: allocated by `cuMemHostAlloc`, this is the only owner, and no copy is under way. The result does not
        // matter: it could only tell of earlier kernels.
        let _ = unsafe { ffi::cuMemFreeHost(self.bytes.as_ptr().cast()) };
    }
}
