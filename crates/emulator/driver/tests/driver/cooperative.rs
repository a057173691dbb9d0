//! Launches whose blocks wait for each other, and launches that do not end.

use std::ffi::{CString, c_void};

use kiln_emulator::*;

use super::harness::{alloc, child, function, launch, peek, pinned, pointers, process, start, stream, upload};

const NULL: CUstream = CUstream(0);

/// `meet` stores each block's number plus 1, waits for the grid, and adds the next block's number; `spin` never ends;
/// `follow` says that it has begun, waits for the host to say something, and copies a word.
const TEXT: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
.visible .entry meet(.param .u64 x)\n{\n.reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n\
ld.param.u64 %rd1, [x];\nmov.u32 %r1, %envreg1;\nmov.u32 %r2, %envreg2;\nmov.b64 %rd2, {%r2, %r1};\n\
setp.eq.u64 %p1, %rd2, 0;\n@%p1 trap;\nmov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %nctaid.x;\n\
mul.wide.u32 %rd3, %r3, 4;\nadd.u64 %rd3, %rd3, %rd1;\nadd.u32 %r5, %r3, 1;\nst.global.u32 [%rd3], %r5;\n\
mov.u32 %r6, 1;\nsub.u32 %r7, 0x80000001, %r4;\nsetp.eq.u32 %p1, %r3, 0;\n@%p1 mov.u32 %r6, %r7;\n\
atom.add.release.gpu.u32 %r8, [%rd2+4], %r6;\nWAIT:\nld.acquire.gpu.u32 %r9, [%rd2+4];\nxor.b32 %r9, %r9, %r8;\n\
setp.ge.s32 %p2, %r9, 0;\n@%p2 bra WAIT;\nrem.u32 %r10, %r5, %r4;\nmul.wide.u32 %rd4, %r10, 4;\n\
add.u64 %rd4, %rd4, %rd1;\nld.global.u32 %r11, [%rd4];\nmul.wide.u32 %rd5, %r4, 4;\nadd.u64 %rd5, %rd5, %rd3;\n\
add.u32 %r11, %r11, %r5;\nst.global.u32 [%rd5], %r11;\nret;\n}\n\
.visible .entry spin(.param .u64 x)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [x];\n\
WAIT:\nld.volatile.global.u32 %r1, [%rd1];\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra WAIT;\nret;\n}\n\
.visible .entry follow(.param .u64 x, .param .u64 y, .param .u64 z)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n\
ld.param.u64 %rd1, [x];\nld.param.u64 %rd2, [y];\nld.param.u64 %rd3, [z];\nmov.u32 %r1, 1;\nst.volatile.global.u32 [%rd1], %r1;\n\
WAIT:\nld.volatile.global.u32 %r2, [%rd1+4];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra WAIT;\n\
ld.global.u32 %r3, [%rd2];\nst.global.u32 [%rd3], %r3;\nret;\n}\n";

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) -> String {
    process(&format!("cooperative::{name}"), options, body)
}

fn module() -> CUmodule {
    let text = CString::new(TEXT).unwrap();
    let mut module = CUmodule::default();
    cu!(cuModuleLoadData((&mut module).into(), text.as_ptr().cast()));
    module
}

fn meet(f: CUfunction, blocks: u32, threads: u32, s: CUstream, at: u64) -> Code {
    let values = [at];
    let params: Vec<*const c_void> = pointers(&values);
    // SAFETY: the kernel has one parameter of 8 bytes.
    unsafe { cuLaunchCooperativeKernel(f, blocks, 1, 1, threads, 1, 1, 0, s, params[..].into()) }
}

/// The numbers that `meet` leaves in the second half of its array.
fn sums(blocks: u32) -> Vec<u32> {
    (0..blocks).map(|b| (b + 1) + (b + 1) % blocks + 1).collect()
}

#[test]
fn as_many_blocks_meet_as_the_device_holds() {
    for check in ["0", "1"] {
        let said = test("as_many_blocks_meet_as_the_device_holds", &[("CHECK", check)], || {
            start(0);
            let (mut supported, mut each) = (0, 0);
            cu!(cuDeviceGetAttribute((&mut supported).into(), 95, 0));
            let f = function(module(), "meet");
            cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                (&mut each).into(),
                f,
                1024,
                0
            ));
            assert_eq!((supported, each), (1, 2));
            let blocks = 216;
            let at = alloc(8 * 217);
            for _ in 0..2 {
                assert_eq!(meet(f, blocks, 1, NULL, at), Code::SUCCESS);
                assert_eq!(peek(at + 4 * u64::from(blocks), blocks as usize), sums(blocks));
            }
            assert_eq!(meet(f, blocks + 1, 1024, NULL, at), Code::COOPERATIVE_LAUNCH_TOO_LARGE);
            // A launch that is not cooperative has no workspace.
            cu!(cuCtxSynchronize());
            assert_eq!(launch(f, 2, 1, 0, NULL, &[at]), Code::LAUNCH_FAILED);
        });
        assert!(
            child() || said.contains("a cooperative launch of 217 blocks; the device holds 216"),
            "{said}"
        );
    }
}

#[test]
fn a_recorded_launch_stays_cooperative() {
    test("a_recorded_launch_stays_cooperative", &[], || {
        start(0);
        let (f, s, at) = (function(module(), "meet"), stream(1), alloc(80));
        let (mut graph, mut exec) = (CUgraph::default(), CUgraphExec::default());
        cu!(cuStreamBeginCapture_v2(s, 0));
        assert_eq!(meet(f, 10, 1, s, at), Code::SUCCESS);
        cu!(cuStreamEndCapture(s, (&mut graph).into()));
        cu!(cuGraphInstantiateWithFlags((&mut exec).into(), graph, 0));
        cu!(cuGraphLaunch(exec, s));
        cu!(cuStreamSynchronize(s));
        assert_eq!(peek(at + 40, 10), sums(10));
    });
}

#[test]
fn what_is_freed_beside_a_kernel_stays_until_it_ends() {
    for check in ["0", "1"] {
        let options = [("CHECK", check), ("WATCHDOG", "20")];
        let said = test("what_is_freed_beside_a_kernel_stays_until_it_ends", &options, || {
            let context = start(0);
            let (f, s) = (function(module(), "follow"), stream(1));
            let (flags, source, out) = (pinned(&[0, 0]).as_mut_ptr(), alloc(4), alloc(4));
            upload(source, &[7]);
            let at = flags as u64;
            std::thread::scope(|scope| {
                let kernel = scope.spawn(move || {
                    cu!(cuCtxSetCurrent(context));
                    assert_eq!(launch(f, 1, 1, 0, s, &[at, source, out]), Code::SUCCESS);
                });
                let flags = at as *mut u32;
                // SAFETY: both words are page-locked memory that nothing frees; the kernel and this thread access them as volatile.
                while unsafe { flags.read_volatile() } == 0 {
                    assert!(!kernel.is_finished());
                    std::thread::yield_now();
                }
                cu!(cuMemFree_v2(source));
                // A new allocation does not get the address.
                assert_ne!(alloc(4), source);
                // SAFETY: as above.
                unsafe { flags.add(1).write_volatile(1) };
            });
            assert_eq!(peek(out, 1), [7]);
        });
        assert!(child() || !said.contains("freed"), "{said}");
    }
}

#[test]
fn a_launch_without_end_is_ended() {
    let said = test("a_launch_without_end_is_ended", &[("WATCHDOG", "0.1")], || {
        start(0);
        let (f, at) = (function(module(), "spin"), alloc(4));
        assert_eq!(launch(f, 3, 64, 0, NULL, &[at]), Code::LAUNCH_TIMEOUT);
        cu!(cuCtxSynchronize() => LAUNCH_TIMEOUT);
    });
    for part in ["the launch timed out", "KILN_EMULATOR_WATCHDOG", "in spin", "block ("] {
        assert!(child() || said.contains(part), "{part}: {said}");
    }
}
