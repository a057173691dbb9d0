//! Checker mode: each class of mistake is found and named, and correct code like it is not.

use kiln_simulator::FaultKind;

use crate::rig::{FAR, NEXT, PUT, Rig, found, right, wrong};

#[test]
fn shared_memory_needs_a_barrier() {
    let both = [
        "case.cu:7",
        "case.cu:9",
        "no __syncthreads between the read",
        "this write of 4 bytes",
    ];
    wrong(1, 64, &format!("{PUT}{FAR}"), FaultKind::Race, &both);
    for barrier in ["bar.sync 0;", "barrier.sync 0;", "bar.sync 3, 64;"] {
        right(2, 64, &format!("{PUT}{barrier}\n{FAR}{barrier}\n{PUT}"));
    }
    // The next write must wait for the reads too.
    let early = format!("{PUT}bar.sync 0;\n{FAR}.loc 1 11 0\nst.shared.u32 [%r12], 1;");
    wrong(1, 64, &early, FaultKind::Race, &["race", "case.cu:9", "case.cu:11"]);
    // A third reader's warp is not forgotten for the first two.
    let broadcast = format!(
        "{PUT}bar.sync 0;\n.loc 1 9 0\nld.shared.u32 %r30, [tile];\nbar.warp.sync -1;\n@%p1 st.shared.u32 [tile], 1;"
    );
    wrong(1, 96, &broadcast, FaultKind::Race, &["the read by thread", "case.cu:9"]);
    right(1, 32, &broadcast);
}

#[test]
fn lanes_of_a_warp_need_a_warp_barrier() {
    let words = ["case.cu:7", "case.cu:9", "no __syncwarp or __syncthreads between"];
    wrong(1, 32, &format!("{PUT}{NEXT}"), FaultKind::Race, &words);
    for meeting in [
        "bar.warp.sync -1;",
        "shfl.sync.bfly.b32 %r31, %r2, 1, 31, -1;",
        "vote.sync.ballot.b32 %r31, %p1, -1;",
        "bar.sync 0;",
    ] {
        right(1, 96, &format!("{PUT}{meeting}\n{NEXT}{meeting}\n{PUT}"));
    }
    // Halves that meet separately have no order between them.
    let halves = |address: &str| {
        format!(
            "{PUT}setp.lt.u32 %p2, %r2, 16;\n@%p2 bra LOW;\nbar.warp.sync 0xffff0000;\nbra JOIN;\n\
             LOW:\nbar.warp.sync 0x0000ffff;\nJOIN:\n.loc 1 9 0\nld.shared.u32 %r30, [{address}];\n"
        )
    };
    right(1, 32, &halves("%r13"));
    wrong(1, 32, &halves("%r15"), FaultKind::Race, &words);
    // Order is transitive: a lane passes on what it is ordered after.
    let chain = format!(
        "{PUT}setp.eq.u32 %p2, %r2, 0;\nsetp.eq.u32 %p3, %r2, 1;\nsetp.eq.u32 %p4, %r2, 2;\nor.pred %p5, %p2, %p3;\n\
         or.pred %p6, %p3, %p4;\n@%p5 bar.warp.sync 3;\n@%p6 bar.warp.sync 6;\n@%p4 ld.shared.u32 %r30, [tile];\n"
    );
    right(1, 32, &chain);
    wrong(
        1,
        32,
        &chain.replace("@%p4 ld", "@!%p5 ld"),
        FaultKind::Race,
        &["thread (3,0,0)"],
    );
}

#[test]
fn lanes_of_one_instruction_may_not_disagree() {
    wrong(1, 32, "st.shared.u32 [tile], %r2;", FaultKind::Race, &["no __syncwarp"]);
    right(
        1,
        32,
        "mov.u32 %r30, 7;\nst.shared.u32 [tile], %r30;\nst.shared.v2.u32 [tile+8], {%r30, 4};",
    );
    wrong(
        1,
        32,
        "st.shared.v2.u32 [tile], {5, %r2};",
        FaultKind::Race,
        &["byte 4"],
    );
    wrong(1, 32, "st.global.u32 [%rd0], %r2;", FaultKind::Race, &["allocation"]);
    right(1, 32, "st.global.u8 [%rd0], 513;");
    // Parts of a word.
    right(
        1,
        64,
        "cvt.u16.u32 %h0, %r2;\nadd.u32 %r30, %r10, %r2;\nst.shared.u8 [%r30], %h0;",
    );
}

#[test]
fn atomics_go_together_and_with_nothing_else() {
    let start = "@%p1 st.shared.u32 [tile], 0;\nbar.sync 0;\n.loc 1 7 0\natom.shared.add.u32 %r30, [tile], 1;\n";
    right(2, 64, &format!("{start}bar.sync 0;\nld.shared.u32 %r31, [tile];"));
    wrong(
        1,
        64,
        &format!("{start}.loc 1 9 0\nld.shared.u32 %r31, [tile];"),
        FaultKind::Race,
        &["case.cu:7"],
    );
    right(
        3,
        64,
        "atom.global.add.u32 %r30, [%rd0], 1;\nred.global.add.u32 [%rd0], 1;",
    );
    wrong(
        3,
        64,
        "atom.global.add.u32 %r30, [%rd0], 1;\nld.global.u32 %r31, [%rd0];",
        FaultKind::Race,
        &[],
    );
}

#[test]
fn what_nothing_wrote_is_not_read() {
    let words = ["uninitialised read of 4 bytes", "shared memory", "case.cu:9"];
    wrong(1, 32, NEXT, FaultKind::Uninitialised, &words);
    wrong(
        1,
        32,
        "atom.shared.add.u32 %r30, [%r12], 1;",
        FaultKind::Uninitialised,
        &[],
    );
    // The second block does not see what the first one left.
    let once =
        format!("setp.ne.u32 %p2, %r20, 0;\n@%p2 bra READ;\n{PUT}READ:\n.loc 1 9 0\nld.shared.u32 %r30, [%r12];");
    right(1, 32, &once);
    wrong(2, 32, &once, FaultKind::Uninitialised, &["block (1,0,0)"]);
    let rig = || Rig::new(4096, 64);
    let read = ".loc 1 5 0\nld.global.u32 %r30, [%rd10];";
    rig().launch(1, 16, read).expect("all was written");
    let words = [
        "uninitialised read",
        "byte 64 of allocation #1 (4096 bytes)",
        "case.cu:5",
        "thread (16,0,0)",
    ];
    found(&rig(), 1, 17, read, FaultKind::Uninitialised, &words);
    found(
        &rig(),
        1,
        17,
        "red.global.add.u32 [%rd10], 1;",
        FaultKind::Uninitialised,
        &["atomic access"],
    );
    // Stores of a kernel count, for itself and for the next one; a part of a word is not the whole.
    let shared = rig();
    shared
        .launch(2, 33, "st.global.u32 [%rd10], 1;\nld.global.u32 %r30, [%rd10];")
        .expect("a thread's own");
    shared.launch(1, 66, read).expect("the launch before wrote it");
    shared
        .launch(1, 64, "red.global.add.u32 [%rd10], 1;")
        .expect("the launch before wrote it");
    found(&shared, 1, 67, read, FaultKind::Uninitialised, &["byte 264"]);
    found(
        &rig(),
        1,
        32,
        &format!("st.global.u16 [%rd10], 1;\n{read}"),
        FaultKind::Uninitialised,
        &["byte 64"],
    );
}

#[test]
fn blocks_need_order_too() {
    // One thread of each block.
    let one = "@!%p1 bra END;\n.loc 1 7 0\nst.global.u32 [%rd0], %r20;\nEND:";
    right(1, 32, one);
    wrong(
        2,
        32,
        one,
        FaultKind::Race,
        &["write by thread (0,0,0) at case.cu:7 of block (0,0,0)", "block (1,0,0)"],
    );
    // Bytes of one word.
    right(
        5,
        7,
        "cvt.u64.u32 %rd11, %r0;\nadd.u64 %rd11, %rd11, %rd0;\nst.global.u8 [%rd11], 1;",
    );
    // Another block's element.
    let other = ".loc 1 7 0\nst.global.u32 [%rd10], 1;\nxor.b32 %r30, %r0, 32;\nmul.wide.u32 %rd11, %r30, 4;\n\
                 add.u64 %rd11, %rd11, %rd0;\nBARRIER\n.loc 1 9 0\nld.global.u32 %r31, [%rd11];";
    wrong(
        2,
        32,
        &other.replace("BARRIER", "bar.sync 0;"),
        FaultKind::Race,
        &["nothing orders", "case.cu:7"],
    );
    wrong(
        1,
        64,
        &other.replace("BARRIER", ""),
        FaultKind::Race,
        &["case.cu:7", "case.cu:9", "no __syncthreads between"],
    );
    right(1, 64, &other.replace("BARRIER", "bar.sync 0;"));
    // Reads by all, and a write by the last.
    let late = "ld.global.u32 %r30, [%rd0+64];\nsetp.eq.u32 %p2, %r0, 95;\n@%p2 st.global.u32 [%rd0+64], 1;";
    wrong(3, 32, late, FaultKind::Race, &["read by thread"]);
}

/// Every thread stores; the block that counts last reads what all stored.
const LAST: &str = "
    .loc 1 7 0
    st.global.u32 [%rd10+64], 1;
    FENCE
    bar.sync 0;
    @!%p1 bra WAIT;
    atom.global.inc.u32 %r30, [%rd0], 2;
    st.shared.u32 [tile], %r30;
WAIT:
    bar.sync 0;
    ld.shared.u32 %r30, [tile];
    setp.ne.u32 %p2, %r30, 2;
    @%p2 bra END;
    mov.u32 %r31, 0;
LOOP:
    mad.lo.u32 %r32, %r31, 32, %r2;
    mul.wide.u32 %rd11, %r32, 4;
    add.u64 %rd11, %rd11, %rd0;
    .loc 1 9 0
    ld.global.u32 %r33, [%rd11+64];
    add.u32 %r31, %r31, 1;
    setp.lt.u32 %p3, %r31, 3;
    @%p3 bra LOOP;
    @%p1 st.global.u32 [%rd0], 0;
END:
";

#[test]
fn the_last_block_may_read_what_the_others_published() {
    right(3, 32, &LAST.replace("FENCE", "membar.gl;"));
    right(
        3,
        32,
        &LAST
            .replace("FENCE", "")
            .replace("atom.global", "atom.acq_rel.gpu.global"),
    );
    wrong(
        3,
        32,
        &LAST.replace("FENCE", ""),
        FaultKind::Race,
        &["case.cu:7", "case.cu:9"],
    );
}

/// Block 0 gives a value and block 1 takes it, one thread each.
const FLAG: &str = "
    setp.eq.u32 %p2, %r20, 0;
    @%p2 bra GIVE;
TAKE:
    ld.acquire.gpu.global.u32 %r30, [%rd0];
    setp.eq.u32 %p3, %r30, 0;
    @%p3 bra TAKE;
    .loc 1 9 0
    ld.global.u32 %r31, [%rd0+64];
    bra END;
GIVE:
    .loc 1 7 0
    st.global.u32 [%rd0+64], 5;
    st.release.gpu.global.u32 [%rd0], 1;
END:
";

/// The same between two warps, through shared memory.
const SIGNAL: &str = "
    mov.u32 %r40, 0;
    @%p1 st.shared.u32 [tile], %r40;
    bar.sync 0;
    setp.lt.u32 %p2, %r2, 32;
    @%p2 bra GIVE;
TAKE:
    ld.volatile.shared.u32 %r30, [tile];
    setp.eq.u32 %p3, %r30, 0;
    @%p3 bra TAKE;
    .loc 1 9 0
    ld.shared.u32 %r31, [tile+64];
    bra END;
GIVE:
    @!%p1 bra END;
    .loc 1 7 0
    st.shared.u32 [tile+64], 5;
    FENCE
    st.volatile.shared.u32 [tile], 1;
END:
";

#[test]
fn a_flag_orders_with_a_fence_and_not_without() {
    let words = ["case.cu:7", "case.cu:9"];
    right(2, 1, FLAG);
    let relaxed = FLAG.replace("acquire", "relaxed").replace("release", "relaxed");
    wrong(2, 1, &relaxed, FaultKind::Race, &words);
    right(2, 64, &SIGNAL.replace("FENCE", "membar.cta;"));
    wrong(1, 64, &SIGNAL.replace("FENCE", ""), FaultKind::Race, &words);
}

#[test]
fn the_cause_is_told_and_not_what_follows() {
    // An index that nothing wrote may lead anywhere; a barrier ends the wait for the write that would make it a race.
    let index = ".loc 1 5 0\nld.shared.u32 %r30, [tile];\nNEXT\n@%p1 st.shared.u32 [tile], 1;";
    let stray = "mul.wide.u32 %rd11, %r30, 4;\nadd.u64 %rd11, %rd11, %rd0;\nld.global.u32 %r31, [%rd11];";
    for next in [stray, "bar.sync 0;", "bra END;"] {
        let body = format!("{}\nEND:", index.replace("NEXT", next));
        wrong(
            1,
            64,
            &body,
            FaultKind::Uninitialised,
            &["uninitialised read", "case.cu:5", "thread (0,0,0)"],
        );
    }
    wrong(1, 64, &index.replace("NEXT", ""), FaultKind::Race, &["case.cu:5"]);
}

/// Words go through two buffers, each filled while the other is read by other threads.
const PIPELINE: &str = "
    mov.u32 %r30, 0;
    cp.async.ca.shared.global [%r12], [%rd10], 4;
    cp.async.commit_group;
NEXT:
    add.u32 %r30, %r30, 1;
    and.b32 %r31, %r30, 1;
    mad.lo.u32 %r32, %r31, 1024, %r12;
    setp.ge.u32 %p2, %r30, 5;
    .loc 1 5 0
    @!%p2 cp.async.ca.shared.global [%r32], [%rd10], 4;
    cp.async.commit_group;
    cp.async.wait_group 1;
    FIRST
    xor.b32 %r31, %r31, 1;
    mad.lo.u32 %r32, %r31, 1024, %r14;
    .loc 1 9 0
    ld.shared.u32 %r33, [%r32];
    SECOND
    setp.lt.u32 %p2, %r30, 5;
    @%p2 bra NEXT;
";

#[test]
fn asynchronous_copies_are_waited_for() {
    let copy = ".loc 1 5 0\ncp.async.ca.shared.global [%r12], [%rd10], 4;\n";
    let all = "cp.async.wait_all;\n";
    let mine = ".loc 1 9 0\nld.shared.u32 %r30, [%r12];\n";
    let words = ["has not waited for its cp.async", "case.cu:5", "case.cu:9"];
    wrong(1, 64, &format!("{copy}{mine}{all}"), FaultKind::Race, &words);
    wrong(
        1,
        64,
        &format!("{copy}bar.sync 0;\n{FAR}{all}"),
        FaultKind::Race,
        &words,
    );
    wrong(
        1,
        64,
        &format!("{copy}{PUT}{all}"),
        FaultKind::Race,
        &["has not waited for its cp.async", "case.cu:7"],
    );
    wrong(
        1,
        64,
        &format!("{copy}{all}{FAR}"),
        FaultKind::Race,
        &["no __syncthreads between", "case.cu:5", "case.cu:9"],
    );
    right(1, 64, &format!("{copy}{all}{mine}"));
    right(1, 64, &format!("{copy}{all}bar.sync 0;\n{FAR}"));
    // A source that nothing wrote.
    found(
        &Rig::new(4096, 64),
        1,
        32,
        copy,
        FaultKind::Uninitialised,
        &["case.cu:5", "allocation"],
    );
}

#[test]
fn a_pipeline_of_copies_needs_both_its_barriers() {
    let full = PIPELINE
        .replace("FIRST", "bar.sync 0;")
        .replace("SECOND", "bar.sync 0;");
    right(2, 64, &full);
    let first = PIPELINE.replace("FIRST", "").replace("SECOND", "bar.sync 0;");
    wrong(1, 64, &first, FaultKind::Race, &["case.cu:9"]);
    let second = PIPELINE.replace("FIRST", "bar.sync 0;").replace("SECOND", "");
    wrong(1, 64, &second, FaultKind::Race, &["race", "case.cu:5", "case.cu:9"]);
    let early = full.replace("wait_group 1", "wait_group 2");
    wrong(1, 64, &early, FaultKind::Race, &["has not waited for its cp.async"]);
}
