//! Integer arithmetic.

use crate::kernel::{outcome, shape};
use crate::table::check;

fn s(x: u64, bits: u32) -> i128 {
    i128::from((x as i64) << (64 - bits) >> (64 - bits))
}

fn u(x: u64) -> i128 {
    i128::from(x)
}

/// Runs an instruction for all six types, with operands as exact integers.
fn everywhere(name: &str, arity: usize, f: fn(&[i128], u32, bool) -> i128) {
    for ty in ["s16", "u16", "s32", "u32", "s64", "u64"] {
        let (bits, signed) = (ty[1..].parse::<u32>().expect("bits"), ty.starts_with('s'));
        let operands = ["", "%d, %a;", "%d, %a, %b;", "%d, %a, %b, %c;"][arity];
        let text = format!("{name}.{ty} {operands}");
        let formula = |x: &[u64]| {
            let x: Vec<i128> = x.iter().map(|x| if signed { s(*x, bits) } else { u(*x) }).collect();
            f(&x, bits, signed) as u64
        };
        check(&[(&text, ty, &vec![ty; arity], &formula)]);
    }
}

#[test]
fn sums_products_and_extremes() {
    everywhere("add", 2, |x, _, _| x[0] + x[1]);
    everywhere("sub", 2, |x, _, _| x[0] - x[1]);
    everywhere("mul.lo", 2, |x, _, _| x[0].wrapping_mul(x[1]));
    everywhere("mul.hi", 2, |x, bits, signed| {
        // 64 by 64 bits fill 128 when unsigned.
        if signed {
            (x[0] * x[1]) >> bits
        } else {
            (((x[0] as u128) * (x[1] as u128)) >> bits) as i128
        }
    });
    everywhere("mad.lo", 3, |x, _, _| x[0].wrapping_mul(x[1]).wrapping_add(x[2]));
    everywhere("min", 2, |x, _, _| x[0].min(x[1]));
    everywhere("max", 2, |x, _, _| x[0].max(x[1]));
    everywhere("sad", 3, |x, _, _| (x[0] - x[1]).abs() + x[2]);
}

#[test]
fn quotients() {
    everywhere("div", 2, |x, _, _| if x[1] == 0 { -1 } else { x[0] / x[1] });
    everywhere("rem", 2, |x, _, _| if x[1] == 0 { x[0] } else { x[0] % x[1] });
}

#[test]
fn signs() {
    check(&[
        ("neg.s16 %d, %a;", "s16", &["s16"], &|x| {
            (x[0] as i16).wrapping_neg() as u64
        }),
        ("neg.s32 %d, %a;", "s32", &["s32"], &|x| {
            (x[0] as i32).wrapping_neg() as u64
        }),
        ("neg.s64 %d, %a;", "s64", &["s64"], &|x| {
            (x[0] as i64).wrapping_neg() as u64
        }),
        ("abs.s16 %d, %a;", "s16", &["s16"], &|x| {
            (x[0] as i16).wrapping_abs() as u64
        }),
        ("abs.s32 %d, %a;", "s32", &["s32"], &|x| {
            (x[0] as i32).wrapping_abs() as u64
        }),
        ("abs.s64 %d, %a;", "s64", &["s64"], &|x| {
            (x[0] as i64).wrapping_abs() as u64
        }),
        ("add.sat.s32 %d, %a, %b;", "s32", &["s32", "s32"], &|x| {
            (x[0] as i32).saturating_add(x[1] as i32) as u64
        }),
        ("sub.sat.s32 %d, %a, %b;", "s32", &["s32", "s32"], &|x| {
            (x[0] as i32).saturating_sub(x[1] as i32) as u64
        }),
    ]);
}

#[test]
fn wide_products() {
    check(&[
        ("mul.wide.s16 %d, %a, %b;", "s32", &["s16", "s16"], &|x| {
            (s(x[0], 16) * s(x[1], 16)) as u64
        }),
        ("mul.wide.u16 %d, %a, %b;", "u32", &["u16", "u16"], &|x| x[0] * x[1]),
        ("mul.wide.s32 %d, %a, %b;", "s64", &["s32", "s32"], &|x| {
            (s(x[0], 32) * s(x[1], 32)) as u64
        }),
        ("mul.wide.u32 %d, %a, %b;", "u64", &["u32", "u32"], &|x| x[0] * x[1]),
        ("mul24.lo.s32 %d, %a, %b;", "s32", &["s32", "s32"], &|x| {
            (s(x[0], 24) * s(x[1], 24)) as u64
        }),
        ("mul24.lo.u32 %d, %a, %b;", "u32", &["u32", "u32"], &|x| {
            (x[0] & 0xff_ffff) * (x[1] & 0xff_ffff)
        }),
        ("mad.wide.s16 %d, %a, %b, %c;", "s32", &["s16", "s16", "s32"], &|x| {
            (s(x[0], 16) * s(x[1], 16) + u(x[2])) as u64
        }),
        ("mad.wide.u16 %d, %a, %b, %c;", "u32", &["u16", "u16", "u32"], &|x| {
            x[0] * x[1] + x[2]
        }),
        ("mad.wide.s32 %d, %a, %b, %c;", "s64", &["s32", "s32", "s64"], &|x| {
            (s(x[0], 32) * s(x[1], 32) + u(x[2])) as u64
        }),
        ("mad.wide.u32 %d, %a, %b, %c;", "u64", &["u32", "u32", "u64"], &|x| {
            (x[0] * x[1]).wrapping_add(x[2])
        }),
        ("mad.hi.s32 %d, %a, %b, %c;", "s32", &["s32", "s32", "s32"], &|x| {
            (((s(x[0], 32) * s(x[1], 32)) >> 32) + u(x[2])) as u64
        }),
        ("mad.hi.u32 %d, %a, %b, %c;", "u32", &["u32", "u32", "u32"], &|x| {
            ((x[0] * x[1]) >> 32) + x[2]
        }),
        ("mad.hi.s64 %d, %a, %b, %c;", "s64", &["s64", "s64", "s64"], &|x| {
            (((s(x[0], 64) * s(x[1], 64)) >> 64) + u(x[2])) as u64
        }),
        ("mad.hi.u64 %d, %a, %b, %c;", "u64", &["u64", "u64", "u64"], &|x| {
            (((u128::from(x[0]) * u128::from(x[1])) >> 64) as u64).wrapping_add(x[2])
        }),
    ]);
}

#[test]
fn dot_products_of_bytes() {
    fn dot(x: &[u64], signed: [bool; 2]) -> u64 {
        let byte = |x: u64, k: u32, signed: bool| {
            if signed {
                s(x >> (8 * k), 8)
            } else {
                u(x >> (8 * k) & 255)
            }
        };
        (0..4).fold(u(x[2]), |sum, k| {
            sum + byte(x[0], k, signed[0]) * byte(x[1], k, signed[1])
        }) as u64
    }
    check(&[
        ("dp4a.s32.s32 %d, %a, %b, %c;", "s32", &["s32", "s32", "s32"], &|x| {
            dot(x, [true, true])
        }),
        ("dp4a.u32.u32 %d, %a, %b, %c;", "u32", &["u32", "u32", "u32"], &|x| {
            dot(x, [false, false])
        }),
        ("dp4a.s32.u32 %d, %a, %b, %c;", "s32", &["s32", "u32", "s32"], &|x| {
            dot(x, [true, false])
        }),
        ("dp4a.u32.s32 %d, %a, %b, %c;", "s32", &["u32", "s32", "s32"], &|x| {
            dot(x, [false, true])
        }),
    ]);
}

#[test]
fn carries_make_wider_integers() {
    let two = "%d, {low, high};\n}";
    let split = "{ .reg .b32 al, ah, bl, bh, low, high;\nmov.b64 {al, ah}, %a;\nmov.b64 {bl, bh}, %b;\n";
    let sum = format!("{split}add.cc.u32 low, al, bl;\naddc.u32 high, ah, bh;\nmov.b64 {two}");
    let difference = format!("{split}sub.cc.u32 low, al, bl;\nsubc.u32 high, ah, bh;\nmov.b64 {two}");
    let product = format!(
        "{split}mul.lo.u32 low, al, bl;\nmul.hi.u32 high, al, bl;\nmad.lo.u32 high, al, bh, high;\n\
         mad.lo.u32 high, ah, bl, high;\nmov.b64 {two}"
    );
    // The upper half of a 64-bit product, by 32-bit pieces with carries.
    let upper = format!(
        "{split}.reg .b32 x, y;\nmul.hi.u32 x, al, bl;\nmad.lo.cc.u32 x, al, bh, x;\nmadc.hi.u32 y, al, bh, 0;\n\
         mad.lo.cc.u32 x, ah, bl, x;\nmadc.hi.cc.u32 y, ah, bl, y;\naddc.u32 high, 0, 0;\n\
         mad.lo.cc.u32 low, ah, bh, y;\nmadc.hi.u32 high, ah, bh, high;\nmov.b64 {two}"
    );
    check(&[
        (&sum, "u64", &["u64", "u64"], &|x| x[0].wrapping_add(x[1])),
        (&difference, "u64", &["u64", "u64"], &|x| x[0].wrapping_sub(x[1])),
        (&product, "u64", &["u64", "u64"], &|x| x[0].wrapping_mul(x[1])),
        (&upper, "u64", &["u64", "u64"], &|x| {
            ((u128::from(x[0]) * u128::from(x[1])) >> 64) as u64
        }),
    ]);
}

#[test]
fn a_carry_belongs_to_its_lane() {
    // Only odd lanes carry, and only lanes below 16 set the flag again.
    let body = "and.b32 %r3, %r0, 1;\nneg.s32 %r4, %r3;\nadd.cc.u32 %r5, %r4, 1;\nsetp.lt.u32 %p0, %r0, 16;\n\
                @%p0 add.cc.u32 %r5, %r4, 0;\naddc.u32 %r6, 0, 0;\nmul.wide.u32 %rd1, %r0, 4;\nadd.u64 %rd1, %rd1, %rd0;\n\
                st.global.u32 [%rd1], %r6;";
    let found = outcome::<u32>(shape(1, 32), 32, "", body);
    let wanted: Vec<u32> = (0..32).map(|l| u32::from(l >= 16 && l % 2 == 1)).collect();
    assert_eq!(found, wanted);
}
