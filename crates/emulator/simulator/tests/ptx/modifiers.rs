//! Modifiers in other orders than the manual's, and constants that have names.

use kiln_simulator::LoadError;

use crate::kernel::{outcome, refusal, shape};

/// `%rd6` is the thread's element of the output.
const MINE: &str = "mul.wide.u32 %rd6, %r0, 4;\nadd.u64 %rd6, %rd6, %rd0;\n";
const OUT: &str = "st.global.u32 [%rd6], %r9;";

fn value(instructions: &str) -> u32 {
    outcome::<u32>(shape(1, 32), 32, "", &format!("{MINE}{instructions}\n{OUT}"))[3]
}

#[test]
fn the_order_of_modifiers_changes_nothing() {
    let float = "mov.f32 %f1, 0f40300000;\n";
    for (set, instruction, wanted) in [
        ("setp.lt.u32 %p0, %r2, 5;", "vote.ballot.sync.b32 %r9, %p0, -1;", 31),
        ("", "shfl.b32.bfly.sync %r9, %r2, 1, 31, -1;", 2),
        ("", "redux.max.u32.sync %r9, %r2, -1;", 31),
        ("", "match.sync.b32.any %r9, %r2, -1;", 8),
        ("setp.u32.lt %p0, %r2, 5;", "vote.b32.sync.ballot %r9, !%p0, -1;", !31),
        (float, "cvt.s32.rzi.f32 %r9, %f1;", 2),
        (float, "cvt.s32.f32.rpi %r9, %f1;", 3),
        (float, "add.f32.rn %f2, %f1, %f1;\nmov.b32 %r9, %f2;", 5.5f32.to_bits()),
        (
            "mov.u32 %r3, 0x01020304;",
            "prmt.f4e.b32 %r9, %r3, %r3, 1;",
            0x0401_0203,
        ),
        ("mov.u32 %r3, 1;", "shf.l.b32.wrap %r9, %r3, %r3, 4;", 16),
        ("st.u32.global [%rd6], 9;", "ld.u32.volatile.global %r9, [%rd6];", 9),
        ("", "mov.u32 %r9, WARP_SZ;", 32),
        ("", "add.u32 %r9, %r2, WARP_SZ;", 35),
        (
            "createpolicy.fractional.L2::evict_first.b64 %rd5, 1.0;\nst.global.L2::cache_hint.u32 [%rd6], 5, %rd5;",
            "ld.global.L1::evict_last.L2::cache_hint.b32 %r9, [%rd6], %rd5;",
            5,
        ),
    ] {
        assert_eq!(value(&format!("{set}\n{instruction}")), wanted, "{instruction}");
    }
}

#[test]
fn contradictions_are_named() {
    for (body, both) in [
        ("add.rn.rz.f32 %f1, %f1, %f1;", "has both `.rn` and `.rz`"),
        ("ld.global.shared.u32 %r3, [%rd0];", "has both `.global` and `.shared`"),
        ("vote.sync.any.all.pred %p0, %p1, -1;", "has both `.any` and `.all`"),
        ("add.u32.s32 %r3, %r3, %r3;", "has both `.u32` and `.s32`"),
    ] {
        let refusal = refusal(body);
        assert!(matches!(refusal, LoadError::Syntax { .. }), "{refusal}");
        assert!(refusal.to_string().contains(both), "{refusal}");
    }
    assert!(matches!(
        refusal("add.quickly.u32 %r3, %r3, %r3;"),
        LoadError::Unsupported { .. }
    ));
}
