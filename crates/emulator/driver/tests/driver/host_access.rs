//! Checker mode: the host and page-locked memory that a stream still uses.

use kiln_emulator::*;

use super::harness::{alloc, event, pinned, process, start, stream, upload};

const NON_BLOCKING: u32 = 1;

/// The logs of child processes that run `body`: with work done at once, as late as can be, and in a random order.
fn said(name: &str, body: impl Fn()) -> Vec<String> {
    let run = |order| {
        process(
            &format!("host_access::{name}"),
            &[("CHECK", "report"), ("STREAMS", order)],
            &body,
        )
    };
    ["eager", "lazy", "random:1"].map(run).into()
}

/// Page-locked memory of `n` words, device memory of as many, and a stream.
fn rig(n: usize) -> (&'static mut [u32], u64, CUstream) {
    start(0);
    let (host, at) = (pinned(&vec![1; n]), alloc(4 * n));
    upload(at, &vec![2; n]);
    (host, at, stream(NON_BLOCKING))
}

fn download(host: &mut [u32], at: u64, s: CUstream) {
    cu!(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), at, size_of_val(host), s));
}

/// A read that the compiler does not move.
fn read(host: &[u32], n: usize) -> u32 {
    // SAFETY: the element is there.
    unsafe { (&raw const host[n]).read_volatile() }
}

#[test]
fn a_read_before_the_wait_is_found() {
    for n in [1, 5000] {
        let all = said("a_read_before_the_wait_is_found", || {
            let (host, at, s) = rig(n);
            download(host, at, s);
            read(host, n - 1);
            cu!(cuStreamSynchronize(s));
            assert_eq!(read(host, n - 1), 2);
        });
        for text in all.into_iter().filter(|_| !super::harness::child()) {
            let words = format!(
                "and the host, which reads at byte {} of page-locked allocation",
                4 * (n - 1)
            );
            assert_eq!(text.matches(&words).count(), 1, "{text}");
            assert!(text.contains("race, nothing orders the copy"), "{text}");
        }
    }
}

#[test]
fn a_source_that_is_written_again_too_early_is_found() {
    let all = said("a_source_that_is_written_again_too_early_is_found", || {
        let (host, at, s) = rig(64);
        cu!(cuMemcpyHtoDAsync_v2(at, host.as_ptr().cast(), 256, s));
        assert_eq!(read(host, 3), 1, "reading is no race");
        // SAFETY: the element is there.
        unsafe { (&raw mut host[3]).write_volatile(7) };
        cu!(cuCtxSynchronize());
        host[4] = 7;
    });
    for text in all.into_iter().filter(|_| !super::harness::child()) {
        assert_eq!(text.matches("the host, which writes at byte 12").count(), 1, "{text}");
    }
}

#[test]
fn every_kind_of_wait_counts() {
    let all = said("every_kind_of_wait_counts", || {
        let (host, at, s) = rig(100);
        let done = event();
        let waits: [&dyn Fn(); 6] = [
            &|| cu!(cuStreamSynchronize(s)),
            &|| cu!(cuCtxSynchronize()),
            &|| {
                cu!(cuEventRecord(done, s));
                cu!(cuEventSynchronize(done));
            },
            &|| {
                cu!(cuEventRecord(done, s));
                // SAFETY: the event lives.
                while unsafe { cuEventQuery(done) } != Code::SUCCESS {}
            },
            // SAFETY: the stream lives.
            &|| while unsafe { cuStreamQuery(s) } != Code::SUCCESS {},
            // Another stream that waits for this one.
            &|| {
                let other = stream(NON_BLOCKING);
                cu!(cuEventRecord(done, s));
                cu!(cuStreamWaitEvent(other, done, 0));
                cu!(cuStreamSynchronize(other));
            },
        ];
        for wait in waits {
            download(host, at, s);
            wait();
            assert_eq!(read(host, 7), 2);
            host.fill(3);
            cu!(cuMemcpyHtoDAsync_v2(at, host.as_ptr().cast(), 400, s));
            wait();
            host.fill(4);
            upload(at, &[2; 100]);
        }
        // A part of the pages, whose rest the host uses meanwhile.
        download(&mut host[..50], at, s);
        host[50] = 9;
        cu!(cuStreamSynchronize(s));
        // Memory that is freed while a copy is pending.
        download(host, at, s);
        cu!(cuMemFreeHost(host.as_mut_ptr().cast()));
    });
    for text in all {
        assert!(!text.contains("race"), "{text}");
    }
}

/// Set by a callback, for the host to see.
static TOLD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

unsafe extern "C" fn tell(_: *mut std::ffi::c_void) {
    TOLD.store(true, std::sync::atomic::Ordering::Release);
}

#[test]
fn a_callback_tells_the_host_as_well_as_a_wait() {
    let all = said("a_callback_tells_the_host_as_well_as_a_wait", || {
        let (host, at, s) = rig(10);
        download(host, at, s);
        cu!(cuLaunchHostFunc(s, Some(tell), std::ptr::null_mut()));
        let other = stream(NON_BLOCKING);
        while !TOLD.load(std::sync::atomic::Ordering::Acquire) {
            // Without a wait, work is done in the eager mode only.
            cu!(cuStreamQuery(other));
            if std::env::var("KILN_EMULATOR_STREAMS").as_deref() != Ok("eager") {
                cu!(cuStreamSynchronize(s));
            }
        }
        assert_eq!(read(host, 0), 2);
    });
    for text in all {
        assert!(!text.contains("race"), "{text}");
    }
}

#[test]
fn a_race_is_an_error_of_the_context() {
    process(
        "host_access::a_race_is_an_error_of_the_context",
        &[("CHECK", "1")],
        || {
            let (host, at, s) = rig(10);
            download(host, at, s);
            read(host, 0);
            cu!(cuStreamSynchronize(s) => LAUNCH_FAILED);
        },
    );
}
