//! Instructions that are not implemented: the README lists them, and each is refused by its name.

use std::collections::BTreeSet;

use kiln_simulator::LoadError;

use crate::kernel::refusal;

/// A line for each instruction of the README's list.
const LINES: &[&str] = &[
    "barrier.cluster.arrive.aligned;",
    "mapa.u64 %rd1, %rd2, %r1;",
    "getctarank.u64 %r1, %rd1;",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%rd1], %r1, [%rd2];",
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%rd1], %r1, [%rd2];",
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%rd1], [%rd2];",
    "mbarrier.init.b64 [%rd1], 1;",
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%rd1];",
    "mbarrier.arrive_drop.shared.b64 %rd1, [%rd2];",
    "mbarrier.pending_count.b64 %r1, %rd1;",
    "cp.async.bulk.commit_group;",
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r1, %r2}], [%rd2];",
    "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%rd1], [%rd2, {%r1, %r2, %r3, %r4}], \
     [%rd3], {%h1, %h2};",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%rd2], 16;",
    "st.bulk.weak.shared::cta [%rd1], 16, 0;",
    "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;",
    "fence.proxy.alias;",
    "multimem.red.relaxed.gpu.global.add.u32 [%rd1], %r1;",
    "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r1, %r2}, %rd1, %rd2, 1, 1, 1, 0, 0;",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r1, %r2, %r3, %r4}, %rd1, %rd2, 1;",
    "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, %r1, 0, 1, 1, 1, 0, 0;",
    "tcgen05.wait::ld.sync.aligned;",
    "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1];",
    "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r7}, {%r1,%r2,%r3,%r4};",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1,%fd2}, {%fd3}, {%fd4}, {%fd1,%fd2};",
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r3,%r4}, {%f1,%f2,%f3,%f4}, \
     %r5, 0;",
    "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%rd1], {%r1};",
    "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;",
    "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;",
    "fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4;",
    "ld.global.b128 %rd1, [%rd2];",
    "atom.global.exch.b128 %rd1, [%rd2], %rd3;",
    "ld.global.v8.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, [%rd1];",
    "red.global.add.v2.f32 [%rd1], {%f1,%f2};",
    "min.xorsign.abs.f32 %f1, %f2, %f3;",
    "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}];",
    "tld4.r.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}];",
    "txq.width.b32 %r1, [%rd1];",
    "istypep.texref %p1, %rd1;",
    "suld.b.1d.b32.trap %r1, [%rd1, {%r2}];",
    "sust.b.1d.b32.trap [%rd1, {%r2}], %r1;",
    "sured.b.add.1d.u32.trap [%rd1, {%r2}], %r1;",
    "suq.width.b32 %r1, [%rd1];",
    "vadd.s32.s32.s32 %r1, %r2.h0, %r3.b1;",
    "vsub.s32.s32.s32 %r1, %r2, %r3;",
    "vabsdiff.s32.s32.s32 %r1, %r2, %r3;",
    "vmin.s32.s32.s32 %r1, %r2, %r3;",
    "vmax.s32.s32.s32 %r1, %r2, %r3;",
    "vshl.u32.u32.u32.clamp %r1, %r2, %r3;",
    "vshr.u32.u32.u32.clamp %r1, %r2, %r3;",
    "vmad.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vset.s32.s32.lt %r1, %r2, %r3;",
    "vadd2.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vsub2.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vavrg2.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vabsdiff2.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vmin2.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vmax2.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vset2.s32.s32.lt %r1, %r2, %r3, %r4;",
    "vadd4.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vsub4.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vavrg4.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vabsdiff4.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vmin4.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vmax4.s32.s32.s32 %r1, %r2, %r3, %r4;",
    "vset4.s32.s32.lt %r1, %r2, %r3, %r4;",
    "mad24.lo.s32 %r1, %r2, %r3, %r4;",
    "dp2a.lo.s32.s32 %r1, %r2, %r3, %r4;",
    "bmsk.clamp.b32 %r1, %r2, %r3;",
    "szext.clamp.s32 %r1, %r2, %r3;",
    "cvt.pack.sat.s16.s32 %r1, %r2, %r3;",
    "alloca.u64 %rd1, %rd2;",
    "stacksave.u64 %rd1;",
    "stackrestore.u64 %rd1;",
    "griddepcontrol.wait;",
];

/// The opcodes of the PTX ISA 9.0, chapter 9, without the modifiers that some headings have.
const ISA: &str = "abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev brkpt brx \
    call clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit fence \
    fma fns getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max mbarrier \
    membar min mma mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red \
    redux rem ret rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore stacksave stmatrix \
    sub subc suld suq sured sust szext tanh tcgen05 tensormap testp tex tld4 trap txq vabsdiff vabsdiff2 vabsdiff4 vadd \
    vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4 \
    wgmma wmma xor";

/// Everything in backquotes in a marked part of the README.
fn listed(mark: &str) -> BTreeSet<&'static str> {
    let readme = include_str!("../../../README.md");
    let (_, list) = readme.split_once(mark).expect("the list's start");
    let (list, _) = list.split_once("<!-- end -->").expect("the list's end");
    list.split('`').skip(1).step_by(2).collect()
}

/// Instructions of the second column; the first names families.
fn missing() -> BTreeSet<&'static str> {
    let all = listed("<!-- missing instructions -->");
    all.into_iter().filter(|name| name.contains('.')).collect()
}

fn opcode(line: &str) -> &str {
    line.split([' ', ';']).next().expect("a word")
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let wrong = |line: &&str| match refusal(line) {
        LoadError::Unsupported { opcode: named, .. } => (named != opcode(line)).then(|| format!("{named}: {line}")),
        error => Some(format!("{error}: {line}")),
    };
    let wrong: Vec<String> = LINES.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_readme_lists_what_is_not_there() {
    let tried: BTreeSet<&str> = LINES.iter().map(|line| opcode(line)).collect();
    assert_eq!(missing(), tried);
}

#[test]
fn every_opcode_is_there_or_listed_as_missing() {
    let there = listed("<!-- opcodes -->");
    let absent: BTreeSet<&str> = missing().iter().filter_map(|name| name.split('.').next()).collect();
    for opcode in ISA.split_whitespace() {
        assert!(there.contains(opcode) || absent.contains(opcode), "{opcode}");
    }
    let unknown = there
        .union(&absent)
        .find(|name| !ISA.split_whitespace().any(|opcode| opcode == **name));
    assert_eq!(unknown, None);
}
