//! A mistake is a fault that names its place; an instruction that is not implemented is refused by name.

use kiln_simulator::{FaultKind, LoadError};

use crate::kernel::{Device, fault, module, refusal, shape};

const MINE: &str = "mul.wide.u32 %rd1, %r0, 4;\nadd.u64 %rd1, %rd1, %rd0;\n";

/// The kind, the block, the thread and the message of the fault of a body; 64 bytes are allocated.
fn broken(blocks: u32, threads: u32, body: &str, check: bool) -> (FaultKind, u32, u32, String) {
    let fault = fault(shape(blocks, threads), 64, "", body, check).expect_err("a fault");
    (fault.kind, fault.block[0], fault.thread[0], fault.to_string())
}

#[test]
fn global_bounds() {
    for check in [false, true] {
        let (kind, block, thread, text) = broken(3, 8, &format!("{MINE}st.global.u32 [%rd1], 1;"), check);
        assert_eq!((kind, block, thread), (FaultKind::IllegalAddress, 2, 0), "{text}");
        assert!(
            text.contains("out-of-bounds write of 4 bytes") && text.contains("0 bytes past the end"),
            "{text}"
        );
        assert!(
            text.contains("(64 bytes)") && text.contains("in k") && text.contains("block (2,0,0)"),
            "{text}"
        );
        // A guard keeps the lanes out.
        let guarded = format!("{MINE}setp.lt.u32 %p0, %r0, 16;\n@%p0 st.global.u32 [%rd1], 1;");
        fault(shape(3, 8), 64, "", &guarded, check).expect("no fault");
        let (kind, _, thread, text) = broken(1, 32, "mov.u64 %rd1, 0;\nld.global.u32 %r5, [%rd1+8];", check);
        assert_eq!((kind, thread), (FaultKind::IllegalAddress, 0));
        assert!(text.contains("read of 4 bytes at 0x8: a null pointer"), "{text}");
        // The last bytes are there, and one more is not.
        fault(
            shape(1, 1),
            64,
            "",
            "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd0+48];",
            check,
        )
        .expect("no fault");
        let (kind, ..) = broken(1, 1, "atom.global.add.u32 %r5, [%rd0+64], 1;", check);
        assert_eq!(kind, FaultKind::IllegalAddress);
        let (_, _, thread, text) = broken(
            1,
            32,
            &format!("{MINE}cp.async.ca.shared.global [0], [%rd1], 4;"),
            check,
        );
        assert_eq!((thread, text.contains("shared memory")), (0, true), "{text}");
    }
}

#[test]
fn misaligned_addresses() {
    let (kind, _, thread, text) = broken(
        1,
        2,
        "cvt.u64.u32 %rd1, %r0;\nadd.u64 %rd1, %rd1, %rd0;\nld.global.u16 %h0, [%rd1];",
        false,
    );
    assert_eq!((kind, thread), (FaultKind::Misaligned, 1), "{text}");
    let (kind, ..) = broken(1, 1, "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd0+8];", false);
    assert_eq!(kind, FaultKind::Misaligned);
    let (kind, ..) = broken(
        1,
        1,
        ".shared .align 8 .b8 s[16];\nmov.u32 %r3, s;\nst.shared.u32 [%r3+2], 0;",
        false,
    );
    assert_eq!(kind, FaultKind::Misaligned);
}

#[test]
fn shared_and_local_bounds() {
    let body = ".shared .align 4 .b8 s[128];\nmov.u32 %r3, s;\nshl.b32 %r4, %r0, 2;\nadd.u32 %r4, %r4, %r3;\nst.shared.u32 [%r4], 0;";
    fault(shape(1, 32), 64, "", body, false).expect("no fault");
    let (kind, _, thread, text) = broken(1, 48, body, false);
    assert_eq!((kind, thread), (FaultKind::IllegalAddress, 32), "{text}");
    assert!(text.contains("of 128 bytes of shared memory"), "{text}");
    let generic =
        ".shared .align 4 .b8 s[128];\nmov.u64 %rd2, s;\ncvta.shared.u64 %rd2, %rd2;\nld.u32 %r4, [%rd2+128];";
    assert_eq!(broken(1, 1, generic, false).0, FaultKind::IllegalAddress);
    let local = ".local .align 4 .b8 s[8];\nmov.u64 %rd2, s;\nst.local.u32 [%rd2+1048576], 0;";
    assert_eq!(broken(1, 1, local, false).0, FaultKind::IllegalAddress);
}

#[test]
fn freed_memory_is_named() {
    let device = Device::new();
    let range = device.upload(&[0u32; 8]);
    device.memory.free(range.base).expect("live");
    let ptx = module(1, "", "ld.global.u32 %r5, [%rd0+4];");
    let fault = device
        .launch(&ptx, shape(1, 1), &[range.base], false)
        .expect_err("a fault");
    assert!(fault.to_string().contains("use after free: read of 4 bytes"), "{fault}");
}

#[test]
fn places_come_from_line_info() {
    let body = ".loc 1 41 7\nadd.u32 %r5, %r0, 1;\n.loc 1 42 3, function_name name, inlined_at 1 50 2\nst.global.u32 [%rd0+64], 1;";
    let ptx = module(1, ".file 1 \"/some/where/softmax.cu\"", body);
    let device = Device::new();
    let range = device.upload(&[0u32; 16]);
    let fault = device
        .launch(&ptx, shape(1, 1), &[range.base], false)
        .expect_err("a fault");
    assert_eq!((fault.file.as_str(), fault.line), ("/some/where/softmax.cu", 42));
    assert!(
        fault
            .to_string()
            .ends_with("in k at softmax.cu:42, block (0,0,0) thread (0,0,0)"),
        "{fault}"
    );
}

#[test]
fn barriers_that_not_all_reach() {
    let early = "setp.lt.u32 %p0, %r2, 40;\n@%p0 ret;\nbar.sync 0;";
    // As on the hardware, threads that have exited are not waited for; the checker reports the mistake.
    fault(shape(1, 64), 64, "", early, false).expect("no fault");
    let (kind, _, thread, text) = broken(1, 64, early, true);
    assert_eq!((kind, thread), (FaultKind::Barrier, 40), "{text}");
    assert!(text.contains("40 of 64 threads of the block have exited"), "{text}");
    let two = "setp.lt.u32 %p0, %r2, 32;\n@%p0 bra LOW;\nbar.sync 0;\nbra END;\nLOW:\nbar.sync 0;\nEND:";
    fault(shape(1, 64), 64, "", two, false).expect("no fault");
    assert_eq!(broken(1, 64, two, true).0, FaultKind::Barrier);
    let apart = "setp.lt.u32 %p0, %r2, 32;\n@%p0 bra LOW;\nbar.sync 0;\nbra END;\nLOW:\nbar.sync 1;\nEND:";
    for check in [false, true] {
        let (kind, .., text) = broken(1, 64, apart, check);
        assert_eq!(kind, FaultKind::Barrier);
        assert!(text.contains("deadlock: 32 threads wait at barrier"), "{text}");
    }
}

#[test]
fn masks_that_name_absent_lanes() {
    // Lanes above 16 wait at another instruction: neither can go on.
    let apart = "setp.lt.u32 %p0, %r2, 16;\n@%p0 bra LOW;\nshfl.sync.idx.b32 %r5, %r2, 0, 31, -1;\nbra END;\nLOW:\n\
                 shfl.sync.idx.b32 %r5, %r2, 1, 31, -1;\nEND:";
    for check in [false, true] {
        let (kind, .., text) = broken(1, 32, apart, check);
        assert_eq!(kind, FaultKind::Warp, "{text}");
        assert!(text.contains("deadlock"), "{text}");
    }
    let gone = "setp.lt.u32 %p0, %r2, 16;\n@%p0 exit;\nvote.sync.ballot.b32 %r5, %p0, -1;";
    fault(shape(1, 32), 64, "", gone, false).expect("no fault");
    let (kind, _, thread, text) = broken(1, 32, gone, true);
    assert_eq!((kind, thread), (FaultKind::Warp, 16));
    assert!(text.contains("lanes 0x0000ffff have exited"), "{text}");
    let stranger = "vote.sync.ballot.b32 %r5, %p0, 0xff;";
    fault(shape(1, 32), 64, "", stranger, false).expect("no fault");
    assert_eq!(broken(1, 32, stranger, true).2, 8);
    let from_outside = "setp.ge.u32 %p0, %r2, 16;\n@%p0 bra END;\nshfl.sync.idx.b32 %r5, %r2, 20, 31, 0xffff;\nEND:";
    assert_eq!(broken(1, 32, from_outside, true).0, FaultKind::Warp);
    // A warp of 20 threads has no other lanes to wait for.
    fault(shape(1, 20), 64, "", "vote.sync.ballot.b32 %r5, %p0, -1;", true).expect("no fault");
}

#[test]
fn traps_and_runaway_stacks() {
    let (kind, _, thread, _) = broken(1, 32, "setp.eq.u32 %p0, %r2, 9;\n@%p0 trap;", false);
    assert_eq!((kind, thread), (FaultKind::Trap, 9));
    let forever = ".func f()\n{\n.local .b32 x[64];\nst.local.b32 [x], 0;\ncall f;\nret;\n}";
    let found = fault(shape(1, 32), 64, forever, "call f;", false).expect_err("a fault");
    assert!(found.to_string().contains("stack overflow"), "{found}");
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    for body in [
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r1, %r2, %r3, %r4}, %rd1, %rd2, 1;",
        "add.u128 %r3, %r3, %r3;",
        "add.rn.s32 %r3, %r3, %r3, %r3;",
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r3}, {%r3}, {%r3}, {%r3};",
        "ld.global.v8.f32 {%f0, %f1}, [%rd0];",
        "cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1;",
        "shfl.bfly.b32 %r3, %r3, 1, 31;",
        "atom.global.mul.f32 %f0, [%rd0], %f1;",
    ] {
        let opcode = body.split_whitespace().next().expect("an opcode").trim_end_matches(';');
        match refusal(body) {
            LoadError::Unsupported {
                kernel, opcode: found, ..
            } => assert_eq!((kernel.as_str(), found.as_str()), ("k", opcode)),
            error => panic!("{body}: {error}"),
        }
    }
    assert!(matches!(refusal("add.u32 %r3, %r99, 1;"), LoadError::Undeclared { name, .. } if name == "%r99"));
    assert!(matches!(refusal("bra NOWHERE;"), LoadError::Undeclared { name, .. } if name == "NOWHERE"));
    assert!(matches!(refusal("add.u32 %r3, %rd1, 1"), LoadError::Syntax { .. }));
    assert!(matches!(refusal("add.u64 %rd3, %r3, 1;"), LoadError::Syntax { .. }));
}
