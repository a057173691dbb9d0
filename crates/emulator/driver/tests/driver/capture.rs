//! Stream capture: the calls that become nodes, forks and joins of captures, and every error of captures.

use kiln_emulator::*;

use super::harness::{alloc, copy, event, peek, pinned, process, set, start, stream, upload};

const NON_BLOCKING: u32 = 1;
const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) {
    process(&format!("capture::{name}"), options, body);
}

fn begin(mode: i32) -> CUstream {
    let s = stream(NON_BLOCKING);
    cu!(cuStreamBeginCapture_v2(s, mode));
    s
}

fn end(s: CUstream) -> CUgraph {
    let mut graph = CUgraph::default();
    cu!(cuStreamEndCapture(s, (&mut graph).into()));
    assert_ne!(graph.0, 0);
    graph
}

/// Checks that the capture was made invalid, and ends it.
fn invalid(s: CUstream) {
    let (mut status, mut graph) = (0, CUgraph(7));
    cu!(cuStreamIsCapturing(s, (&mut status).into()));
    assert_eq!(status, 2);
    let at = 64;
    cu!(cuMemsetD32Async(at, 0, 0, s));
    cu!(cuStreamEndCapture(s, (&mut graph).into()) => STREAM_CAPTURE_INVALIDATED);
    assert_eq!(graph.0, 0);
    cu!(cuStreamIsCapturing(s, (&mut status).into()));
    assert_eq!(status, 0);
    cu!(cuStreamSynchronize(s));
}

fn launch(graph: CUgraph, s: CUstream) {
    let mut exec = CUgraphExec::default();
    cu!(cuGraphInstantiateWithFlags((&mut exec).into(), graph, 0));
    cu!(cuGraphLaunch(exec, s));
    cu!(cuGraphExecDestroy(exec));
}

#[test]
fn captured_work_is_done_by_launches_alone() {
    for order in ["eager", "lazy", "random:1", "random:2"] {
        test("captured_work_is_done_by_launches_alone", &[("STREAMS", order)], || {
            start(0);
            let at = alloc(12);
            upload(at, &[1, 0, 0]);
            let host = pinned(&[5]);
            let s = begin(GLOBAL);
            let (mut status, mut id) = (0, 0);
            cu!(cuStreamGetCaptureInfo(s, (&mut status).into(), (&mut id).into()));
            assert!(status == 1 && id != 0);
            copy(at + 4, at, s);
            cu!(cuMemcpyHtoDAsync_v2(at + 8, host.as_ptr().cast(), 4, s));
            set(at, 7, s);
            let graph = end(s);
            assert_eq!(peek(at, 3), [1, 0, 0]);
            launch(graph, s);
            host[0] = 6;
            cu!(cuStreamSynchronize(s));
            let first = peek(at, 3);
            assert_eq!(first[..2], [7, 1]);
            launch(graph, s);
            cu!(cuStreamSynchronize(s));
            assert_eq!(peek(at, 3), [7, 7, 6]);
        });
    }
}

#[test]
fn captures_fork_and_join_through_events() {
    for order in [
        "eager", "lazy", "random:1", "random:2", "random:3", "random:4", "random:5",
    ] {
        test("captures_fork_and_join_through_events", &[("STREAMS", order)], || {
            start(0);
            let at = alloc(16);
            upload(at, &[0; 4]);
            let (s, side, fork, join) = (begin(GLOBAL), stream(NON_BLOCKING), event(), event());
            set(at, 1, s);
            cu!(cuEventRecord(fork, s));
            cu!(cuStreamWaitEvent(side, fork, 0));
            copy(at + 4, at, side);
            copy(at + 8, at, s);
            set(at, 2, s);
            cu!(cuEventRecord(join, side));
            cu!(cuStreamWaitEvent(s, join, 0));
            copy(at + 12, at + 4, s);
            let mut status = 0;
            cu!(cuStreamIsCapturing(side, (&mut status).into()));
            assert_eq!(status, 1);
            let graph = end(s);
            cu!(cuStreamIsCapturing(side, (&mut status).into()));
            assert_eq!(status, 0);
            let mut edges = 0;
            cu!(cuGraphGetEdges(graph, Out::NULL, Out::NULL, (&mut edges).into()));
            assert_eq!(edges, 5);
            for _ in 0..8 {
                upload(at, &[9; 4]);
                launch(graph, s);
                cu!(cuStreamSynchronize(s));
                let now = peek(at, 4);
                // The side stream's copy and the main one's change of its source are not ordered.
                assert!(
                    now[..1] == [2] && now[2] == 1 && (now[1] == 1 || now[1] == 2) && now[3] == now[1],
                    "{now:?}"
                );
            }
        });
    }
}

#[test]
fn unjoined_work_is_904() {
    test("unjoined_work_is_904", &[], || {
        start(0);
        let at = alloc(4);
        let (s, side, fork) = (begin(GLOBAL), stream(NON_BLOCKING), event());
        set(at, 1, s);
        cu!(cuEventRecord(fork, s));
        cu!(cuStreamWaitEvent(side, fork, 0));
        set(at, 2, side);
        let mut graph = CUgraph(1);
        cu!(cuStreamEndCapture(s, (&mut graph).into()) => STREAM_CAPTURE_UNJOINED);
        assert_eq!(graph.0, 0);
        cu!(cuStreamSynchronize(side));
    });
}

#[test]
fn ending_elsewhere_is_903_or_908() {
    test("ending_elsewhere_is_903_or_908", &[], || {
        let context = start(0);
        let (s, side, fork, mut graph) = (begin(GLOBAL), stream(NON_BLOCKING), event(), CUgraph::default());
        cu!(cuStreamEndCapture(side, (&mut graph).into()) => ILLEGAL_STATE);
        cu!(cuEventRecord(fork, s));
        cu!(cuStreamWaitEvent(side, fork, 0));
        cu!(cuStreamEndCapture(side, (&mut graph).into()) => STREAM_CAPTURE_UNMATCHED);
        invalid(s);
        let elsewhere = |s: CUstream| {
            let code = std::thread::spawn(move || {
                cu!(cuCtxSetCurrent(context));
                let mut graph = CUgraph::default();
                // SAFETY: the graph lives for the call.
                unsafe { cuStreamEndCapture(s, (&mut graph).into()) }
            });
            code.join().unwrap()
        };
        for mode in [GLOBAL, THREAD_LOCAL] {
            let s = begin(mode);
            assert_eq!(elsewhere(s), Code::STREAM_CAPTURE_WRONG_THREAD);
            invalid(s);
        }
        assert_eq!(elsewhere(begin(RELAXED)), Code::SUCCESS);
    });
}

#[test]
fn what_waits_is_900_and_invalidates() {
    test("what_waits_is_900_and_invalidates", &[], || {
        start(0);
        let (at, done) = (alloc(4), event());
        let other = stream(NON_BLOCKING);
        let mut host = 0u32;
        let mut pointer = 0;
        cu!(cuEventRecord(done, other));
        // In every mode a captured stream and its context cannot be waited for.
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            let s = begin(mode);
            cu!(cuStreamSynchronize(s) => STREAM_CAPTURE_UNSUPPORTED);
            invalid(s);
            let s = begin(mode);
            cu!(cuStreamQuery(s) => STREAM_CAPTURE_UNSUPPORTED);
            invalid(s);
            let s = begin(mode);
            cu!(cuCtxSynchronize() => STREAM_CAPTURE_UNSUPPORTED);
            invalid(s);
        }
        for mode in [GLOBAL, THREAD_LOCAL] {
            let s = begin(mode);
            cu!(cuMemAlloc_v2((&mut pointer).into(), 4) => STREAM_CAPTURE_UNSUPPORTED);
            invalid(s);
            let s = begin(mode);
            cu!(cuMemFree_v2(at) => STREAM_CAPTURE_UNSUPPORTED);
            invalid(s);
            let s = begin(mode);
            cu!(cuMemcpyDtoH_v2((&raw mut host).cast(), at, 4) => STREAM_CAPTURE_UNSUPPORTED);
            invalid(s);
            let s = begin(mode);
            cu!(cuEventQuery(done) => STREAM_CAPTURE_UNSUPPORTED);
            invalid(s);
            let s = begin(mode);
            cu!(cuStreamSynchronize(other) => STREAM_CAPTURE_UNSUPPORTED);
            invalid(s);
        }
        let s = begin(RELAXED);
        cu!(cuMemAlloc_v2((&mut pointer).into(), 4));
        cu!(cuMemcpyDtoH_v2((&raw mut host).cast(), at, 4));
        cu!(cuEventSynchronize(done));
        end(s);
    });
}

#[test]
fn modes_decide_for_other_threads() {
    test("modes_decide_for_other_threads", &[], || {
        let context = start(0);
        let allocate = |mode: i32| {
            let thread = std::thread::spawn(move || {
                cu!(cuCtxSetCurrent(context));
                let mut mine = mode;
                cu!(cuThreadExchangeStreamCaptureMode((&mut mine).into()));
                assert_eq!(mine, GLOBAL);
                let mut at = 0;
                // SAFETY: the address lives for the call.
                unsafe { cuMemAlloc_v2((&mut at).into(), 4) }
            });
            thread.join().unwrap()
        };
        let s = begin(GLOBAL);
        assert_eq!(allocate(THREAD_LOCAL), Code::SUCCESS);
        assert_eq!(allocate(RELAXED), Code::SUCCESS);
        assert_eq!(allocate(GLOBAL), Code::STREAM_CAPTURE_UNSUPPORTED);
        invalid(s);
        let s = begin(THREAD_LOCAL);
        assert_eq!(allocate(GLOBAL), Code::SUCCESS);
        end(s);
        let s = begin(GLOBAL);
        let mut mode = RELAXED;
        cu!(cuThreadExchangeStreamCaptureMode((&mut mode).into()));
        alloc(4);
        end(s);
        mode = 3;
        cu!(cuThreadExchangeStreamCaptureMode((&mut mode).into()) => INVALID_VALUE);
    });
}

#[test]
fn crossing_the_border_is_905_and_merging_902() {
    test("crossing_the_border_is_905_and_merging_902", &[], || {
        start(0);
        let (outside, before) = (stream(NON_BLOCKING), event());
        cu!(cuEventRecord(before, outside));
        let s = begin(RELAXED);
        cu!(cuStreamWaitEvent(s, before, 0) => STREAM_CAPTURE_ISOLATION);
        invalid(s);
        let (a, b, from_a) = (begin(RELAXED), begin(RELAXED), event());
        cu!(cuEventRecord(from_a, a));
        cu!(cuStreamWaitEvent(b, from_a, 0) => STREAM_CAPTURE_MERGE);
        invalid(a);
        invalid(b);
    });
}

#[test]
fn the_legacy_stream_is_906() {
    test("the_legacy_stream_is_906", &[], || {
        start(0);
        let at = alloc(4);
        let mut host = 0u32;
        let null = CUstream(0);
        cu!(cuStreamBeginCapture_v2(null, RELAXED) => STREAM_CAPTURE_UNSUPPORTED);
        for _ in 0..2 {
            let s = stream(0);
            cu!(cuStreamBeginCapture_v2(s, RELAXED));
            cu!(cuMemsetD32Async(at, 1, 1, null) => STREAM_CAPTURE_IMPLICIT);
            invalid(s);
            cu!(cuStreamBeginCapture_v2(s, RELAXED));
            cu!(cuMemcpyDtoH_v2((&raw mut host).cast(), at, 4) => STREAM_CAPTURE_IMPLICIT);
            invalid(s);
        }
        // The query does not invalidate the capture.
        let (s, mut status) = (stream(0), 9);
        cu!(cuStreamBeginCapture_v2(s, RELAXED));
        cu!(cuStreamIsCapturing(null, (&mut status).into()) => STREAM_CAPTURE_IMPLICIT);
        end(s);
        // A non-blocking stream is not ordered with it.
        let s = begin(RELAXED);
        cu!(cuMemsetD32Async(at, 1, 1, null));
        end(s);
        let (s, fork) = (begin(RELAXED), event());
        cu!(cuEventRecord(fork, s));
        cu!(cuStreamWaitEvent(null, fork, 0) => STREAM_CAPTURE_IMPLICIT);
        invalid(s);
    });
}

#[test]
fn captured_events_are_907() {
    test("captured_events_are_907", &[], || {
        start(0);
        for wait in [false, true] {
            let (s, e) = (begin(RELAXED), event());
            cu!(cuEventRecord(e, s));
            if wait {
                cu!(cuEventSynchronize(e) => CAPTURED_EVENT);
            } else {
                cu!(cuEventQuery(e) => CAPTURED_EVENT);
            }
            invalid(s);
            let mut ms = 0f32;
            cu!(cuEventElapsedTime((&mut ms).into(), e, e) => CAPTURED_EVENT);
            // Recorded again, it is an ordinary event.
            cu!(cuEventRecord(e, s));
            cu!(cuEventSynchronize(e));
        }
    });
}

#[test]
fn captures_do_not_nest_and_modes_are_checked() {
    test("captures_do_not_nest_and_modes_are_checked", &[], || {
        start(0);
        let s = begin(GLOBAL);
        cu!(cuStreamBeginCapture_v2(s, GLOBAL) => ILLEGAL_STATE);
        let graph = end(s);
        let mut count = 9;
        cu!(cuGraphGetNodes(graph, Out::NULL, (&mut count).into()));
        assert_eq!(count, 0);
        launch(graph, s);
        cu!(cuStreamBeginCapture_v2(s, 3) => INVALID_VALUE);
        cu!(cuStreamSynchronize(s));
        let s = begin(GLOBAL);
        cu!(cuStreamDestroy_v2(s));
        // The capture went with its stream.
        alloc(4);
    });
}

#[test]
fn dependencies_of_a_capture_can_be_changed() {
    test("dependencies_of_a_capture_can_be_changed", &[], || {
        start(0);
        let (s, at) = (begin(RELAXED), alloc(4));
        set(at, 1, s);
        let (mut status, mut nodes, mut count) = (0, std::ptr::null::<CUgraphNode>(), 0);
        let mut info = || {
            let (id, graph) = (Out::NULL, Out::NULL);
            let list = (&mut nodes).into();
            cu!(cuStreamGetCaptureInfo_v2(
                s,
                (&mut status).into(),
                id,
                graph,
                list,
                (&mut count).into()
            ));
            assert_eq!((status, count), (1, 1));
            // SAFETY: the driver gives `count` nodes that live until the stream is used again.
            unsafe { *nodes }
        };
        let first: CUgraphNode = info();
        set(at, 2, s);
        let second = info();
        assert_ne!(first, second);
        cu!(cuStreamUpdateCaptureDependencies(s, (&first).into(), 1, 1));
        set(at, 3, s);
        cu!(cuStreamUpdateCaptureDependencies(s, (&second).into(), 1, 0));
        cu!(cuStreamUpdateCaptureDependencies(s, (&CUgraphNode(5)).into(), 1, 0) => INVALID_VALUE);
        set(at, 4, s);
        let graph = end(s);
        let mut edges = 0;
        cu!(cuGraphGetEdges(graph, Out::NULL, Out::NULL, (&mut edges).into()));
        assert_eq!(edges, 4);
        cu!(cuStreamUpdateCaptureDependencies(s, In::NULL, 0, 0) => ILLEGAL_STATE);
    });
}
