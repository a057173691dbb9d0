//! Copies between host and device, on a device, and between devices.

use crate::error::{Error, Result};
use crate::event::Event;
use crate::ffi::call;
use crate::pinned::Pinned;
use crate::pool::Block;
use crate::staging::STAGED;
use crate::stream::{Stream, Turn};
use std::sync::PoisonError;

/// An error unless bytes `offset..offset + len` lie in a block of `size`.
fn within(call: &'static str, offset: usize, len: usize, size: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::Range {
            call,
            offset,
            len,
            size,
        }),
    }
}

impl Stream {
    /// An event after the work that the stream has now.
    fn recorded(&self) -> Result<Event> {
        let event = Event::new(self.context())?;
        self.record(&event)?;
        Ok(event)
    }

    /// Copies host memory to a block, from its byte `offset` on. When this returns the slice has been read; the copy
    /// itself is ordered on the stream as any work is. Large slices are waited for; use
    /// [`upload_pinned`](Self::upload_pinned) to go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Capture`] while the stream is captured (the slice would be gone when the graph runs); [`Error::Range`];
    /// the driver's.
    pub fn upload(&self, from: &[u8], to: &mut Block, offset: usize) -> Result<()> {
        let address = self.target("upload", to, offset, from.len())?;
        let turn = self.refuse_in_capture("upload")?;
        if from.is_empty() {
            return Ok(());
        }
        if from.len() <= STAGED {
            let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = staging.slot(self.context())?;
            slot[..from.len()].copy_from_slice(from);
            self.context().bind()?;
            // SAFETY: the range of the block was checked, and the block is borrowed; the slot has `STAGED` bytes and is
            // not written again before the copy has read it, which `used` makes it wait for.
            unsafe {
                call!(cuMemcpyHtoDAsync_v2(
                    address,
                    slot.start().cast(),
                    from.len(),
                    self.handle()
                ))?
            };
            return self.settle(slot.used(false, || self.recorded()));
        }
        // SAFETY: the range of the block was checked, and both sides are borrowed until the stream has been waited for.
        unsafe {
            call!(cuMemcpyHtoDAsync_v2(
                address,
                from.as_ptr().cast(),
                from.len(),
                self.handle()
            ))?
        };
        drop(turn);
        self.synchronize()
    }

    /// Copies pinned memory to a block, from its byte `offset` on, and returns at once. Writing to the pinned memory
    /// waits until the copy has read it.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn upload_pinned(&self, from: &Pinned, to: &mut Block, offset: usize) -> Result<()> {
        let address = self.target("upload_pinned", to, offset, from.len())?;
        let _turn = self.refuse_in_capture("upload_pinned")?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the range of the block was checked, and the block is borrowed; the pinned memory is neither written
        // nor freed before the copy has read it, which `used` makes it wait for.
        unsafe {
            call!(cuMemcpyHtoDAsync_v2(
                address,
                from.start().cast(),
                from.len(),
                self.handle()
            ))?
        };
        self.settle(from.used(false, || self.recorded()))
    }

    /// Copies bytes of a block, from its byte `offset` on, to host memory, and waits for them.
    ///
    /// # Errors
    /// [`Error::Capture`] while the stream is captured; [`Error::Range`]; the driver's, among them those of kernels that
    /// ran earlier.
    pub fn download(&self, from: &Block, offset: usize, to: &mut [u8]) -> Result<()> {
        let address = self.target("download", from, offset, to.len())?;
        let turn = self.refuse_in_capture("download")?;
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: the range of the block was checked, and both sides are borrowed until the stream has been waited for.
        unsafe {
            call!(cuMemcpyDtoHAsync_v2(
                to.as_mut_ptr().cast(),
                address,
                to.len(),
                self.handle()
            ))?
        };
        drop(turn);
        self.synchronize()
    }

    /// Copies bytes of a block, from its byte `offset` on, to pinned memory, and returns at once. Reading the pinned
    /// memory waits until they are there; the block must not be given back on another stream meanwhile.
    ///
    /// # Errors
    /// As [`download`](Self::download).
    pub fn download_pinned(&self, from: &Block, offset: usize, to: &mut Pinned) -> Result<()> {
        let address = self.target("download_pinned", from, offset, to.len())?;
        let _turn = self.refuse_in_capture("download_pinned")?;
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: the range of the block was checked, and the block is borrowed; the pinned memory is borrowed
        // exclusively, and neither read, written nor freed before the copy has written it, which `used` makes it wait for.
        unsafe {
            call!(cuMemcpyDtoHAsync_v2(
                to.start().cast(),
                address,
                to.len(),
                self.handle()
            ))?
        };
        self.settle(to.used(true, || self.recorded()))
    }

    /// Copies `len` bytes between blocks of this device. It can be captured.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::DeviceMismatch`], or the driver's.
    pub fn copy(&self, from: &Block, from_offset: usize, to: &mut Block, to_offset: usize, len: usize) -> Result<()> {
        let source = self.target("copy", from, from_offset, len)?;
        let target = self.target("copy", to, to_offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let _turn = self.keeping([from, &*to])?;
        // SAFETY: both ranges were checked, and the blocks are borrowed, one of them exclusively, so they are two.
        unsafe { call!(cuMemcpyDtoDAsync_v2(target, source, len, self.handle())) }
    }

    /// Copies `len` bytes to a block of another device. The stream is of either device. Work of the other device's
    /// streams is ordered by an [`Event`].
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::DeviceMismatch`] if the stream is of neither device, or the driver's.
    pub fn copy_peer(
        &self,
        from: &Block,
        from_offset: usize,
        to: &mut Block,
        to_offset: usize,
        len: usize,
    ) -> Result<()> {
        if !self.context().same(from.context()) {
            self.context().expect("copy_peer", to.context())?;
        }
        within("copy_peer", from_offset, len, from.len())?;
        within("copy_peer", to_offset, len, to.len())?;
        if len == 0 {
            return Ok(());
        }
        let _turn = self.keeping([from, &*to])?;
        self.context().bind()?;
        // SAFETY: both ranges were checked, and the blocks are borrowed, so they and their contexts are alive.
        unsafe {
            call!(cuMemcpyPeerAsync(
                to.ptr() + to_offset as u64,
                to.context().raw(),
                from.ptr() + from_offset as u64,
                from.context().raw(),
                len,
                self.handle()
            ))
        }
    }

    /// Sets every byte of a block. It can be captured.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], or the driver's.
    pub fn memset(&self, block: &mut Block, byte: u8) -> Result<()> {
        let len = block.len();
        self.memset_range(block, 0, len, byte)
    }

    /// Sets `len` bytes of a block, from its byte `offset` on. It can be captured.
    ///
    /// # Errors
    /// As [`memset`](Self::memset), and [`Error::Range`].
    pub fn memset_range(&self, block: &mut Block, offset: usize, len: usize, byte: u8) -> Result<()> {
        let address = self.target("memset", block, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let _turn = self.keeping([&*block])?;
        // SAFETY: the range was checked, and the block is borrowed exclusively.
        unsafe { call!(cuMemsetD8Async(address, byte, len, self.handle())) }
    }

    /// The address of a range of a block of this device; makes the context current.
    fn target(&self, call: &'static str, block: &Block, offset: usize, len: usize) -> Result<u64> {
        self.context().expect(call, block.context())?;
        within(call, offset, len, block.len())?;
        self.context().bind()?;
        Ok(block.ptr() + offset as u64)
    }

    /// An error while the stream is captured; otherwise no capture of it begins until the guard is dropped.
    fn refuse_in_capture(&self, call: &'static str) -> Result<Turn<'_>> {
        let turn = self.turn();
        if !self.capturing()? {
            return Ok(turn);
        }
        Err(Error::Capture {
            call,
            code: None,
            reason: "host memory cannot be part of a graph: copy before the capture, into a block that it reads"
                .to_string(),
        })
    }

    /// Waits for a copy if no event could be recorded after it.
    fn settle(&self, noted: Result<()>) -> Result<()> {
        noted.or_else(|_| self.synchronize())
    }

    /// Makes later work of this stream wait for the work that `other` has now, on the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        let event = Event::new(other.context())?;
        other.record(&event)?;
        self.wait(&event)
    }
}
