//! Device memory, managed memory, and stream-ordered memory.

use kiln_simulator::memory::{Freed, Kind, MemoryError, Range};

use crate::error::{Code, Outcome};
use crate::objects::work::Work;
use crate::schedule::Goal;
use crate::state::{Driver, driver};
use crate::types::{CUcontext, CUdeviceptr, CUmemoryPool, CUstream, Out};

/// The bytes that a pitch is a multiple of.
const PITCH: usize = 512;

impl Driver {
    /// Allocates memory of the program's on a device.
    fn allocate(&self, device: u32, bytes: u64, kind: Kind) -> Result<Range, MemoryError> {
        let range = self.memory.allocate(device, bytes, kind)?;
        self.trace.allocate(&range, self.used(device));
        Ok(range)
    }

    /// The bytes that are allocated on a device.
    fn used(&self, device: u32) -> u64 {
        let (free, total) = self.memory.info(device);
        total - free
    }

    /// Frees the allocation that begins at `base`; bytes written beside it are a finding.
    pub(crate) fn release(&self, base: u64, context: CUcontext) -> Outcome {
        let freed = self.memory.free(base).map_err(|_| Code::INVALID_VALUE)?;
        self.trace.free(&freed.range, self.used(freed.range.device));
        if self.tell_damage(&freed) {
            self.lock().fail(context, Code::LAUNCH_FAILED);
            return Err(Code::LAUNCH_FAILED);
        }
        Ok(())
    }

    /// Reports bytes that were written beside an allocation. Returns true if there were any.
    pub(crate) fn tell_damage(&self, freed: &Freed) -> bool {
        let Range { id, len, .. } = freed.range;
        if let Some(at) = freed.damaged {
            self.report(format_args!(
                "something wrote at byte {at} of allocation #{id}, which has {len} bytes"
            ));
        }
        freed.damaged.is_some()
    }
}

fn code(error: MemoryError) -> Code {
    match error {
        MemoryError::OutOfMemory { .. } | MemoryError::Host { .. } => Code::OUT_OF_MEMORY,
        MemoryError::Unknown { .. } => Code::INVALID_VALUE,
        MemoryError::Overlap { .. } => Code::HOST_MEMORY_ALREADY_REGISTERED,
    }
}

/// Allocates for the current context; when memory is short, waits for pending frees first.
pub(crate) fn allocate(bytes: usize, kind: Kind) -> Outcome<u64> {
    let driver = driver()?;
    let mut state = driver.lock();
    let device = state.current_device()?;
    state.refuse_unsafe()?;
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    match driver.allocate(device, bytes as u64, kind) {
        Err(MemoryError::OutOfMemory { .. }) => {
            let state = driver.quiet(state)?;
            let again = driver.allocate(device, bytes as u64, kind).map_err(code);
            drop(state);
            Ok(again?.base)
        }
        other => Ok(other.map_err(code)?.base),
    }
}

/// Frees memory of one of these kinds, after everything that might use it.
pub(crate) fn free(base: u64, kinds: &[Kind]) -> Outcome {
    let driver = driver()?;
    let mut state = driver.lock();
    let context = state.current()?;
    state.refuse_unsafe()?;
    let goal = Goal::Free(context, state.seq);
    let state = driver.wait(state, &goal)?;
    let range = driver
        .memory
        .find(base)
        .filter(|r| r.base == base && kinds.contains(&r.kind));
    let range = range.ok_or(Code::INVALID_VALUE)?;
    driver.host_access().freed(range.base, range.len);
    let freed = driver.memory.free(base).map_err(code)?;
    driver.trace.free(&freed.range, driver.used(freed.range.device));
    driver.reclaim(state);
    if driver.tell_damage(&freed) {
        driver.lock().fail(context, Code::LAUNCH_FAILED);
        return Err(Code::LAUNCH_FAILED);
    }
    Ok(())
}

/// Stream-ordered memory, of a pool or of the stream's device.
pub(crate) fn allocate_async(
    out: Out<CUdeviceptr>,
    bytes: usize,
    pool: Option<CUmemoryPool>,
    stream: CUstream,
) -> Outcome {
    let driver = driver()?;
    let mut state = driver.lock();
    let stream = state.stream(stream)?;
    if state.streams[&stream].capture.is_some() {
        state.refuse_captured(stream).ok();
        return Err(crate::unsupported::unsupported(
            "stream-ordered allocation in a capture",
        ));
    }
    let device = match pool {
        Some(pool) => state.pool(driver, pool)?,
        None => state.contexts[&state.streams[&stream].context].device,
    };
    // Unlike `cuMemAlloc`, this accepts a size of zero and gives a null pointer; so does freeing it.
    if bytes == 0 {
        return out.put(0);
    }
    let mut made = driver.allocate(device, bytes as u64, Kind::Device);
    if matches!(made, Err(MemoryError::OutOfMemory { .. })) {
        let state = driver.quiet(state)?;
        made = driver.allocate(device, bytes as u64, Kind::Device);
        drop(state);
    }
    out.put(made.map_err(code)?.base)
}

export! {
    fn cuMemAlloc_v2(pointer: Out<CUdeviceptr>, bytes: usize) {
        pointer.put(allocate(bytes, Kind::Device)?)
    }

    fn cuMemAllocPitch_v2(
        pointer: Out<CUdeviceptr>,
        pitch: Out<usize>,
        width: usize,
        height: usize,
        element: u32,
    ) {
        if !matches!(element, 4 | 8 | 16) {
            return Err(Code::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(Code::INVALID_VALUE)?;
        let base = allocate(row.checked_mul(height).ok_or(Code::INVALID_VALUE)?, Kind::Device)?;
        pitch.put(row)?;
        pointer.put(base)
    }

    fn cuMemAllocManaged(pointer: Out<CUdeviceptr>, bytes: usize, flags: u32) {
        if !matches!(flags, 1 | 2) {
            return Err(Code::INVALID_VALUE);
        }
        pointer.put(allocate(bytes, Kind::Managed)?)
    }

    fn cuMemFree_v2(pointer: CUdeviceptr) {
        if pointer == 0 {
            return driver().map(|_| ());
        }
        free(pointer, &[Kind::Device, Kind::Managed])
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let driver = driver()?;
        let device = driver.lock().current_device()?;
        let (left, all) = driver.memory.info(device);
        free.put(left as usize)?;
        total.put(all as usize)
    }

    fn cuMemGetAddressRange_v2(base: Out<CUdeviceptr>, size: Out<usize>, pointer: CUdeviceptr) {
        let range = driver()?.memory.find(pointer).ok_or(Code::NOT_FOUND)?;
        base.put_if(range.base);
        size.put_if(range.len as usize);
        Ok(())
    }

    fn cuMemAllocAsync(pointer: Out<CUdeviceptr>, bytes: usize, stream: CUstream) {
        allocate_async(pointer, bytes, None, stream)
    }

    fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) {
        let driver = driver()?;
        let mut state = driver.lock();
        let stream = state.stream(stream)?;
        if state.streams[&stream].capture.is_some() {
            state.refuse_captured(stream).ok();
            return Err(crate::unsupported::unsupported("stream-ordered freeing in a capture"));
        }
        if pointer == 0 {
            return Ok(());
        }
        let known = driver.memory.find(pointer).filter(|r| r.base == pointer && r.kind == Kind::Device);
        known.ok_or(Code::INVALID_VALUE)?;
        state.refuse_implicit(stream)?;
        let state = driver.submit(state, stream, Work::Free(pointer))?;
        driver.reclaim(state);
        Ok(())
    }
}
