//! Divergence, loops, calls, barriers, special registers.

use crate::kernel::{Device, module, outcome, shape};

const MINE: &str = "mul.wide.u32 %rd1, %r0, 4;\nadd.u64 %rd1, %rd1, %rd0;\n";
const OUT: &str = "st.global.u32 [%rd1], %r9;";

#[test]
fn lanes_loop_as_often_as_they_like_and_meet_again() {
    // Collatz steps of each lane's number; then the lanes that are together count each other.
    let body = format!(
        "{MINE}add.u32 %r3, %r0, 1;\nmov.u32 %r4, 0;\nLOOP:\nsetp.eq.u32 %p0, %r3, 1;\n@%p0 bra END;\nand.b32 %r5, %r3, 1;\n\
         setp.eq.u32 %p1, %r5, 0;\n@%p1 bra EVEN;\nmad.lo.u32 %r3, %r3, 3, 1;\nbra NEXT;\nEVEN:\nshr.u32 %r3, %r3, 1;\n\
         NEXT:\nadd.u32 %r4, %r4, 1;\nbra.uni LOOP;\nEND:\nactivemask.b32 %r6;\npopc.b32 %r6, %r6;\n\
         mad.lo.u32 %r9, %r6, 1000, %r4;\n{OUT}"
    );
    let steps = |mut n: u32| {
        let mut steps = 0;
        while n != 1 {
            n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        steps
    };
    let wanted: Vec<u32> = (0..70)
        .map(|k| if k < 64 { 32_000 } else { 6_000 } + steps(k + 1))
        .collect();
    assert_eq!(outcome::<u32>(shape(1, 70), 70, "", &body), wanted);
}

#[test]
fn an_index_chooses_the_branch() {
    let body = format!(
        "{MINE}rem.u32 %r3, %r0, 3;\nTARGETS: .branchtargets A, B, C;\n@!%p7 brx.idx %r3, TARGETS;\nA:\nmov.u32 %r9, 10;\nbra Z;\n\
         B:\nmov.u32 %r9, 20;\nbra Z;\nC:\nadd.u32 %r9, %r0, 30;\nZ:\n{OUT}"
    );
    let wanted: Vec<u32> = (0..40).map(|k| [10, 20, 30 + k][k as usize % 3]).collect();
    assert_eq!(outcome::<u32>(shape(1, 40), 40, "", &body), wanted);
}

/// n! by recursion, and a helper that returns from two places.
const FUNCTIONS: &str = "
.func (.param .b32 result) factorial(.param .b32 n)
{
.reg .pred %p<2>; .reg .b32 %r<9>;
ld.param.u32 %r1, [n];
setp.lt.u32 %p1, %r1, 2;
@%p1 bra ONE;
add.u32 %r2, %r1, -1;
{
.param .b32 argument; st.param.b32 [argument+0], %r2;
.param .b32 out;
call.uni (out), factorial, (argument);
ld.param.b32 %r3, [out+0];
}
mul.lo.u32 %r4, %r3, %r1;
st.param.b32 [result+0], %r4;
ret;
ONE:
st.param.b32 [result+0], 1;
ret;
}
.func (.param .b64 result) widest(.param .b32 a, .param .align 8 .b8 b[16])
{
.reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
ld.param.u32 %r1, [a];
ld.param.v2.u64 {%rd1, %rd2}, [b];
setp.gt.u64 %p1, %rd1, %rd2;
@%p1 st.param.b64 [result], %rd1;
@%p1 ret;
cvt.u64.u32 %rd3, %r1;
st.param.b64 [result], %rd3;
ret;
}";

#[test]
fn functions_call_themselves_and_each_other() {
    let body = format!(
        "{MINE}and.b32 %r3, %r0, 7;\nsetp.eq.u32 %p0, %r3, 5;\nmov.u32 %r9, 77;\n@%p0 bra SKIP;\n{{\n.param .b32 a;\n\
         st.param.b32 [a], %r3;\n.param .b32 r;\ncall (r), factorial, (a);\nld.param.b32 %r9, [r];\n}}\nSKIP:\n\
         {{\n.param .b32 a;\nst.param.b32 [a+0], %r9;\n.param .align 8 .b8 b[16];\ncvt.u64.u32 %rd3, %r0;\n\
         st.param.v2.b64 [b+0], {{%rd3, 20}};\n.param .b64 r;\ncall.uni (r), widest, (a, b);\nld.param.b64 %rd4, [r+0];\n}}\n\
         cvt.u32.u64 %r9, %rd4;\n{OUT}"
    );
    let factorial = |n: u32| (1..=n).product::<u32>();
    let own = |k: u32| if k % 8 == 5 { 77 } else { factorial(k % 8) };
    let wanted: Vec<u32> = (0..50).map(|k| if k > 20 { k } else { own(k) }).collect();
    assert_eq!(outcome::<u32>(shape(1, 50), 50, FUNCTIONS, &body), wanted);
}

#[test]
fn barriers_order_shared_memory() {
    // Neighbours' values, round by round, over three warps of which the last is short.
    let body = format!(
        ".shared .align 4 .u32 s[80];\n{MINE}mov.u32 %r3, s;\nshl.b32 %r4, %r2, 2;\nadd.u32 %r4, %r4, %r3;\nmov.u32 %r9, %r2;\n\
         add.u32 %r5, %r2, 1;\nrem.u32 %r5, %r5, 80;\nshl.b32 %r5, %r5, 2;\nadd.u32 %r5, %r5, %r3;\nmov.u32 %r6, 0;\nLOOP:\n\
         st.shared.u32 [%r4], %r9;\nbar.sync 0;\nld.shared.u32 %r9, [%r5];\nbarrier.sync 0;\nadd.u32 %r6, %r6, 1;\n\
         setp.lt.u32 %p0, %r6, 7;\n@%p0 bra LOOP;\n{OUT}"
    );
    let wanted: Vec<u32> = (0..160).map(|k| (k % 80 + 7) % 80).collect();
    assert_eq!(outcome::<u32>(shape(2, 80), 160, "", &body), wanted);
}

#[test]
fn barriers_count_and_reduce() {
    let body = format!(
        "{MINE}setp.lt.u32 %p0, %r2, 10;\nbar.red.popc.u32 %r3, 0, %p0;\nbar.red.and.pred %p1, 0, !%p0;\n\
         bar.red.or.pred %p2, 0, %p0;\nbar.red.popc.u32 %r6, 1, 64, !%p0;\nselp.u32 %r4, 100, 0, %p1;\nselp.u32 %r5, 200, 0, %p2;\n\
         mad.lo.u32 %r9, %r6, 1000, %r3;\nadd.u32 %r9, %r9, %r4;\nadd.u32 %r9, %r9, %r5;\n{OUT}"
    );
    assert_eq!(outcome::<u32>(shape(1, 64), 64, "", &body), vec![54_210; 64]);
}

#[test]
fn a_producer_arrives_and_a_consumer_waits() {
    // The first warp arrives after its store and goes on; the second waits, although it is the later one in turn.
    let body = format!(
        ".shared .align 4 .u32 s[32];\n{MINE}mov.u32 %r3, s;\nand.b32 %r4, %r2, 31;\nshl.b32 %r4, %r4, 2;\nadd.u32 %r3, %r3, %r4;\n\
         setp.lt.u32 %p0, %r2, 32;\n@%p0 bra PRODUCER;\nbar.sync 3, 64;\nld.shared.u32 %r9, [%r3];\nbra END;\nPRODUCER:\n\
         mul.lo.u32 %r5, %r2, 5;\nst.shared.u32 [%r3], %r5;\nbar.arrive 3, 64;\nmov.u32 %r9, 1;\nEND:\n{OUT}"
    );
    let wanted: Vec<u32> = (0..64).map(|k| if k < 32 { 1 } else { 5 * (k - 32) }).collect();
    assert_eq!(outcome::<u32>(shape(1, 64), 64, "", &body), wanted);
}

#[test]
fn a_lock_of_lanes_is_passed_on() {
    // Each lane spins until it holds the lock: the lanes that spin must not starve the one that holds it.
    let device = Device::new();
    let out = device.upload(&[0u32; 2]);
    let body = "SPIN:\natom.global.cas.b32 %r3, [%rd0], 0, 1;\nsetp.ne.u32 %p0, %r3, 0;\n@%p0 bra SPIN;\n\
                ld.volatile.global.u32 %r4, [%rd0+4];\nadd.u32 %r4, %r4, 1;\nst.volatile.global.u32 [%rd0+4], %r4;\n\
                membar.gl;\natom.global.exch.b32 %r5, [%rd0], 0;";
    device
        .launch(&module(1, "", body), shape(2, 40), &[out.base], false)
        .expect("no fault");
    assert_eq!(device.read::<u32>(&out), [0, 80]);
}

#[test]
fn special_registers_say_where_a_thread_is() {
    let body = format!(
        "{MINE}mov.u32 %r3, %laneid;\nmov.u32 %r4, %warpid;\nmov.u32 %r5, %nctaid.x;\nmad.lo.u32 %r9, %r4, 100, %r3;\n\
         mad.lo.u32 %r9, %r5, 10000, %r9;\nmov.u32 %r6, %lanemask_lt;\npopc.b32 %r6, %r6;\nsub.u32 %r6, %r6, %laneid;\n\
         add.u32 %r9, %r9, %r6;\nmov.u32 %r7, %ctaid.y;\nadd.u32 %r9, %r9, %r7;\nmov.u64 %rd5, %clock64;\n\
         mov.u64 %rd6, %clock64;\nsetp.lt.u64 %p0, %rd6, %rd5;\n@%p0 mov.u32 %r9, 0;\n{OUT}"
    );
    let wanted: Vec<u32> = (0..80).map(|k| 20_000 + k % 40 / 32 * 100 + k % 40 % 32).collect();
    assert_eq!(outcome::<u32>(shape(2, 40), 80, "", &body), wanted);
}

#[test]
fn guards_and_exits_take_single_lanes() {
    let body = format!(
        "{MINE}mov.u32 %r9, 5;\nst.global.u32 [%rd1], %r9;\nand.b32 %r3, %r0, 3;\nsetp.eq.u32 %p0, %r3, 1;\n@%p0 exit;\n\
         setp.eq.u32 %p1, %r3, 2;\n@%p1 ret;\n@!%p1 mov.u32 %r9, 6;\n{OUT}"
    );
    let wanted: Vec<u32> = (0..37).map(|k| if matches!(k % 4, 1 | 2) { 5 } else { 6 }).collect();
    assert_eq!(outcome::<u32>(shape(1, 37), 37, "", &body), wanted);
}

#[test]
fn lanes_may_exit_inside_a_function() {
    let leave = ".func leave(.param .b32 n)\n{\n.reg .pred %p<2>; .reg .b32 %r<4>;\nld.param.u32 %r1, [n];\nand.b32 %r2, %r1, 1;\n\
                 setp.eq.u32 %p1, %r2, 1;\n@%p1 exit;\nret;\n}";
    let body = format!(
        "{MINE}mov.u32 %r9, 1;\nst.global.u32 [%rd1], %r9;\n{{\n.param .b32 a;\nst.param.b32 [a], %r0;\ncall leave, (a);\n}}\n\
         add.u32 %r9, %r0, 2;\n{OUT}"
    );
    let wanted: Vec<u32> = (0..400).map(|k| if k % 2 == 1 { 1 } else { k + 2 }).collect();
    assert_eq!(outcome::<u32>(shape(10, 40), 400, leave, &body), wanted);
}

#[test]
fn labels_belong_to_their_braces() {
    // As inline assembly that was inlined twice, in a loop whose label has the same name.
    let count = |to: u32| {
        format!(
            "{{\n.reg .pred p;\nAGAIN:\nadd.u32 %r9, %r9, 1;\n{{\nsetp.lt.u32 p, %r9, {to};\n@p bra AGAIN;\n}}\n\
             bra DONE;\nDONE:\n}}\n"
        )
    };
    let body = format!(
        "mov.u32 %r9, 0;\nmov.u32 %r10, 0;\nAGAIN:\n{}{}add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p1, %r10, 3;\n@%p1 bra AGAIN;\n\
         mad.lo.u32 %r9, %r10, 1000, %r9;\nst.global.u32 [%rd0], %r9;",
        count(5),
        count(9)
    );
    // Later rounds pass both loops once.
    assert_eq!(outcome::<u32>(shape(1, 1), 1, "", &body), [3000 + 9 + 4]);
}

#[test]
fn a_register_that_is_read_before_it_is_written_is_zero_in_every_block_of_every_launch() {
    // Skipped by a branch, under a guard, in a loop before the write that follows, half of a pair, and a predicate.
    let reads = "
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra SKIP;
        mov.u32 %r20, 7;
        SKIP:
        @%p1 mov.u32 %r21, 5;
        mov.u32 %r9, 0;
        mov.u32 %r10, 0;
        LOOP:
        add.u32 %r9, %r9, %r22;
        mov.u32 %r22, 10;
        add.u32 %r10, %r10, 1;
        setp.lt.u32 %p2, %r10, 3;
        @%p2 bra LOOP;
        selp.b32 %r11, 1000, 0, %p3;
        mov.b64 {%r12, %r13}, %rd20;
        add.u32 %r9, %r9, %r20;
        add.u32 %r9, %r9, %r21;
        add.u32 %r9, %r9, %r11;
        add.u32 %r9, %r9, %r13;
    ";
    // What the next block and the next launch must not see.
    let leaves = "
        mov.u32 %r20, 100;
        mov.u32 %r21, 100;
        mov.u32 %r22, 100;
        setp.eq.u32 %p3, %r2, %r2;
        mov.u64 %rd20, -1;
    ";
    let body = format!("{MINE}{reads}{OUT}{leaves}");
    let wanted: Vec<u32> = (0..200).map(|k| if k % 40 == 0 { 25 } else { 27 }).collect();
    for _ in 0..3 {
        assert_eq!(outcome::<u32>(shape(5, 40), 200, "", &body), wanted);
    }
}
