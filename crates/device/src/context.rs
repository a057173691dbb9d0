//! A device in use.

use crate::error::{Error, Result};
use crate::ffi::{self, call};
use crate::info::{DeviceInfo, find};
use std::sync::Arc;

/// A device's primary context, which other CUDA libraries in the process use too. Clones are the same context; it is
/// released when the last clone and the last object made in it are dropped.
#[derive(Clone, Debug)]
pub struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: ffi::CUcontext,
    device: ffi::CUdevice,
    info: DeviceInfo,
}

// SAFETY: the driver takes calls with a context from any thread; the pointer is never dereferenced here.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Context {
    /// The context of the device of this number, from zero.
    ///
    /// # Errors
    /// [`Error::NoDriver`] with the files that were tried, [`Error::NoSuchDevice`], or the driver's error.
    pub fn new(ordinal: usize) -> Result<Self> {
        let (info, device) = find(ordinal)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for the handle that the function writes; the device comes from the driver.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut raw, device))? };
        let context = Self(Arc::new(Inner { raw, device, info }));
        context.bind()?;
        Ok(context)
    }

    /// The properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// The device's number.
    pub fn ordinal(&self) -> usize {
        self.0.info.ordinal
    }

    /// The device's free bytes and all its bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are places for the integers that the function writes.
        unsafe { call!(cuMemGetInfo_v2(&mut free, &mut total))? };
        Ok((free, total))
    }

    /// The device's free bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_memory(&self) -> Result<usize> {
        Ok(self.memory()?.0)
    }

    /// Waits until all work of this context is done. While any stream of it is captured, by whichever thread, this is an error
    /// and invalidates the capture.
    ///
    /// # Errors
    /// The driver's, among them those of kernels that ran earlier.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: takes no argument; this context is current.
        unsafe { call!(cuCtxSynchronize()) }
    }

    /// True if kernels on this device can reach the other device's memory.
    ///
    /// # Errors
    /// The driver's.
    pub fn can_access_peer(&self, other: &Context) -> Result<bool> {
        if self.same(other) {
            return Ok(true);
        }
        let mut can = 0;
        // SAFETY: `can` is a place for the integer that the function writes; both devices come from the driver.
        unsafe { call!(cuDeviceCanAccessPeer(&mut can, self.0.device, other.0.device))? };
        Ok(can != 0)
    }

    /// Lets kernels on this device reach the other device's memory. Copies between devices work without it; with it they need
    /// not pass through the host (CUDA C++ Programming Guide).
    ///
    /// # Errors
    /// The driver's, if the devices cannot. Enabling twice is no error.
    pub fn enable_peer(&self, other: &Context) -> Result<()> {
        if self.same(other) {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the other context is alive as long as `other`; this one is current.
        match unsafe { ffi::cuCtxEnablePeerAccess(other.0.raw, 0) } {
            ffi::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => crate::error::check("cuCtxEnablePeerAccess", code),
        }
    }

    /// Makes this context current on the calling thread.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained until the last clone is dropped.
        unsafe { call!(cuCtxSetCurrent(self.0.raw)) }
    }

    /// The priorities that streams may have: the lowest and the highest, in the driver's numbers.
    pub(crate) fn priorities(&self) -> Result<(i32, i32)> {
        self.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both are places for the integers that the function writes.
        unsafe { call!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest))? };
        Ok((least, greatest))
    }

    pub(crate) fn raw(&self) -> ffi::CUcontext {
        self.0.raw
    }

    pub(crate) fn same(&self, other: &Context) -> bool {
        self.0.raw == other.0.raw
    }

    /// An error unless `other`, the context of the other object, is of this device.
    pub(crate) fn expect(&self, call: &'static str, other: &Context) -> Result<()> {
        if self.same(other) {
            return Ok(());
        }
        Err(Error::DeviceMismatch {
            call,
            stream: self.ordinal(),
            other: other.ordinal(),
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: balances the retain in `new`; every object of this context holds a clone, so this is the last use.
        // The result does not matter: there is nothing left to do with the context.
        let _ = unsafe { ffi::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
