//! Output of kernels, assertions, and their heap.

use std::ffi::CString;

use kiln_emulator::*;

use super::harness::{alloc, child, function, launch, peek, process_outputs, start, stream};

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) -> (String, String) {
    process_outputs(&format!("system::{name}"), options, body)
}

/// A string as an initialiser.
fn bytes(text: &str) -> String {
    let bytes: Vec<String> = text.bytes().chain([0]).map(|b| b.to_string()).collect();
    format!("[{}] = {{{}}}", bytes.len(), bytes.join(", "))
}

/// `say` prints its block, its thread, a string and half the thread; `claim` asserts that the thread is not 2; `build`
/// allocates, writes, reads and frees; `wreck` frees an address that was never allocated.
fn load() -> CUmodule {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c);\n\
         .extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n\
         .global .align 1 .b8 format{};\n.global .align 1 .b8 word{};\n.global .align 1 .b8 claimed{};\n\
         .global .align 1 .b8 file{};\n.global .align 1 .b8 name{};\n\
         .visible .entry say(.param .u64 out)\n{{\n.local .align 8 .b8 depot[32];\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f64 %fd<3>;\n\
         ld.param.u64 %rd4, [out];\nmov.u64 %rd1, depot;\ncvta.local.u64 %rd2, %rd1;\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %tid.x;\n\
         st.local.u32 [%rd1], %r1;\nst.local.u32 [%rd1+4], %r2;\nmov.u64 %rd3, word;\nst.local.u64 [%rd1+8], %rd3;\n\
         cvt.rn.f64.u32 %fd1, %r2;\nmul.f64 %fd1, %fd1, 0d3FE0000000000000;\nst.local.f64 [%rd1+16], %fd1;\nmov.u64 %rd3, format;\n\
         {{\n.param .b64 a;\nst.param.b64 [a], %rd3;\n.param .b64 b;\nst.param.b64 [b], %rd2;\n.param .b32 r;\n\
         call.uni (r), vprintf, (a, b);\nld.param.b32 %r3, [r];\n}}\nst.global.u32 [%rd4], %r3;\nret;\n}}\n\
         .visible .entry claim()\n{{\n.reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<5>;\nmov.u32 %r1, %tid.x;\nsetp.ne.u32 %p1, %r1, 2;\n\
         @%p1 bra FINE;\nmov.u64 %rd1, claimed;\nmov.u64 %rd2, file;\nmov.u64 %rd3, name;\n{{\n.param .b64 a;\nst.param.b64 [a], %rd1;\n\
         .param .b64 b;\nst.param.b64 [b], %rd2;\n.param .b32 c;\nst.param.b32 [c], 19;\n.param .b64 d;\nst.param.b64 [d], %rd3;\n\
         .param .b64 e;\nst.param.b64 [e], 1;\ncall.uni __assertfail, (a, b, c, d, e);\n}}\nFINE:\nret;\n}}\n\
         .visible .entry build(.param .u64 out)\n{{\n.reg .b32 %r<5>; .reg .b64 %rd<9>;\nld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\n\
         mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd1, %rd1, %rd2;\n{{\n.param .b64 a;\nst.param.b64 [a], 40;\n.param .b64 r;\n\
         call.uni (r), malloc, (a);\nld.param.b64 %rd3, [r];\n}}\nst.u32 [%rd3+36], %r1;\nbar.sync 0;\nld.u32 %r2, [%rd3+36];\n\
         st.global.u32 [%rd1], %r2;\n{{\n.param .b64 a;\nst.param.b64 [a], %rd3;\ncall.uni free, (a);\n}}\nret;\n}}\n\
         .visible .entry wreck()\n{{\n{{\n.param .b64 a;\nst.param.b64 [a], 48;\ncall.uni free, (a);\n}}\nret;\n}}\n",
        bytes("block %d thread %2u %s %.1f\n"),
        bytes("word"),
        bytes("i != 2"),
        bytes("claim.cu"),
        bytes("void claim()"),
    );
    let (text, mut module) = (CString::new(text).unwrap(), CUmodule::default());
    cu!(cuModuleLoadData((&mut module).into(), text.as_ptr().cast()));
    module
}

#[test]
fn kernels_print_when_somebody_waits() {
    for order in ["eager", "lazy", "random:3"] {
        let (out, _) = test("kernels_print_when_somebody_waits", &[("STREAMS", order)], || {
            start(0);
            let (say, at, s) = (function(load(), "say"), alloc(4), stream(1));
            assert_eq!(launch(say, 2, 2, 0, s, &[at]), Code::SUCCESS);
            // C's own output comes first, because nothing has waited for the kernels yet.
            // SAFETY: the format takes no arguments.
            unsafe { libc::printf(c"host\n".as_ptr()) };
            cu!(cuStreamSynchronize(s));
            assert_eq!(peek(at, 1), [4]);
            assert_eq!(launch(say, 1, 1, 0, s, &[at]), Code::SUCCESS);
            cu!(cuCtxSynchronize());
        });
        let wanted = "host\nblock 0 thread  0 word 0.0\nblock 0 thread  1 word 0.5\nblock 1 thread  0 word 0.0\n\
                      block 1 thread  1 word 0.5\nblock 0 thread  0 word 0.0\n";
        assert!(child() || out.contains(wanted), "{order}: {out}");
    }
}

#[test]
fn output_that_does_not_fit_is_lost() {
    let (out, _) = test("output_that_does_not_fit_is_lost", &[], || {
        start(0);
        let mut limit = 0;
        cu!(cuCtxGetLimit((&mut limit).into(), 1));
        assert_eq!(limit, 1 << 20);
        cu!(cuCtxSetLimit(1, 120));
        let (say, at) = (function(load(), "say"), alloc(4));
        assert_eq!(launch(say, 9, 1, 0, CUstream(0), &[at]), Code::SUCCESS);
        cu!(cuCtxSynchronize());
        cu!(cuCtxSetLimit(1, 1 << 20) => INVALID_VALUE);
    });
    assert!(child() || out.matches("thread").count() == 2, "{out}");
}

#[test]
fn failed_assertions_are_told_as_on_a_device() {
    let (_, err) = test("failed_assertions_are_told_as_on_a_device", &[], || {
        start(0);
        let claim = function(load(), "claim");
        assert_eq!(launch(claim, 1, 2, 0, CUstream(0), &[]), Code::SUCCESS);
        cu!(cuCtxSynchronize());
        launch(claim, 1, 4, 0, CUstream(0), &[]);
        cu!(cuCtxSynchronize() => ASSERT);
    });
    let wanted = "claim.cu:19: void claim(): block: [0,0,0], thread: [2,0,0] Assertion `i != 2` failed.\n";
    assert!(child() || err.contains(wanted), "{err}");
}

#[test]
fn kernels_allocate() {
    for check in ["0", "1"] {
        let (_, err) = test("kernels_allocate", &[("CHECK", check)], || {
            start(0);
            let (module, at) = (load(), alloc(256));
            let build = function(module, "build");
            for _ in 0..3 {
                assert_eq!(launch(build, 1, 64, 0, CUstream(0), &[at]), Code::SUCCESS);
                assert_eq!(peek(at, 64), (0..64).collect::<Vec<u32>>());
            }
            let mut size = 0;
            cu!(cuCtxGetLimit((&mut size).into(), 2));
            assert_eq!(size, 8 << 20);
            cu!(cuCtxSetLimit(2, 1 << 20) => INVALID_VALUE);
            launch(function(module, "wreck"), 1, 1, 0, CUstream(0), &[]);
            cu!(cuCtxSynchronize() => ILLEGAL_ADDRESS);
        });
        assert!(
            child() || err.contains("free of 0x30, which malloc did not give"),
            "{err}"
        );
    }
}
