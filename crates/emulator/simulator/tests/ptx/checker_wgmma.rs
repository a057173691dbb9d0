//! Checker mode: what a product of a warpgroup reads is written before, visible to it, and left alone until it is complete.

use kiln_simulator::FaultKind;

use crate::rig::{right, wrong};

/// `%r16`: the thread's own 16 bytes of A and B, which lie in the same 2 KiB; they are written in line 7.
const FILL: &str =
    "shl.b32 %r16, %r2, 4;\nadd.u32 %r16, %r16, %r10;\n.loc 1 7 0\nst.shared.v4.u32 [%r16], {0, 0, 0, 0};\n";
const AGAIN: &str = ".loc 1 11 0\nst.shared.v4.u32 [%r16], {0, 0, 0, 0};\n";
const FENCE: &str = "fence.proxy.async.shared::cta;\n";
const BARRIER: &str = "bar.sync 0;\n";
/// A product with the descriptors of A and B in line 9, in a group of its own.
const PRODUCT: &str = "wgmma.fence.sync.aligned;\n.loc 1 9 0\n\
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, 0x800400000, 0x800400000, 1, 1, 1, 0, 0;\n\
    wgmma.commit_group.sync.aligned;\n";
const WAIT: &str = "wgmma.wait_group.sync.aligned 0;\n";

#[test]
fn writes_are_fenced_before_a_product_reads_them() {
    right(2, 128, &format!("{FILL}{FENCE}{BARRIER}{PRODUCT}{WAIT}"));
    // The reader may make the fence too.
    right(1, 128, &format!("{FILL}{BARRIER}{FENCE}{PRODUCT}{WAIT}"));
    let words = ["no fence.proxy.async between the write", "case.cu:7", "case.cu:9"];
    wrong(
        1,
        128,
        &format!("{FILL}{BARRIER}{PRODUCT}{WAIT}"),
        FaultKind::Race,
        &words,
    );
    wrong(
        1,
        128,
        &format!("{FENCE}{FILL}{BARRIER}{PRODUCT}{WAIT}"),
        FaultKind::Race,
        &words,
    );
    let words = [
        "no __syncthreads between the write",
        "this read of 16 bytes",
        "case.cu:7",
        "case.cu:9",
    ];
    wrong(
        1,
        128,
        &format!("{FILL}{FENCE}{PRODUCT}{WAIT}"),
        FaultKind::Race,
        &words,
    );
    wrong(
        1,
        128,
        &format!("{PRODUCT}{WAIT}"),
        FaultKind::Uninitialised,
        &["shared memory", "case.cu:9"],
    );
    // What cp.async copies is written by the thread that waits for it.
    let copy = FILL.replace(
        "st.shared.v4.u32 [%r16], {0, 0, 0, 0};",
        "cp.async.cg.shared.global [%r16], [%rd0], 16;\ncp.async.wait_all;",
    );
    right(1, 128, &format!("{copy}{FENCE}{BARRIER}{PRODUCT}{WAIT}"));
    wrong(
        1,
        128,
        &format!("{copy}{BARRIER}{PRODUCT}{WAIT}"),
        FaultKind::Race,
        &["no fence.proxy.async"],
    );
}

#[test]
fn what_a_product_reads_is_left_alone_until_it_is_complete() {
    let start = format!("{FILL}{FENCE}{BARRIER}{PRODUCT}");
    right(1, 128, &format!("{start}{WAIT}{BARRIER}{AGAIN}"));
    // A warpgroup's own wait is enough for it.
    right(1, 128, &format!("{start}{WAIT}{AGAIN}"));
    let words = ["is not complete", "this write of 16 bytes", "case.cu:9", "case.cu:11"];
    wrong(
        1,
        128,
        &format!("{start}{BARRIER}{AGAIN}{WAIT}"),
        FaultKind::Race,
        &words,
    );
    wrong(
        1,
        128,
        &format!("{start}wgmma.wait_group.sync.aligned 1;\n{BARRIER}{AGAIN}{WAIT}"),
        FaultKind::Race,
        &words,
    );
    // A product that is in no group is waited for by none.
    let open = start.replace("wgmma.commit_group.sync.aligned;\n", "");
    wrong(
        1,
        128,
        &format!("{open}{WAIT}{BARRIER}{AGAIN}"),
        FaultKind::Race,
        &words,
    );
    // Two warpgroups read; the first may not write before the second has waited.
    let pair = start.replace("st.shared", "@!%p2 st.shared");
    let (pair, again) = (
        format!("setp.ge.u32 %p2, %r2, 128;\n{pair}"),
        AGAIN.replace("st.", "@!%p2 st."),
    );
    right(1, 256, &format!("{pair}{WAIT}{BARRIER}{again}"));
    wrong(
        1,
        256,
        &format!("{pair}{WAIT}{again}"),
        FaultKind::Race,
        &["case.cu:9", "case.cu:11"],
    );
}

#[test]
fn accumulators_are_read_after_the_wait() {
    let start = format!("{FILL}{FENCE}{BARRIER}{PRODUCT}");
    let read = ".loc 1 13 0\nadd.f32 %f8, %f2, %f2;\n";
    right(1, 128, &format!("{start}{WAIT}{read}"));
    let words = [
        "a read of an accumulator of wgmma before wgmma.wait_group",
        "case.cu:13",
    ];
    for read in [
        read,
        ".loc 1 13 0\nst.global.f32 [%rd10], %f3;\n",
        ".loc 1 13 0\nst.global.v2.f32 [%rd0], {%f8, %f1};\n",
        "mov.f32 %f9, %f0;\n.loc 1 13 0\nadd.f32 %f8, %f8, %f9;\n",
    ] {
        wrong(1, 128, &format!("{start}{read}{WAIT}"), FaultKind::Asynchronous, &words);
        let early = format!("{start}wgmma.wait_group.sync.aligned 1;\n{read}{WAIT}");
        wrong(1, 128, &early, FaultKind::Asynchronous, &words);
    }
    let bare = start.replace("wgmma.fence.sync.aligned;\n", "");
    let words = ["before the first wgmma.fence", "case.cu:9"];
    wrong(1, 128, &format!("{bare}{WAIT}"), FaultKind::Asynchronous, &words);
    // Registers that the compiler renames between two products, and one that is written anew.
    let renamed = PRODUCT.replace("%f0", "%f4");
    right(
        1,
        128,
        &format!("{start}mov.f32 %f4, %f0;\n{renamed}{WAIT}add.f32 %f8, %f4, %f1;\n"),
    );
    right(
        1,
        128,
        &format!("{start}{renamed}wgmma.wait_group.sync.aligned 1;\nadd.f32 %f8, %f0, %f8;\n{WAIT}"),
    );
}
