//! Checker mode: every mistake of a launch is reported once, and correct patterns are not reported.

use kiln_simulator::FaultKind;

use crate::rig::{FAR, PUT, Rig, right, wrong};

/// The kinds and lines of the findings.
fn told(blocks: u32, threads: u32, body: &str) -> Vec<(FaultKind, u32)> {
    let faults = Rig::new(4096, 64).findings(blocks, threads, body).expect_err(body);
    faults.iter().map(|f| (f.kind, f.line)).collect()
}

#[test]
fn every_mistake_of_a_launch_is_told_once() {
    // A read that nothing wrote, a race in shared memory, another one behind it, and a stray access that ends the launch.
    let body = format!(
        ".loc 1 3 0\nld.global.u32 %r30, [%rd0+128];\n{PUT}{FAR}bar.sync 0;\n\
         .loc 1 20 0\nst.shared.u32 [tile], %r2;\n.loc 1 30 0\nld.global.u32 %r31, [%rd0+4096];\n"
    );
    let mut found = told(1, 64, &body);
    // The two sides of one race are one mistake; which of them ran last depends on the warps' turns.
    found
        .iter_mut()
        .filter(|f| **f == (FaultKind::Race, 7))
        .for_each(|f| f.1 = 9);
    let all = [
        (FaultKind::Race, 9),
        (FaultKind::Uninitialised, 3),
        (FaultKind::Race, 20),
        (FaultKind::IllegalAddress, 30),
    ];
    assert_eq!(found.len(), all.len(), "{found:?}");
    for one in all {
        assert!(found.contains(&one), "{one:?} in {found:?}");
    }
    assert_eq!(found.last(), Some(&all[3]), "what ended the launch comes last");
    // Many blocks and warps make the same mistakes.
    let race = format!("{PUT}{FAR}");
    let first = Rig::new(4096, 4096).findings(7, 256, &race).expect_err(&race);
    assert_eq!(
        (first.len(), first[0].kind, first[0].block),
        (1, FaultKind::Race, [0, 0, 0])
    );
}

#[test]
fn a_loop_without_an_end_is_stopped() {
    // The loop's bound is a value that nothing wrote: all ones.
    let body = "ld.shared.u32 %r30, [tile];\nmov.u32 %r31, 0;\nNEXT:\nld.global.u32 %r33, [%rd0];\n\
                ld.global.u32 %r33, [%rd0];\nld.global.u32 %r33, [%rd0];\nld.global.u32 %r33, [%rd0];\n\
                add.u32 %r31, %r31, 1;\nsetp.lt.u32 %p2, %r31, %r30;\n@%p2 bra NEXT;";
    let faults = Rig::new(4096, 4096).findings(1, 1, body).expect_err(body);
    let texts: Vec<String> = faults.iter().map(|f| f.to_string()).collect();
    assert!(texts.len() == 2 && texts[0].contains("uninitialised read"), "{texts:?}");
    assert!(texts[1].contains("does not end after its first finding"), "{texts:?}");
}

/// The Programming Guide's atomic addition of doubles, one for each thread, on the first 8 bytes.
const SWAP: &str = "
    ld.global.u64 %rd20, [%rd0];
AGAIN:
    mov.b64 %fd0, %rd20;
    add.f64 %fd1, %fd0, 0d3FF0000000000000;
    mov.b64 %rd21, %fd1;
    atom.global.cas.b64 %rd22, [%rd0], %rd20, %rd21;
    setp.ne.s64 %p2, %rd20, %rd22;
    mov.u64 %rd20, %rd22;
    @%p2 bra AGAIN;
";

#[test]
fn the_first_read_of_a_compare_and_swap_loop_may_race() {
    right(1, 64, SWAP);
    right(3, 64, SWAP);
    let shared = "@%p1 st.shared.u32 [tile], 0;\nbar.sync 0;\nld.shared.u32 %r30, [tile];\nadd.u32 %r31, %r30, 1;\n\
                  atom.shared.cas.b32 %r32, [tile], %r30, %r31;\n";
    right(2, 64, shared);
    // The address of one of the two was converted on its way.
    let converted = format!(
        "mov.u64 %rd30, 0;\nadd.s64 %rd31, %rd0, %rd30;\ncvta.to.global.u64 %rd32, %rd0;\nadd.s64 %rd33, %rd30, %rd32;\n{}",
        SWAP.replace("ld.global.u64 %rd20, [%rd0]", "ld.u64 %rd20, [%rd31]")
            .replace("cas.b64 %rd22, [%rd0]", "cas.b64 %rd22, [%rd33]")
    );
    right(3, 64, &converted);
    wrong(
        3,
        64,
        &converted.replace(
            "cvta.to.global.u64 %rd32, %rd0",
            "mov.u64 %rd32, %rd0;\nmov.u64 %rd32, %rd0",
        ),
        FaultKind::Race,
        &["race"],
    );
    // A plain write is a race still, and so is a plain read elsewhere.
    wrong(
        1,
        64,
        &format!("{SWAP}\nst.global.u64 [%rd0], %rd20;"),
        FaultKind::Race,
        &["race"],
    );
    let half = SWAP.replace(
        "ld.global.u64 %rd20, [%rd0];",
        "mov.u64 %rd20, 0;\nld.global.u32 %r30, [%rd0];",
    );
    wrong(1, 64, &half, FaultKind::Race, &["race"]);
}

#[test]
fn local_arrays_are_written_before_they_are_read() {
    let array = ".local .align 8 .b8 a[64];\nmov.u64 %rd20, a;\n";
    right(
        1,
        64,
        &format!("{array}st.local.u32 [%rd20+8], 1;\nld.local.u32 %r30, [%rd20+8];"),
    );
    // A structure is copied with its padding.
    right(
        1,
        64,
        &format!("{array}st.local.u32 [%rd20+8], 1;\nld.local.v2.u32 {{%r30, %r31}}, [%rd20+8];"),
    );
    let words = [
        "uninitialised read of 4 bytes",
        "byte 12 of the thread's local memory",
        "case.cu:5",
        "thread (0,0,0)",
    ];
    let body = format!("{array}st.local.u32 [%rd20+8], 1;\n.loc 1 5 0\nld.local.u32 %r30, [%rd20+12];");
    wrong(1, 64, &body, FaultKind::Uninitialised, &words);
    // Through a generic address, and by one lane alone.
    let body =
        format!("{array}cvta.local.u64 %rd21, %rd20;\n@%p1 st.u32 [%rd21], 1;\n.loc 1 5 0\nld.u32 %r30, [%rd21];");
    wrong(1, 64, &body, FaultKind::Uninitialised, &["case.cu:5", "thread (1,0,0)"]);
    // The second block does not see what the first one left.
    let body = format!(
        "{array}setp.ne.u32 %p2, %r20, 0;\n@!%p2 st.local.u32 [%rd20], 1;\n.loc 1 5 0\nld.local.u32 %r30, [%rd20];"
    );
    right(1, 32, &body);
    wrong(2, 32, &body, FaultKind::Uninitialised, &["block (1,0,0)"]);
}

#[test]
fn a_tree_may_reach_out_of_its_mask() {
    // Half a warp adds its lanes up with `__shfl_down_sync(0xffff, v, n)`: its upper lanes read lanes that take no part.
    let steps: String = [8, 4, 2, 1]
        .map(|n| format!("shfl.sync.down.b32 %r31, %r30, {n}, 31, 0xffff;\nadd.u32 %r30, %r30, %r31;\n"))
        .concat();
    let body = format!(
        "mov.u32 %r30, %r2;\nsetp.ge.u32 %p2, %r2, 16;\n@%p2 bra END;\n{steps}@!%p1 bra END;\n\
         setp.ne.u32 %p3, %r30, 120;\n@%p3 trap;\nEND:"
    );
    right(1, 32, &body);
    // The value read there is all ones, which a kernel cannot use by chance.
    let used = "setp.ge.u32 %p2, %r2, 16;\n@%p2 bra END;\nshfl.sync.bfly.b32 %r31, %r2, 16, 31, 0xffff;\n\
                setp.ne.u32 %p3, %r31, -1;\n@%p3 trap;\nEND:";
    right(1, 32, used);
}
