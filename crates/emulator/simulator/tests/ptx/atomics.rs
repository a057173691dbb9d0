//! `atom` and `red`, on global and shared memory, by one lane after the other and from many blocks.

use crate::half::{BF16, F16};
use crate::kernel::{Device, Shape, module, outcome, shape};

/// All lanes of a warp update one word that starts as `start`; compares the word with `step` applied for every lane, and
/// checks that the old values that the lanes saw are the intermediate ones.
fn run(op: &str, ty: &str, start: u64, operand: impl Fn(u64) -> u64, step: impl Fn(u64, u64) -> u64) {
    let bits: u32 = ty
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .trim_end_matches("x2")
        .parse()
        .expect("bits");
    let bits = if ty.ends_with("x2") { 32 } else { bits };
    let operands: Vec<u64> = (0..32).map(operand).collect();
    let register = format!(".reg .b{bits} old, x, y;\n");
    for space in ["global", "shared"] {
        let device = Device::new();
        let (input, word, out) = (
            device.upload(&operands),
            device.upload(&[start]),
            device.upload(&[0u64; 32]),
        );
        // In shared memory the word is copied in and out.
        let (at, before, after) = match space {
            "global" => ("%rd1", String::new(), String::new()),
            _ => (
                "word",
                format!(
                    ".shared .align 8 .b64 word;\nld.global.b{bits} y, [%rd1];\nst.shared.b{bits} [word], y;\nbar.sync 0;\n"
                ),
                format!("bar.sync 0;\nld.shared.b{bits} y, [word];\nst.global.b{bits} [%rd1], y;\n"),
            ),
        };
        let extra = if op.contains("cas") { ", y" } else { "" };
        let body = format!(
            "{register}{before}mul.wide.u32 %rd3, %r0, 8;\nadd.u64 %rd4, %rd3, %rd0;\nadd.u64 %rd5, %rd3, %rd2;\n\
             ld.global.b{bits} x, [%rd4];\nld.global.b{bits} y, [%rd4];\natom.{space}.{op}.{ty} old, [{at}], x{extra};\n\
             st.global.b{bits} [%rd5], old;\n{after}"
        );
        device
            .launch(
                &module(3, "", &body),
                shape(1, 32),
                &[input.base, word.base, out.base],
                true,
            )
            .expect("no fault");
        let mask = u64::MAX >> (64 - bits);
        let mut value = start;
        for (lane, old) in device.read::<u64>(&out).iter().enumerate() {
            assert_eq!(old & mask, value & mask, "{space}.{op}.{ty}: lane {lane}");
            value = step(value, operands[lane]) & mask;
        }
        assert_eq!(device.read::<u64>(&word)[0] & mask, value, "{space}.{op}.{ty}");
    }
}

#[test]
fn integers() {
    let spread = |l: u64| l.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3;
    let low = move |l: u64| spread(l) & 0xffff_ffff;
    run("add", "u32", 5, low, |x, b| x.wrapping_add(b));
    run("add", "u64", 5, spread, |x, b| x.wrapping_add(b));
    run("min", "s32", 0, low, |x, b| (x as i32).min(b as i32) as u64);
    run("max", "s32", 0, low, |x, b| (x as i32).max(b as i32) as u64);
    run("min", "u32", 1 << 30, low, |x, b| x.min(b));
    run("max", "u32", 0, low, |x, b| x.max(b));
    run("min", "s64", 0, spread, |x, b| (x as i64).min(b as i64) as u64);
    run("max", "s64", 0, spread, |x, b| (x as i64).max(b as i64) as u64);
    run("min", "u64", u64::MAX, spread, |x, b| x.min(b));
    run("max", "u64", 0, spread, |x, b| x.max(b));
    run("and", "b32", 0xffff_ffff, low, |x, b| x & b);
    run("or", "b64", 0, spread, |x, b| x | b);
    run("xor", "b32", 0, low, |x, b| x ^ b);
    run("exch", "b64", 3, spread, |_, b| b);
    run("inc", "u32", 0, |_| 6, |x, b| if x >= b { 0 } else { x + 1 });
    run("dec", "u32", 2, |_| 6, |x, b| if x == 0 || x > b { b } else { x - 1 });
    // The compared and the new value are the same here, so nothing changes but where they agree.
    run("cas", "b32", 7, |l| l, |x, _| x);
    run("relaxed.gpu.add", "u32", 5, low, |x, b| x.wrapping_add(b));
}

#[test]
fn floats() {
    let f = |x: u64| f32::from_bits(x as u32);
    run(
        "add",
        "f32",
        0,
        |l| u64::from((l as f32 * 0.3).to_bits()),
        |x, b| u64::from((f(x) + f(b)).to_bits()),
    );
    run(
        "add",
        "f64",
        0,
        |l| (l as f64 * 0.3).to_bits(),
        |x, b| (f64::from_bits(x) + f64::from_bits(b)).to_bits(),
    );
    run(
        "add.noftz",
        "f16",
        0,
        |l| 0x3c00 + 9 * l,
        |x, b| F16.round(F16.value(x) + F16.value(b), "rn"),
    );
    for (ty, format) in [("f16x2", F16), ("bf16x2", BF16)] {
        let half = |x: u64, b: u64| format.round(format.value(x & 0xffff) + format.value(b & 0xffff), "rn");
        run(
            "add.noftz",
            ty,
            0,
            |l| 0x3c00_0000 + 0x3e00 + 9 * l,
            |x, b| half(x, b) | half(x >> 16, b >> 16) << 16,
        );
    }
}

#[test]
fn many_blocks_lose_nothing() {
    let body = "and.b32 %r3, %r0, 3;\nmul.wide.u32 %rd1, %r3, 8;\nadd.u64 %rd1, %rd1, %rd0;\nred.global.add.u32 [%rd1], 3;\n\
                red.global.max.u32 [%rd1+4], %r0;";
    // The checker's run comes second, on memory of its own.
    let found = outcome::<u32>(
        Shape {
            blocks: 300,
            threads: 96,
            dynamic: 0,
        },
        8,
        "",
        body,
    );
    let top = 300 * 96;
    assert_eq!(
        found,
        [
            top / 4 * 3,
            top - 4,
            top / 4 * 3,
            top - 3,
            top / 4 * 3,
            top - 2,
            top / 4 * 3,
            top - 1
        ]
    );
}
