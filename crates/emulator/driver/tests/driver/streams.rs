//! The order of work: the guarantees of streams, events and the legacy stream, and their limits.

use std::ffi::c_void;
use std::sync::Mutex;

use kiln_emulator::*;

use super::harness::{alloc, copy, event, peek, pinned, process, set, start, stream, upload};

const NON_BLOCKING: u32 = 1;

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) {
    process(&format!("streams::{name}"), options, body);
}

/// The value that a consumer in one stream reads of a producer in another, with an event between them or not.
fn handover(waits: bool, flags: u32) -> u32 {
    start(0);
    let (a, b, at) = (stream(flags), stream(flags), alloc(8));
    upload(at, &[1, 0]);
    let done = event();
    set(at, 2, a);
    cu!(cuEventRecord(done, a));
    if waits {
        cu!(cuStreamWaitEvent(b, done, 0));
    }
    copy(at + 4, at, b);
    cu!(cuStreamSynchronize(b));
    peek(at + 4, 1)[0]
}

#[test]
fn a_missing_wait_shows_when_lazy() {
    test("a_missing_wait_shows_when_lazy", &[("STREAMS", "lazy")], || {
        assert_eq!(handover(true, NON_BLOCKING), 2);
        assert_eq!(handover(false, NON_BLOCKING), 1);
        assert_eq!(handover(false, 0), 1);
    });
}

#[test]
fn a_missing_wait_shows_with_some_seed() {
    // The parent cannot see the child's values; the child itself runs many hand-overs.
    test(
        "a_missing_wait_shows_with_some_seed",
        &[("STREAMS", "random:1")],
        || {
            let seen: Vec<u32> = (0..64).map(|_| handover(false, NON_BLOCKING)).collect();
            assert!(seen.contains(&1) && seen.contains(&2), "{seen:?}");
            assert!((0..64).all(|_| handover(true, NON_BLOCKING) == 2));
        },
    );
}

#[test]
fn eager_work_is_done_when_the_call_returns() {
    test("eager_work_is_done_when_the_call_returns", &[], || {
        assert_eq!(handover(false, NON_BLOCKING), 2);
        let at = alloc(4);
        let s = stream(NON_BLOCKING);
        set(at, 5, s);
        cu!(cuStreamQuery(s));
        assert_eq!(peek(at, 1), [5]);
    });
}

#[test]
fn the_legacy_stream_orders_blocking_streams() {
    for order in ["eager", "lazy", "random:1", "random:2", "random:3", "random:4"] {
        test(
            "the_legacy_stream_orders_blocking_streams",
            &[("STREAMS", order)],
            || {
                start(0);
                let (s, free, at) = (stream(0), stream(NON_BLOCKING), alloc(16));
                for n in 1..20 {
                    cu!(cuMemsetD32Async(at, 0, 4, CUstream(0)));
                    set(at, n, s);
                    copy(at + 4, at, CUstream(1));
                    copy(at + 8, at + 4, s);
                    set(at + 12, n, free);
                    let two = stream(0);
                    copy(at, at + 4, two);
                    assert_eq!(peek(at, 3), [n; 3]);
                    cu!(cuStreamDestroy_v2(two));
                }
            },
        );
    }
}

#[test]
fn a_synchronous_copy_does_not_wait_for_non_blocking_streams() {
    test(
        "a_synchronous_copy_does_not_wait_for_non_blocking_streams",
        &[("STREAMS", "lazy")],
        || {
            start(0);
            let (blocking, free, at) = (stream(0), stream(NON_BLOCKING), alloc(8));
            upload(at, &[1, 1]);
            set(at, 2, blocking);
            set(at + 4, 2, free);
            assert_eq!(peek(at, 2), [2, 1]);
            cu!(cuCtxSynchronize());
            assert_eq!(peek(at, 2), [2, 2]);
        },
    );
}

#[test]
fn pageable_sources_are_read_at_issue_and_pinned_ones_when_copied() {
    test(
        "pageable_sources_are_read_at_issue_and_pinned_ones_when_copied",
        &[("STREAMS", "lazy")],
        || {
            start(0);
            let (s, at) = (stream(NON_BLOCKING), alloc(8));
            let mut pageable = [1u32];
            let page_locked = pinned(&[1]);
            cu!(cuMemcpyHtoDAsync_v2(at, pageable.as_ptr().cast(), 4, s));
            cu!(cuMemcpyHtoDAsync_v2(at + 4, page_locked.as_ptr().cast(), 4, s));
            pageable[0] = 2;
            page_locked[0] = 2;
            cu!(cuStreamSynchronize(s));
            assert_eq!(peek(at, 2), [1, 2]);
            assert_eq!(pageable, [2]);
            // A copy to pageable memory has happened when the call returns; one to page-locked memory need not.
            cu!(cuMemcpyDtoHAsync_v2(page_locked.as_mut_ptr().cast(), at, 4, s));
            assert_eq!(page_locked, [2]);
            cu!(cuMemcpyDtoHAsync_v2(pageable.as_mut_ptr().cast(), at, 4, s));
            assert_eq!((pageable[0], page_locked[0]), (1, 1));
        },
    );
}

#[test]
fn events_are_done_when_what_came_before_is() {
    for order in ["eager", "lazy", "random:5"] {
        test(
            "events_are_done_when_what_came_before_is",
            &[("STREAMS", order)],
            || {
                start(0);
                let (s, at) = (stream(NON_BLOCKING), alloc(4));
                let (first, last) = (event(), event());
                let mut ms = 0f32;
                cu!(cuEventQuery(first));
                cu!(cuEventElapsedTime((&mut ms).into(), first, last) => INVALID_HANDLE);
                cu!(cuEventRecord(first, s));
                set(at, 9, s);
                cu!(cuEventRecord(last, s));
                // SAFETY: an event's handle is all that is given.
                while unsafe { cuEventQuery(last) } == Code::NOT_READY {}
                assert_eq!(peek(at, 1), [9]);
                cu!(cuEventElapsedTime((&mut ms).into(), first, last));
                assert!((0.0..1e4).contains(&ms));
                let mut plain = CUevent::default();
                cu!(cuEventCreate((&mut plain).into(), 2));
                cu!(cuEventRecord(plain, s));
                cu!(cuEventSynchronize(plain));
                cu!(cuEventElapsedTime((&mut ms).into(), first, plain) => INVALID_HANDLE);
                cu!(cuEventDestroy_v2(plain));
                cu!(cuEventRecord(plain, s) => INVALID_HANDLE);
            },
        );
    }
}

#[test]
fn a_timing_that_is_not_over_is_not_ready() {
    test("a_timing_that_is_not_over_is_not_ready", &[("STREAMS", "lazy")], || {
        start(0);
        let (a, b, mut ms) = (event(), event(), 0f32);
        let s = stream(NON_BLOCKING);
        cu!(cuEventRecord(a, s));
        cu!(cuEventRecord(b, s));
        cu!(cuEventElapsedTime((&mut ms).into(), a, b) => NOT_READY);
        cu!(cuEventSynchronize(b));
        cu!(cuEventElapsedTime((&mut ms).into(), a, b));
    });
}

static CALLS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

unsafe extern "C" fn note(data: *mut c_void) {
    CALLS.lock().unwrap().push(data as usize);
}

unsafe extern "C" fn note_stream(_: CUstream, code: Code, data: *mut c_void) {
    assert_eq!(code, Code::SUCCESS);
    CALLS.lock().unwrap().push(data as usize);
}

#[test]
fn host_functions_run_in_their_streams_order() {
    for order in ["eager", "lazy", "random:8"] {
        test(
            "host_functions_run_in_their_streams_order",
            &[("STREAMS", order)],
            || {
                start(0);
                let s = stream(NON_BLOCKING);
                for n in 0..10 {
                    cu!(cuLaunchHostFunc(s, Some(note), (2 * n) as *mut c_void));
                    cu!(cuStreamAddCallback(s, Some(note_stream), (2 * n + 1) as *mut c_void, 0));
                }
                assert_eq!(CALLS.lock().unwrap().is_empty(), order_is_late());
                cu!(cuStreamSynchronize(s));
                assert_eq!(*CALLS.lock().unwrap(), (0..20).collect::<Vec<_>>());
            },
        );
    }
}

fn order_is_late() -> bool {
    std::env::var("KILN_EMULATOR_STREAMS").is_ok_and(|o| o != "eager")
}

#[test]
fn destroyed_streams_finish_their_work() {
    for order in ["lazy", "random:2"] {
        test("destroyed_streams_finish_their_work", &[("STREAMS", order)], || {
            start(0);
            let (s, at) = (stream(NON_BLOCKING), alloc(4));
            set(at, 3, s);
            cu!(cuStreamDestroy_v2(s));
            cu!(cuStreamSynchronize(s) => INVALID_HANDLE);
            cu!(cuCtxSynchronize());
            assert_eq!(peek(at, 1), [3]);
        });
    }
}

#[test]
fn freeing_waits_for_what_uses_the_memory() {
    test("freeing_waits_for_what_uses_the_memory", &[("STREAMS", "lazy")], || {
        start(0);
        let (s, from, to) = (stream(NON_BLOCKING), alloc(4), alloc(4));
        set(from, 8, s);
        copy(to, from, s);
        cu!(cuMemFree_v2(from));
        assert_eq!(peek(to, 1), [8]);
    });
}

#[test]
fn many_threads_share_the_driver() {
    for order in ["eager", "lazy", "random:11"] {
        test("many_threads_share_the_driver", &[("STREAMS", order)], || {
            let context = start(0);
            let counter = alloc(4);
            std::thread::scope(|scope| {
                for t in 0..8u32 {
                    scope.spawn(move || {
                        cu!(cuCtxSetCurrent(context));
                        let s = stream(NON_BLOCKING);
                        for n in 0..50 {
                            let at = alloc(64);
                            set(at, t * 1000 + n, s);
                            copy(at + 32, at, s);
                            copy(counter, at, s);
                            cu!(cuStreamSynchronize(s));
                            assert_eq!(peek(at + 32, 1), [t * 1000 + n]);
                            cu!(cuMemFree_v2(at));
                            if n % 10 == 0 {
                                cu!(cuCtxSynchronize());
                            }
                        }
                    });
                }
            });
            assert!(peek(counter, 1)[0] % 1000 == 49);
        });
    }
}

#[test]
fn each_thread_has_a_stream_of_its_own() {
    test("each_thread_has_a_stream_of_its_own", &[("STREAMS", "lazy")], || {
        let context = start(0);
        let at = alloc(4);
        upload(at, &[1]);
        let own = CUstream(2);
        set(at, 2, own);
        std::thread::spawn(move || {
            cu!(cuCtxSetCurrent(context));
            cu!(cuStreamSynchronize(CUstream(2)));
        })
        .join()
        .unwrap();
        // Nothing ordered this read after the write but the legacy stream, which the thread's own stream blocks.
        assert_eq!(peek(at, 1), [2]);
        let (mut low, mut high) = (9, 9);
        cu!(cuCtxGetStreamPriorityRange((&mut low).into(), (&mut high).into()));
        let mut s = CUstream::default();
        cu!(cuStreamCreateWithPriority((&mut s).into(), NON_BLOCKING, -99));
        let (mut priority, mut flags) = (9, 9);
        cu!(cuStreamGetPriority(s, (&mut priority).into()));
        cu!(cuStreamGetFlags(s, (&mut flags).into()));
        assert_eq!((priority, flags, low), (high, NON_BLOCKING, 0));
        cu!(cuStreamCreate((&mut s).into(), 2) => INVALID_VALUE);
    });
}
