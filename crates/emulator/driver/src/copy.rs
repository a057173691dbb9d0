//! Copies and fills of runs of bytes.

use std::ffi::c_void;

use kiln_simulator::memory::Kind;

use crate::config::Order;
use crate::error::{Code, Outcome};
use crate::objects::work::{Copy, Fill, Place, Work};
use crate::schedule::Goal;
use crate::state::{Driver, driver};
use crate::types::{CUcontext, CUdeviceptr, CUstream};

/// The kind of memory that a call takes an address for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Device,
    Host,
    /// Unknown: the driver looks the address up.
    Any,
}

/// The stream of a copy or fill, and whether the call is the synchronous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// In the legacy stream; the call waits, unless only device memory takes part.
    Now,
    /// In this stream; the call waits only if the destination is pageable host memory.
    In(CUstream),
}

impl Driver {
    /// The place at an address, of which `span` bytes are used.
    pub(crate) fn place(&self, at: u64, span: u64, side: Side) -> Outcome<Place> {
        if let Some(range) = self.memory.find(at) {
            let inside = at.checked_add(span).is_some_and(|end| end <= range.base + range.len);
            if !inside {
                let (len, id) = (range.len, range.id);
                self.config.say(format_args!(
                    "{span} bytes at {at:#x} reach past allocation #{id} of {len} bytes"
                ));
            }
            return if inside {
                Ok(Place::Known(at))
            } else {
                Err(Code::INVALID_VALUE)
            };
        }
        if side == Side::Device || at == 0 || self.memory.was_freed(at) {
            let about = self.memory.snapshot().describe(at);
            self.config
                .say(format_args!("{span} bytes at {at:#x} are asked for, which is {about}"));
            return Err(Code::INVALID_VALUE);
        }
        Ok(Place::Pageable(at))
    }

    /// True if a place is memory of a device, so that the host need not wait.
    fn on_device(&self, place: &Place) -> bool {
        match place {
            Place::Known(at) => self.memory.find(*at).is_some_and(|r| r.kind == Kind::Device),
            _ => false,
        }
    }
}

/// Issues a copy whose places were looked up.
pub(crate) fn issue_copy(driver: &Driver, mut copy: Copy, when: When) -> Outcome {
    let mut state = driver.lock();
    let now = when == When::Now;
    let stream = match when {
        When::Now => state.stream(CUstream(0))?,
        When::In(stream) => state.stream(stream)?,
    };
    if now {
        state.refuse_implicit(stream)?;
        state.refuse_unsafe()?;
    }
    if state.streams[&stream].capture.is_some() {
        return driver.run_or_capture(state, stream, Work::Copy(copy));
    }
    state.refuse_implicit(stream)?;
    let waits = match when {
        When::Now => !(driver.on_device(&copy.src) && driver.on_device(&copy.dst)),
        When::In(_) => matches!(copy.dst, Place::Pageable(_)),
    };
    if !waits && driver.config.order != Order::Eager {
        copy.stage();
    }
    let state = driver.submit(state, stream, Work::Copy(copy))?;
    if waits {
        let goal = Goal::Stream(stream, state.streams[&stream].last);
        return driver.wait(state, &goal).map(drop);
    }
    Ok(())
}

fn copy(dst: u64, to: Side, src: u64, from: Side, bytes: usize, when: When) -> Outcome {
    let driver = driver()?;
    driver.lock().current()?;
    if bytes == 0 {
        return Ok(());
    }
    let len = bytes as u64;
    let (dst, src) = (driver.place(dst, len, to)?, driver.place(src, len, from)?);
    issue_copy(driver, Copy::linear(dst, src, len), when)
}

/// Issues a fill.
pub(crate) fn fill(fill: Fill, when: When) -> Outcome {
    let driver = driver()?;
    let mut state = driver.lock();
    let stream = match when {
        When::Now => state.stream(CUstream(0))?,
        When::In(stream) => state.stream(stream)?,
    };
    let span = fill.span().ok_or(Code::INVALID_VALUE)?;
    if span == 0 {
        return Ok(());
    }
    if !fill.aligned() {
        return Err(Code::INVALID_VALUE);
    }
    let place = driver.place(fill.dst, span, Side::Device)?;
    if when == When::Now {
        state.refuse_implicit(stream)?;
        state.refuse_unsafe()?;
    }
    let waits = when == When::Now && !driver.on_device(&place);
    driver.run_or_capture(state, stream, Work::Fill(fill))?;
    if waits {
        let state = driver.lock();
        let goal = Goal::Stream(stream, state.streams[&stream].last);
        return driver.wait(state, &goal).map(drop);
    }
    Ok(())
}

fn linear_fill(dst: u64, value: u32, element: u64, count: usize, when: When) -> Outcome {
    fill(
        Fill {
            dst,
            value,
            element,
            width: count as u64,
            height: 1,
            pitch: 0,
        },
        when,
    )
}

/// A copy between contexts, which waits for the pending work of both.
fn peer_now(dst: u64, to: CUcontext, src: u64, from: CUcontext, bytes: usize) -> Outcome {
    let driver = driver()?;
    let mut state = driver.lock();
    for context in [to, from] {
        state.healthy(context)?;
        let goal = state.everything(context);
        state = driver.wait(state, &goal)?;
    }
    drop(state);
    copy(dst, Side::Device, src, Side::Device, bytes, When::Now)
}

export! {
    fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) {
        copy(dst, Side::Any, src, Side::Any, bytes, When::Now)
    }

    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) {
        copy(dst, Side::Any, src, Side::Any, bytes, When::In(stream))
    }

    fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize) {
        copy(dst, Side::Device, src as u64, Side::Host, bytes, When::Now)
    }

    fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream) {
        copy(dst, Side::Device, src as u64, Side::Host, bytes, When::In(stream))
    }

    fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize) {
        copy(dst as u64, Side::Host, src, Side::Device, bytes, When::Now)
    }

    fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream) {
        copy(dst as u64, Side::Host, src, Side::Device, bytes, When::In(stream))
    }

    fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) {
        copy(dst, Side::Device, src, Side::Device, bytes, When::Now)
    }

    fn cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) {
        copy(dst, Side::Device, src, Side::Device, bytes, When::In(stream))
    }

    fn cuMemcpyPeer(dst: CUdeviceptr, to: CUcontext, src: CUdeviceptr, from: CUcontext, bytes: usize) {
        peer_now(dst, to, src, from, bytes)
    }

    fn cuMemcpyPeerAsync(
        dst: CUdeviceptr,
        to: CUcontext,
        src: CUdeviceptr,
        from: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) {
        let state = driver()?.lock();
        state.healthy(to)?;
        state.healthy(from)?;
        drop(state);
        copy(dst, Side::Device, src, Side::Device, bytes, When::In(stream))
    }

    fn cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize) {
        linear_fill(dst, value.into(), 1, count, When::Now)
    }

    fn cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize) {
        linear_fill(dst, value.into(), 2, count, When::Now)
    }

    fn cuMemsetD32_v2(dst: CUdeviceptr, value: u32, count: usize) {
        linear_fill(dst, value, 4, count, When::Now)
    }

    fn cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream) {
        linear_fill(dst, value.into(), 1, count, When::In(stream))
    }

    fn cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream) {
        linear_fill(dst, value.into(), 2, count, When::In(stream))
    }

    fn cuMemsetD32Async(dst: CUdeviceptr, value: u32, count: usize, stream: CUstream) {
        linear_fill(dst, value, 4, count, When::In(stream))
    }
}
