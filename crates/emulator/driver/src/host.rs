//! Page-locked host memory.

use std::ffi::c_void;

use kiln_simulator::memory::{Kind, MemoryError};

use crate::alloc::{allocate, free};
use crate::error::{Code, Outcome};
use crate::state::driver;
use crate::types::{CUdeviceptr, Out};

/// `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP` and `_WRITECOMBINED`.
const ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE` and `_DEVICEMAP`; memory of devices and read-only memory are not there.
const REGISTER_FLAGS: u32 = 3;

fn host_alloc(out: Out<*mut c_void>, bytes: usize, flags: u32) -> Outcome {
    if flags & !ALLOC_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let base = allocate(bytes, Kind::Pinned)?;
    // Unified addressing maps all of it for devices.
    driver()?.lock().pinned.insert(base, flags | 2);
    out.put(base as *mut c_void)
}

fn register(host: *mut c_void, bytes: usize, flags: u32) -> Outcome {
    let driver = driver()?;
    let mut state = driver.lock();
    let device = state.current_device()?;
    state.refuse_unsafe()?;
    if host.is_null() || bytes == 0 || (host as u64).checked_add(bytes as u64).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    if flags & !REGISTER_FLAGS != 0 {
        return Err(crate::unsupported::unsupported(
            "registration of memory of devices, or of read-only memory",
        ));
    }
    // SAFETY: the program promises in the call that its memory can be read and written until it is taken away again,
    // which waits for all work (`free`).
    match unsafe { driver.memory.register(device, host as u64, bytes as u64) } {
        Err(MemoryError::Overlap { .. }) => Err(Code::HOST_MEMORY_ALREADY_REGISTERED),
        Err(_) => Err(Code::INVALID_VALUE),
        Ok(range) => {
            state.pinned.insert(range.base, flags | 2);
            Ok(())
        }
    }
}

export! {
    fn cuMemHostAlloc(host: Out<*mut c_void>, bytes: usize, flags: u32) {
        host_alloc(host, bytes, flags)
    }

    fn cuMemAllocHost_v2(host: Out<*mut c_void>, bytes: usize) {
        host_alloc(host, bytes, 0)
    }

    fn cuMemFreeHost(host: *mut c_void) {
        if host.is_null() {
            return driver().map(|_| ());
        }
        free(host as u64, &[Kind::Pinned])?;
        driver()?.lock().pinned.remove(&(host as u64));
        Ok(())
    }

    fn cuMemHostRegister_v2(host: *mut c_void, bytes: usize, flags: u32) {
        register(host, bytes, flags)
    }

    fn cuMemHostUnregister(host: *mut c_void) {
        let known = driver()?.memory.find(host as u64);
        known.filter(|r| r.kind == Kind::Registered && r.base == host as u64).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)?;
        free(host as u64, &[Kind::Registered])?;
        driver()?.lock().pinned.remove(&(host as u64));
        Ok(())
    }

    fn cuMemHostGetDevicePointer_v2(pointer: Out<CUdeviceptr>, host: *mut c_void, flags: u32) {
        let driver = driver()?;
        driver.lock().current()?;
        let known = driver.memory.find(host as u64).filter(|r| r.kind.host() && flags == 0);
        known.ok_or(Code::INVALID_VALUE)?;
        pointer.put(host as u64)
    }

    fn cuMemHostGetFlags(flags: Out<u32>, host: *mut c_void) {
        let driver = driver()?;
        let range = driver.memory.find(host as u64).filter(|r| r.kind.host()).ok_or(Code::INVALID_VALUE)?;
        flags.put(driver.lock().pinned.get(&range.base).copied().unwrap_or(2))
    }
}
