//! Streams.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;

use crate::config::Order;
use crate::error::{Code, Outcome};
use crate::objects::event::Last;
use crate::objects::stream::{NON_BLOCKING, PRIORITIES, Stream};
use crate::objects::work::{HostCall, Work};
use crate::schedule::Goal;
use crate::state::{State, driver};
use crate::types::{CUcontext, CUevent, CUhostFn, CUstream, CUstreamCallback, Out};

thread_local! {
    /// This thread's own stream in each context.
    static OWN: RefCell<HashMap<CUcontext, CUstream>> = RefCell::new(HashMap::new());
}

impl State {
    /// The stream that a handle means in the current context.
    pub(crate) fn stream(&mut self, handle: CUstream) -> Outcome<CUstream> {
        let context = self.current()?;
        match handle.0 {
            0 | 1 => Ok(self.contexts[&context].legacy),
            2 => {
                if let Some(own) = OWN.with_borrow(|m| m.get(&context).copied())
                    && self.streams.contains_key(&own)
                {
                    return Ok(own);
                }
                let own = CUstream(self.handle());
                self.streams.insert(own, Stream::new(context, 0, 0, false));
                OWN.with_borrow_mut(|m| m.insert(context, own));
                Ok(own)
            }
            _ => {
                let stream = self
                    .streams
                    .get(&handle)
                    .filter(|s| !s.destroyed)
                    .ok_or(Code::INVALID_HANDLE)?;
                self.healthy(stream.context)?;
                Ok(handle)
            }
        }
    }
}

fn create(out: Out<CUstream>, flags: u32, priority: i32) -> Outcome {
    if flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = driver()?.lock();
    let context = state.current()?;
    let handle = CUstream(state.handle());
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    out.put(handle)?;
    state
        .streams
        .insert(handle, Stream::new(context, flags, priority, false));
    Ok(())
}

export! {
    fn cuStreamCreate(stream: Out<CUstream>, flags: u32) {
        create(stream, flags, 0)
    }

    fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: u32, priority: i32) {
        create(stream, flags, priority)
    }

    fn cuStreamDestroy_v2(stream: CUstream) {
        let mut state = driver()?.lock();
        let found = state.streams.get_mut(&stream).filter(|s| !s.destroyed && !s.legacy);
        let found = found.ok_or(Code::INVALID_HANDLE)?;
        found.destroyed = true;
        let (idle, joined) = (found.idle(), found.capture.take());
        if let Some(joined) = joined {
            state.abandon(stream, joined.capture);
        }
        if idle {
            state.streams.remove(&stream);
        }
        Ok(())
    }

    fn cuStreamGetPriority(stream: CUstream, priority: Out<i32>) {
        let mut state = driver()?.lock();
        let stream = state.stream(stream)?;
        priority.put(state.streams[&stream].priority)
    }

    fn cuStreamGetFlags(stream: CUstream, flags: Out<u32>) {
        let mut state = driver()?.lock();
        let stream = state.stream(stream)?;
        flags.put(state.streams[&stream].flags)
    }

    fn cuStreamGetCtx(stream: CUstream, context: Out<CUcontext>) {
        let mut state = driver()?.lock();
        let stream = state.stream(stream)?;
        context.put(state.streams[&stream].context)
    }

    fn cuStreamGetId(stream: CUstream, id: Out<u64>) {
        let mut state = driver()?.lock();
        id.put(state.stream(stream)?.0)
    }

    fn cuStreamGetDevice(stream: CUstream, device: Out<i32>) {
        let mut state = driver()?.lock();
        let stream = state.stream(stream)?;
        let context = state.streams[&stream].context;
        device.put(state.contexts[&context].device as i32)
    }

    fn cuStreamQuery(stream: CUstream) {
        let driver = driver()?;
        let mut state = driver.lock();
        let stream = state.stream(stream)?;
        state.refuse_captured(stream)?;
        let goal = Goal::Stream(stream, state.streams[&stream].last);
        if matches!(driver.config.order, Order::Random(_)) {
            return driver.poll(state, &goal);
        }
        driver.wait(state, &goal).map(drop)
    }

    fn cuStreamSynchronize(stream: CUstream) {
        let driver = driver()?;
        let mut state = driver.lock();
        let stream = state.stream(stream)?;
        state.refuse_captured(stream)?;
        state.refuse_unsafe()?;
        let goal = Goal::Stream(stream, state.streams[&stream].last);
        driver.wait(state, &goal).map(drop)
    }

    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let driver = driver()?;
        let mut state = driver.lock();
        let stream = state.stream(stream)?;
        let last = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?.last.clone();
        match last {
            Last::Captured { capture, nodes } => state.join(stream, capture, &nodes),
            _ if state.streams[&stream].capture.is_some() => state.refuse_isolation(stream),
            Last::Never => Ok(()),
            Last::Recorded(record) => {
                state.refuse_implicit(stream)?;
                driver.submit(state, stream, Work::Wait(record)).map(drop)
            }
        }
    }

    fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) {
        if function.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        let driver = driver()?;
        let mut state = driver.lock();
        let stream = state.stream(stream)?;
        driver.run_or_capture(state, stream, Work::Host(HostCall::Func(function, data as usize)))
    }

    fn cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: u32) {
        if callback.is_none() || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let driver = driver()?;
        let mut state = driver.lock();
        let given = stream;
        let stream = state.stream(stream)?;
        state.refuse_captured(stream)?;
        let call = HostCall::Callback(callback, given, data as usize);
        driver.run_or_capture(state, stream, Work::Host(call))
    }

    fn cuStreamAttachMemAsync(stream: CUstream, pointer: u64, _length: usize, _flags: u32) {
        let driver = driver()?;
        driver.lock().stream(stream)?;
        driver.memory.find(pointer).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
}
