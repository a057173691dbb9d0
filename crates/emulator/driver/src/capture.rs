//! Stream capture: work becomes nodes of a graph instead of being done.
//!
//! Each stream of a capture holds the nodes that its next node depends on. An event recorded in one of them carries
//! those nodes to another stream: this is how a capture forks and joins.

use std::sync::MutexGuard;

use crate::error::{Code, Outcome};
use crate::objects::capture::{Capture, Joined, Mode};
use crate::objects::event::Last;
use crate::objects::graph::Graph;
use crate::objects::work::Work;
use crate::state::{Driver, State, driver, thread, thread_mode};
use crate::types::{CUcontext, CUgraph, CUgraphNode, CUstream, In, Out};

impl Driver {
    /// Does work in a stream, or makes it a node if the stream is being captured.
    pub(crate) fn run_or_capture(&self, mut state: MutexGuard<'_, State>, stream: CUstream, work: Work) -> Outcome {
        let Some(joined) = state.streams[&stream].capture.clone() else {
            state.refuse_implicit(stream)?;
            return self.submit(state, stream, work).map(drop);
        };
        let node = CUgraphNode(state.handle());
        let capture = state
            .captures
            .get_mut(&joined.capture)
            .ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        if capture.invalid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        capture.graph.add(node, work, joined.after);
        let handle = capture.handle;
        state.nodes.insert(node, handle);
        if let Some(stream) = state.streams.get_mut(&stream) {
            stream.capture = Some(Joined {
                capture: joined.capture,
                after: vec![node],
            });
        }
        Ok(())
    }
}

impl State {
    /// Makes a capture fail at its end.
    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    /// A stream is destroyed while it is captured: the capture fails, and ends if it was begun there.
    pub(crate) fn abandon(&mut self, stream: CUstream, capture: u64) {
        self.invalidate(capture);
        if self.captures.get(&capture).is_some_and(|c| c.origin == stream) {
            self.finish(capture);
        }
    }

    /// Ends a capture in the streams that take part in it.
    fn finish(&mut self, id: u64) -> Option<Capture> {
        for s in self.streams.values_mut() {
            s.capture.take_if(|j| j.capture == id);
        }
        let capture = self.captures.remove(&id)?;
        if capture.invalid {
            self.nodes.retain(|_, graph| *graph != capture.handle);
        }
        Some(capture)
    }

    fn capture_of(&self, stream: CUstream) -> Option<u64> {
        Some(self.streams.get(&stream)?.capture.as_ref()?.capture)
    }

    /// Refuses a call that cannot be made while the stream is captured, such as waiting for it.
    pub(crate) fn refuse_captured(&mut self, stream: CUstream) -> Outcome {
        if let Some(capture) = self.capture_of(stream) {
            self.invalidate(capture);
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        self.refuse_implicit(stream)
    }

    /// Refuses a call that waits for a whole context of which a stream is captured.
    pub(crate) fn refuse_captured_context(&mut self, context: CUcontext) -> Outcome {
        let ours = self.streams.values().filter(|s| s.context == context);
        let captures: Vec<u64> = ours.filter_map(|s| Some(s.capture.as_ref()?.capture)).collect();
        captures.iter().for_each(|c| self.invalidate(*c));
        if captures.is_empty() {
            Ok(())
        } else {
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
    }

    /// The captures that a use of the legacy stream would depend on: of blocking streams in its context.
    fn implicit(&self, stream: CUstream) -> Vec<u64> {
        let Some(s) = self.streams.get(&stream).filter(|s| s.legacy) else {
            return Vec::new();
        };
        let blocking = self.streams.values().filter(|o| o.context == s.context && o.blocking);
        blocking.filter_map(|o| Some(o.capture.as_ref()?.capture)).collect()
    }

    /// Refuses work in the legacy stream that would wait for a stream that is captured.
    pub(crate) fn refuse_implicit(&mut self, stream: CUstream) -> Outcome {
        let captures = self.implicit(stream);
        captures.iter().for_each(|c| self.invalidate(*c));
        if captures.is_empty() {
            Ok(())
        } else {
            Err(Code::STREAM_CAPTURE_IMPLICIT)
        }
    }

    /// Refuses a call that may depend on or disturb a capture (allocation, synchronous copies, waiting), by the modes
    /// of the captures and of this thread.
    pub(crate) fn refuse_unsafe(&mut self) -> Outcome {
        let (mode, me) = (thread_mode(None), thread());
        let mut refused = false;
        for capture in self.captures.values_mut() {
            let own = capture.thread == me && capture.mode != Mode::Relaxed;
            let others = mode == Mode::Global && capture.mode == Mode::Global;
            if mode != Mode::Relaxed && (own || others) {
                capture.invalid = true;
                refused = true;
            }
        }
        if refused {
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        } else {
            Ok(())
        }
    }

    /// Refuses a captured stream's wait for something that was not captured.
    pub(crate) fn refuse_isolation(&mut self, stream: CUstream) -> Outcome {
        if let Some(capture) = self.capture_of(stream) {
            self.invalidate(capture);
        }
        Err(Code::STREAM_CAPTURE_ISOLATION)
    }

    /// The recording of an event in a stream that is captured.
    pub(crate) fn record_captured(&mut self, stream: CUstream) -> Outcome<Option<Last>> {
        let Some(joined) = self.streams[&stream].capture.clone() else {
            return Ok(None);
        };
        if self.captures.get(&joined.capture).is_none_or(|c| c.invalid) {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        Ok(Some(Last::Captured {
            capture: joined.capture,
            nodes: joined.after,
        }))
    }

    /// Lets a stream wait for an event that was recorded in a capture: the stream becomes part of it.
    pub(crate) fn join(&mut self, stream: CUstream, capture: u64, nodes: &[CUgraphNode]) -> Outcome {
        let Some(found) = self.captures.get(&capture) else {
            return Err(Code::CAPTURED_EVENT);
        };
        if found.invalid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        if self.streams[&stream].legacy {
            self.invalidate(capture);
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        if let Some(other) = self.capture_of(stream).filter(|other| *other != capture) {
            self.invalidate(capture);
            self.invalidate(other);
            return Err(Code::STREAM_CAPTURE_MERGE);
        }
        let stream = self.streams.get_mut(&stream).ok_or(Code::INVALID_HANDLE)?;
        let joined = stream.capture.get_or_insert(Joined {
            capture,
            after: Vec::new(),
        });
        for node in nodes {
            if !joined.after.contains(node) {
                joined.after.push(*node);
            }
        }
        Ok(())
    }

    fn begin(&mut self, stream: CUstream, mode: Mode) -> Outcome {
        let stream = self.stream(stream)?;
        let s = &self.streams[&stream];
        let context = s.context;
        if s.legacy {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if s.capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let (id, handle) = (self.handle(), CUgraph(self.handle()));
        let graph = Graph::new(context);
        let capture = Capture {
            mode,
            thread: thread(),
            origin: stream,
            graph,
            handle,
            invalid: false,
        };
        self.captures.insert(id, capture);
        if let Some(s) = self.streams.get_mut(&stream) {
            s.capture = Some(Joined {
                capture: id,
                after: Vec::new(),
            });
        }
        Ok(())
    }

    fn end(&mut self, stream: CUstream) -> Outcome<CUgraph> {
        let stream = self.stream(stream)?;
        let joined = self.streams[&stream].capture.clone().ok_or(Code::ILLEGAL_STATE)?;
        let id = joined.capture;
        let capture = self.captures.get_mut(&id).ok_or(Code::ILLEGAL_STATE)?;
        if capture.origin != stream {
            capture.invalid = true;
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != thread() {
            capture.invalid = true;
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let valid = !capture.invalid;
        capture.invalid |= !capture.graph.all_before(&joined.after);
        let capture = self.finish(id).ok_or(Code::ILLEGAL_STATE)?;
        match capture.invalid {
            true if valid => Err(Code::STREAM_CAPTURE_UNJOINED),
            true => Err(Code::STREAM_CAPTURE_INVALIDATED),
            false => {
                self.graphs.insert(capture.handle, capture.graph);
                Ok(capture.handle)
            }
        }
    }

    /// Adds to (0) or replaces (1) the nodes that the stream's next node depends on.
    fn set_after(&mut self, stream: CUstream, nodes: Vec<CUgraphNode>, flags: u32) -> Outcome {
        let stream = self.stream(stream)?;
        let id = self.capture_of(stream).ok_or(Code::ILLEGAL_STATE)?;
        let capture = self
            .captures
            .get(&id)
            .filter(|c| !c.invalid)
            .ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        if flags > 1 || nodes.iter().any(|n| self.nodes.get(n) != Some(&capture.handle)) {
            return Err(Code::INVALID_VALUE);
        }
        let joined = self
            .streams
            .get_mut(&stream)
            .and_then(|s| s.capture.as_mut())
            .ok_or(Code::ILLEGAL_STATE)?;
        if flags == 1 {
            joined.after.clear();
        }
        for node in nodes {
            if !joined.after.contains(&node) {
                joined.after.push(node);
            }
        }
        Ok(())
    }

    /// 0 for none, 1 for active and 2 for invalidated, as the API has it, with the capture.
    fn status(&mut self, stream: CUstream) -> Outcome<(i32, Option<Joined>)> {
        let stream = self.stream(stream)?;
        // This query does not invalidate the capture.
        if !self.implicit(stream).is_empty() {
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        let joined = self.streams[&stream].capture.clone();
        let invalid = joined
            .as_ref()
            .and_then(|j| self.captures.get(&j.capture))
            .is_some_and(|c| c.invalid);
        Ok((if joined.is_none() { 0 } else { 1 + i32::from(invalid) }, joined))
    }
}

/// The results of `cuStreamGetCaptureInfo`, in all its versions.
struct Info {
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    nodes: Out<*const CUgraphNode>,
    count: Out<usize>,
}

fn info(stream: CUstream, to: Info) -> Outcome {
    let mut state = driver()?.lock();
    let (status, joined) = state.status(stream)?;
    to.status.put(status)?;
    let Some(joined) = joined.filter(|_| status == 1) else {
        return Ok(());
    };
    to.id.put_if(joined.capture);
    to.graph.put_if(state.captures[&joined.capture].handle);
    to.count.put_if(joined.after.len());
    let resolved = state.stream(stream)?;
    let list = state.streams[&resolved]
        .capture
        .as_ref()
        .map_or(std::ptr::null(), |j| j.after.as_ptr());
    to.nodes.put_if(list);
    Ok(())
}

export! {
    fn cuStreamBeginCapture(stream: CUstream) {
        driver()?.lock().begin(stream, Mode::Global)
    }

    fn cuStreamBeginCapture_v2(stream: CUstream, mode: i32) {
        driver()?.lock().begin(stream, mode.try_into()?)
    }

    fn cuStreamEndCapture(stream: CUstream, graph: Out<CUgraph>) {
        let ended = driver()?.lock().end(stream);
        graph.put(ended.unwrap_or_default())?;
        ended.map(|_| ())
    }

    fn cuStreamIsCapturing(stream: CUstream, status: Out<i32>) {
        let mut state = driver()?.lock();
        status.put(state.status(stream)?.0)
    }

    fn cuStreamGetCaptureInfo(stream: CUstream, status: Out<i32>, id: Out<u64>) {
        info(stream, Info { status, id, graph: Out::NULL, nodes: Out::NULL, count: Out::NULL })
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: CUstream,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<CUgraph>,
        dependencies: Out<*const CUgraphNode>,
        count: Out<usize>,
    ) {
        info(stream, Info { status, id, graph, nodes: dependencies, count })
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: CUstream,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<CUgraph>,
        dependencies: Out<*const CUgraphNode>,
        edges: Out<u64>,
        count: Out<usize>,
    ) {
        edges.put_if(0);
        info(stream, Info { status, id, graph, nodes: dependencies, count })
    }

    fn cuStreamUpdateCaptureDependencies(stream: CUstream, nodes: In<CUgraphNode>, count: usize, flags: u32) {
        driver()?.lock().set_after(stream, nodes.list(count)?, flags)
    }

    fn cuStreamUpdateCaptureDependencies_v2(
        stream: CUstream, nodes: In<CUgraphNode>, _data: In<u64>, count: usize, flags: u32,
    ) {
        driver()?.lock().set_after(stream, nodes.list(count)?, flags)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) {
        let new = Mode::try_from(mode.get()?)?;
        mode.put(thread_mode(Some(new)) as i32)
    }
}
