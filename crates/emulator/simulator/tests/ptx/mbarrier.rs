//! `mbarrier`: phases, arrivals and waits, and copies of `cp.async` that arrive.

use kiln_simulator::FaultKind;

use crate::kernel::{fault, outcome, shape};

const SHARED: &str = ".file 1 \"case.cu\"\n.shared .align 8 .b64 full[2];\n.shared .align 8 .b64 empty[2];\n.shared .align 16 .b8 ring[1024];\n";

/// The first warp puts numbers into a ring of two places, the second takes them out. `FULL` and `EMPTY` wait.
const RING: &str = "
    setp.eq.u32 %p1, %r2, 0;
    @%p1 mbarrier.init.shared::cta.b64 [full], 32;
    @%p1 mbarrier.init.shared::cta.b64 [full+8], 32;
    @%p1 mbarrier.init.shared.b64 [empty], 32;
    @%p1 mbarrier.init.shared.b64 [empty+8], 32;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    setp.ge.u32 %p2, %r2, 32;
    and.b32 %r26, %r2, 31;
    mov.u32 %r20, 0;
    mov.u32 %r30, 0;
NEXT:
    and.b32 %r21, %r20, 1;
    shr.u32 %r22, %r20, 1;
    and.b32 %r22, %r22, 1;
    mov.u32 %r24, full;
    mad.lo.u32 %r24, %r21, 8, %r24;
    mov.u32 %r25, empty;
    mad.lo.u32 %r25, %r21, 8, %r25;
    mov.u32 %r27, ring;
    mad.lo.u32 %r27, %r21, 128, %r27;
    @%p2 bra TAKE;
    xor.b32 %r23, %r22, 1;
    EMPTY
    mad.lo.u32 %r28, %r20, 100, %r26;
    mad.lo.u32 %r27, %r26, 4, %r27;
    .loc 1 7 0
    st.shared.u32 [%r27], %r28;
    mbarrier.arrive.shared::cta.b64 _, [%r24];
    bra STEP;
TAKE:
    FULL
    xor.b32 %r28, %r26, 1;
    mad.lo.u32 %r27, %r28, 4, %r27;
    .loc 1 9 0
    ld.shared.u32 %r28, [%r27];
    add.u32 %r30, %r30, %r28;
    mbarrier.arrive.release.cta.shared::cta.b64 %rd5, [%r25];
STEP:
    add.u32 %r20, %r20, 1;
    setp.lt.u32 %p3, %r20, 10;
    @%p3 bra NEXT;
    mul.wide.u32 %rd6, %r26, 4;
    add.u64 %rd6, %rd6, %rd0;
    @%p2 st.global.u32 [%rd6], %r30;
";

/// A loop in a scope of its own, as inline assembly has it: each has a label of the same name.
fn wait(instruction: &str, barrier: &str, parity: &str) -> String {
    format!(
        "{{\n.reg .pred p;\nWAIT:\nmbarrier.{instruction}.shared::cta.b64 p, [{barrier}], {parity};\n@!p bra WAIT;\n}}\n"
    )
}

fn ring(full: &str, empty: &str) -> String {
    RING.replace("FULL", full).replace("EMPTY", empty)
}

#[test]
fn phases_pass_a_ring_on() {
    for instruction in ["try_wait.parity", "test_wait.parity", "try_wait.parity.acquire.cta"] {
        let body = ring(&wait(instruction, "%r24", "%r22"), &wait(instruction, "%r25", "%r23"));
        let found = outcome::<u32>(
            shape(3, 64),
            32,
            SHARED,
            &body.replace("@%p2 st.global", "@%p2 red.global.max"),
        );
        let wanted: Vec<u32> = (0..32).map(|lane| 4500 + 10 * (lane ^ 1)).collect();
        assert_eq!(found, wanted, "{instruction}");
    }
}

#[test]
fn a_ring_needs_both_its_waits() {
    let (full, empty) = (
        wait("try_wait.parity", "%r24", "%r22"),
        wait("try_wait.parity", "%r25", "%r23"),
    );
    for body in [ring("", &empty), ring(&full, "")] {
        let fault = fault(shape(1, 64), 128, SHARED, &body, true).expect_err("a finding");
        // Who does not wait for a place to be empty goes past phases that the other still waits for.
        let kinds = [FaultKind::Race, FaultKind::Uninitialised, FaultKind::Barrier];
        assert!(kinds.contains(&fault.kind), "{fault}");
    }
    // Nobody empties the ring.
    let stuck = ring(&full, &empty).replace("mbarrier.arrive.release.cta.shared::cta.b64 %rd5, [%r25];", "");
    let fault = fault(shape(1, 64), 128, SHARED, &stuck, false).expect_err("a deadlock");
    assert!(
        fault.kind == FaultKind::Barrier && fault.message.contains("wait for a phase of an mbarrier"),
        "{fault}"
    );
}

#[test]
fn a_state_names_the_phase_of_an_arrival() {
    // Each thread arrives and waits for the phase of its own arrival, twice; counts of two arrivals at once.
    let body = "setp.eq.u32 %p1, %r2, 0;\n@%p1 mbarrier.init.shared::cta.b64 [full], 128;\nbar.sync 0;\nmov.u32 %r20, 0;\nmov.u32 %r27, ring;\n\
        ROUND:\nmad.lo.u32 %r28, %r2, 4, %r27;\nadd.u32 %r29, %r2, %r20;\nst.shared.u32 [%r28], %r29;\n\
        mbarrier.arrive.shared::cta.b64 %rd5, [full], 2;\nWAIT:\nmbarrier.test_wait.shared::cta.b64 %p2, [full], %rd5;\n\
        @!%p2 bra WAIT;\nxor.b32 %r28, %r2, 33;\nmad.lo.u32 %r28, %r28, 4, %r27;\nld.shared.u32 %r30, [%r28];\nbar.sync 0;\n\
        add.u32 %r20, %r20, 1000;\nsetp.lt.u32 %p3, %r20, 2000;\n@%p3 bra ROUND;\n\
        mul.wide.u32 %rd6, %r2, 4;\nadd.u64 %rd6, %rd6, %rd0;\nst.global.u32 [%rd6], %r30;\n";
    let found = outcome::<u32>(shape(1, 64), 64, SHARED, body);
    assert_eq!(found, (0..64).map(|t| 1000 + (t ^ 33)).collect::<Vec<u32>>());
}

#[test]
fn copies_arrive_when_they_are_complete() {
    // Warp 0 copies words of the array, which is zero, over ones; warp 1 adds what it finds to 5.
    let body = |arrive: &str, count: u32, before: &str| {
        format!(
            "setp.eq.u32 %p1, %r2, 0;\nmov.u32 %r27, ring;\nmad.lo.u32 %r28, %r2, 4, %r27;\nst.shared.u32 [%r28], 1;\n\
             @%p1 mbarrier.init.shared::cta.b64 [full], {count};\nbar.sync 0;\nsetp.ge.u32 %p2, %r2, 32;\n\
             mul.wide.u32 %rd6, %r2, 4;\nadd.u64 %rd6, %rd6, %rd0;\n@%p2 bra TAKE;\n\
             .loc 1 7 0\ncp.async.ca.shared.global [%r28], [%rd6], 4;\n{arrive}\nbra END;\nTAKE:\n{before}\
             xor.b32 %r28, %r2, 33;\nmad.lo.u32 %r28, %r28, 4, %r27;\n.loc 1 9 0\nld.shared.u32 %r30, [%r28];\n\
             add.u32 %r30, %r30, 5;\nst.global.u32 [%rd6], %r30;\nEND:\n"
        )
    };
    let waits = wait("try_wait.parity", "full", "0");
    let wanted: Vec<u32> = (0..64).map(|t| if t < 32 { 0 } else { 5 }).collect();
    for (arrive, count) in [
        ("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [full];", 32),
        // Each raises the count that it lowers, so that one arrival more is needed.
        (
            "cp.async.mbarrier.arrive.shared.b64 [full];\n@%p1 mbarrier.arrive.shared.b64 _, [full];",
            1,
        ),
        ("cp.async.wait_all;\nmbarrier.arrive.shared.b64 _, [full];", 32),
    ] {
        assert_eq!(
            outcome::<u32>(shape(1, 64), 64, SHARED, &body(arrive, count, &waits)),
            wanted,
            "{arrive}"
        );
        // Without the wait the old values are seen, or the race.
        let early = body(arrive, count, "");
        let found = fault(shape(1, 64), 256, SHARED, &early, true).expect_err(&early);
        assert!(
            found.kind == FaultKind::Race && found.to_string().contains("case.cu:"),
            "{found}"
        );
    }
}

#[test]
fn wrong_uses_are_named() {
    let init = |count: &str| format!("mbarrier.init.shared::cta.b64 [full], {count};\n");
    for (body, kind, words) in [
        (
            "mbarrier.arrive.shared::cta.b64 _, [full];".to_string(),
            FaultKind::Barrier,
            "was not initialised",
        ),
        (
            wait("try_wait.parity", "full", "0"),
            FaultKind::Barrier,
            "was not initialised",
        ),
        (init("0"), FaultKind::Barrier, "for 0 arrivals"),
        (init("1048576"), FaultKind::Barrier, "for 1048576 arrivals"),
        (
            format!("{}mbarrier.arrive.shared::cta.b64 _, [full], 2;", init("1")),
            FaultKind::Barrier,
            "2 arrivals at an mbarrier that waits for 1",
        ),
        (
            format!(
                "{}mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [full], 1048576;",
                init("1")
            ),
            FaultKind::Barrier,
            "waits for 1048576 bytes",
        ),
        (
            format!(
                "{}mbarrier.inval.shared::cta.b64 [full];\nmbarrier.arrive.shared::cta.b64 _, [full];",
                init("1")
            ),
            FaultKind::Barrier,
            "was not initialised",
        ),
        (
            format!(
                "{}mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 16;\n{}",
                init("1"),
                wait("try_wait.parity", "full", "0")
            ),
            FaultKind::Barrier,
            "wait for a phase of an mbarrier",
        ),
        (
            "mbarrier.init.shared::cta.b64 [full+4], 1;".to_string(),
            FaultKind::Misaligned,
            "misaligned",
        ),
        (
            "mbarrier.init.shared::cta.b64 [full+4096], 1;".to_string(),
            FaultKind::IllegalAddress,
            "out-of-bounds",
        ),
    ] {
        let fault = fault(shape(1, 1), 8, SHARED, &body, false).expect_err(&body);
        assert!(fault.kind == kind && fault.message.contains(words), "{fault}\n{body}");
    }
}

#[test]
fn setmaxnreg_and_fences_change_nothing() {
    let body = "setmaxnreg.dec.sync.aligned.u32 24;\nsetmaxnreg.inc.sync.aligned.u32 232;\nfence.proxy.async;\n\
                fence.proxy.async.global;\nfence.proxy.async.shared::cta;\nfence.mbarrier_init.release.cluster;\n\
                wgmma.fence.sync.aligned;\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 st.global.u32 [%rd0], 3;";
    assert_eq!(outcome::<u32>(shape(1, 128), 1, "", body), [3]);
    for line in [
        "setmaxnreg.inc.sync.aligned.u32 20;",
        "setmaxnreg.inc.sync.aligned.u32 100;",
        "wgmma.wait_group.sync.aligned 8;",
    ] {
        assert!(
            matches!(
                crate::kernel::refusal(line),
                kiln_simulator::LoadError::Unsupported { .. }
            ),
            "{line}"
        );
    }
}
