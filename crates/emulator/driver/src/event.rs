//! Events.

use std::sync::{Arc, OnceLock};

use crate::config::Order;
use crate::error::{Code, Outcome};
use crate::objects::event::{Event, Last};
use crate::objects::work::{Record, Work};
use crate::schedule::Goal;
use crate::state::driver;
use crate::types::{CUevent, CUstream, Out};

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

fn record(event: CUevent, stream: CUstream) -> Outcome {
    let driver = driver()?;
    let mut state = driver.lock();
    let stream = state.stream(stream)?;
    let found = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?;
    if found.context != state.streams[&stream].context {
        return Err(Code::INVALID_HANDLE);
    }
    if let Some(last) = state.record_captured(stream)? {
        state.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)?.last = last;
        return Ok(());
    }
    state.refuse_implicit(stream)?;
    let record = Arc::new(Record {
        stream,
        seq: state.seq + 1,
        done: OnceLock::new(),
    });
    state.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)?.last = Last::Recorded(record.clone());
    driver.submit(state, stream, Work::Record(record)).map(drop)
}

/// The record to wait for, if there was one.
fn last(event: CUevent) -> Outcome<Option<Arc<Record>>> {
    let mut state = driver()?.lock();
    let found = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?;
    let (context, last) = (found.context, found.last.clone());
    state.healthy(context)?;
    match last {
        Last::Captured { capture, .. } => {
            state.invalidate(capture);
            Err(Code::CAPTURED_EVENT)
        }
        Last::Never => Ok(None),
        Last::Recorded(record) => Ok(Some(record)),
    }
}

fn elapsed(out: Out<f32>, start: CUevent, end: CUevent) -> Outcome {
    let (from, to) = (last(start)?, last(end)?);
    let state = driver()?.lock();
    for event in [start, end] {
        if !state.events.get(&event).is_some_and(|e| e.timing) {
            return Err(Code::INVALID_HANDLE);
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        return Err(Code::INVALID_HANDLE);
    };
    let (Some(from), Some(to)) = (from.done.get(), to.done.get()) else {
        return Err(Code::NOT_READY);
    };
    let sign = if to >= from { 1.0 } else { -1.0 };
    out.put(sign * (to.max(from).duration_since(*from.min(to)).as_secs_f64() * 1e3) as f32)
}

export! {
    fn cuEventCreate(event: Out<CUevent>, flags: u32) {
        if flags & !7 != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = driver()?.lock();
        let context = state.current()?;
        let handle = CUevent(state.handle());
        event.put(handle)?;
        state.events.insert(handle, Event { context, timing: flags & DISABLE_TIMING == 0, last: Last::Never });
        Ok(())
    }

    fn cuEventDestroy_v2(event: CUevent) {
        driver()?.lock().events.remove(&event).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    fn cuEventRecord(event: CUevent, stream: CUstream) {
        record(event, stream)
    }

    fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32) {
        match flags {
            0 => record(event, stream),
            1 => {
                let mut state = driver()?.lock();
                let resolved = state.stream(stream)?;
                if state.streams[&resolved].capture.is_some() {
                    return Err(crate::unsupported::unsupported("cuEventRecordWithFlags(EXTERNAL) in a capture"));
                }
                drop(state);
                record(event, stream)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuEventQuery(event: CUevent) {
        let record = last(event)?;
        let driver = driver()?;
        let mut state = driver.lock();
        state.refuse_unsafe()?;
        let Some(record) = record else { return Ok(()) };
        let goal = Goal::Record(record);
        if matches!(driver.config.order, Order::Random(_)) {
            return driver.poll(state, &goal);
        }
        driver.wait(state, &goal).map(drop)
    }

    fn cuEventSynchronize(event: CUevent) {
        let record = last(event)?;
        let driver = driver()?;
        let mut state = driver.lock();
        state.refuse_unsafe()?;
        let Some(record) = record else { return Ok(()) };
        driver.wait(state, &Goal::Record(record)).map(drop)
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) {
        elapsed(milliseconds, start, end)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: CUevent, end: CUevent) {
        elapsed(milliseconds, start, end)
    }
}
