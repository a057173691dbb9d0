//! `cvt` between every two types.

use crate::half::{BF16, F16};
use crate::table::check;

const INTEGERS: [&str; 8] = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"];

fn bits(ty: &str) -> u32 {
    ty.trim_start_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .expect("bits")
}

fn value(ty: &str, x: u64) -> i128 {
    let shift = 64 - bits(ty);
    if ty.starts_with('s') {
        i128::from((x as i64) << shift >> shift)
    } else {
        i128::from(x << shift >> shift)
    }
}

fn range(ty: &str) -> (i128, i128) {
    let bits = bits(ty);
    if ty.starts_with('s') {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// A register type that may hold the type: bytes live in 16-bit registers.
fn register(ty: &'static str) -> &'static str {
    match ty {
        "u8" => "u16",
        "s8" => "s16",
        ty => ty,
    }
}

#[test]
fn between_integers() {
    for to in INTEGERS {
        for from in INTEGERS {
            let (plain, sat) = (
                format!("cvt.{to}.{from} %d, %a;"),
                format!("cvt.sat.{to}.{from} %d, %a;"),
            );
            let (least, most) = range(to);
            let fill = |x: i128| value(to, x as u64) as u64;
            check(&[
                (&plain, register(to), &[register(from)], &|x| fill(value(from, x[0]))),
                (&sat, register(to), &[register(from)], &|x| {
                    fill(value(from, x[0]).clamp(least, most))
                }),
            ]);
        }
    }
}

#[test]
fn registers_may_be_wider() {
    check(&[
        ("cvt.s32.s8 %d, %a;", "s64", &["u32"], &|x| i64::from(x[0] as i8) as u64),
        ("cvt.u32.u16 %d, %a;", "u64", &["u64"], &|x| x[0] & 0xffff),
        ("cvt.s64.s32 %d, %a;", "s64", &["u64"], &|x| {
            i64::from(x[0] as i32) as u64
        }),
    ]);
}

fn float(ty: &str, x: u64) -> f64 {
    match ty {
        "f16" => F16.value(x),
        "bf16" => BF16.value(x),
        "f32" => f64::from(f32::from_bits(x as u32)),
        _ => f64::from_bits(x),
    }
}

fn whole(x: f64, mode: &str) -> f64 {
    match mode {
        "rni" | "rn" => x.round_ties_even(),
        "rzi" => x.trunc(),
        "rmi" => x.floor(),
        _ => x.ceil(),
    }
}

#[test]
fn floats_to_integers() {
    for from in ["f16", "bf16", "f32", "f64"] {
        for mode in ["rni", "rzi", "rmi", "rpi"] {
            for to in INTEGERS {
                let text = format!("cvt.{mode}.{to}.{from} %d, %a;");
                let (least, most) = range(to);
                let formula = |x: &[u64]| {
                    let y = whole(float(from, x[0]), mode);
                    // A cast to i128 clamps, and NaN is 0.
                    value(to, (y as i128).clamp(least, most) as u64) as u64
                };
                check(&[(&text, register(to), &[from], &formula)]);
            }
            if from == "f32" || from == "f64" {
                let text = format!("cvt.{mode}.{from}.{from} %d, %a;");
                let formula = |x: &[u64]| {
                    let y = whole(float(from, x[0]), mode);
                    if from == "f32" {
                        u64::from((y as f32).to_bits())
                    } else {
                        y.to_bits()
                    }
                };
                check(&[(&text, from, &[from], &formula)]);
            }
        }
    }
}

/// The nearest f32 or f64 of an integer in a direction, from neighbours.
fn of_integer(x: i128, mode: &str, single: bool) -> f64 {
    let near = if single { f64::from(x as f32) } else { x as f64 };
    let (down, up) = if single {
        (f64::from((near as f32).next_down()), f64::from((near as f32).next_up()))
    } else {
        (near.next_down(), near.next_up())
    };
    let exact = near as i128;
    match mode {
        "rz" if x > 0 && exact > x => down,
        "rz" if x < 0 && exact < x => up,
        "rm" if exact > x => down,
        "rp" if exact < x => up,
        _ => near,
    }
}

#[test]
fn integers_to_floats() {
    for from in INTEGERS {
        for mode in ["rn", "rz", "rm", "rp"] {
            let text = |to: &str| format!("cvt.{mode}.{to}.{from} %d, %a;");
            // Integers below 2^53 are exact in f64; larger ones overflow f16 and are odd cases for bf16 alone.
            let small = |x: u64| value(from, x).unsigned_abs() < 1 << 53;
            let (f16, bf16) = (text("f16"), text("bf16"));
            check(&[
                (&text("f32"), "f32", &[register(from)], &|x| {
                    u64::from((of_integer(value(from, x[0]), mode, true) as f32).to_bits())
                }),
                (&text("f64"), "f64", &[register(from)], &|x| {
                    of_integer(value(from, x[0]), mode, false).to_bits()
                }),
                (&f16, "f16", &[register(from)], &|x| {
                    F16.round(value(from, x[0]) as f64, mode)
                }),
            ]);
            if bits(from) <= 32 {
                check(&[(&bf16, "bf16", &[register(from)], &|x| {
                    assert!(small(x[0]));
                    BF16.round(value(from, x[0]) as f64, mode)
                })]);
            }
        }
    }
}

#[test]
fn between_floats() {
    for (to, format) in [("f16", F16), ("bf16", BF16)] {
        for from in ["f32", "f64"] {
            for mode in ["rn", "rz", "rm", "rp"] {
                let text = format!("cvt.{mode}.{to}.{from} %d, %a;");
                check(&[(&text, to, &[from], &|x| format.round(float(from, x[0]), mode))]);
            }
        }
        let (wide, wider) = (format!("cvt.f32.{to} %d, %a;"), format!("cvt.f64.{to} %d, %a;"));
        let pair = format!("cvt.rn.{to}x2.f32 %d, %a, %b;");
        let relu = format!("cvt.rn.relu.{to}.f32 %d, %a;");
        let packed = format!("{to}x2");
        check(&[
            (&wide, "f32", &[to], &|x| {
                u64::from((format.value(x[0]) as f32).to_bits())
            }),
            (&wider, "f64", &[to], &|x| format.value(x[0]).to_bits()),
            (&pair, &packed, &["f32", "f32"], &|x| {
                format.round(float("f32", x[0]), "rn") << 16 | format.round(float("f32", x[1]), "rn")
            }),
            (&relu, to, &["f32"], &|x| {
                let y = float("f32", x[0]);
                let r = format.round(y, "rn");
                if y < 0.0 && r != 0x8000 { 0 } else { r }
            }),
        ]);
    }
    let f = |x: u64| f32::from_bits(x as u32);
    let narrow = |x: f64, mode: &str| {
        let near = x as f32;
        let wide = f64::from(near);
        match mode {
            _ if !x.is_finite() => near,
            "rz" if x > 0.0 && wide > x => near.next_down(),
            "rz" if x < 0.0 && wide < x => near.next_up(),
            "rm" if wide > x => near.next_down(),
            "rp" if wide < x => near.next_up(),
            _ => near,
        }
    };
    for mode in ["rn", "rz", "rm", "rp"] {
        let text = format!("cvt.{mode}.f32.f64 %d, %a;");
        check(&[(&text, "f32", &["f64"], &|x| {
            let y = narrow(f64::from_bits(x[0]), mode);
            // A result that became zero keeps the sign of its operand.
            u64::from(
                if y == 0.0 {
                    0f32.copysign(f64::from_bits(x[0]) as f32)
                } else {
                    y
                }
                .to_bits(),
            )
        })]);
    }
    check(&[
        ("cvt.f64.f32 %d, %a;", "f64", &["f32"], &|x| {
            f64::from(f(x[0])).to_bits()
        }),
        ("cvt.sat.f32.f32 %d, %a;", "f32", &["f32"], &|x| {
            let y = f(x[0]);
            u64::from(if y.is_nan() { 0.0 } else { y.clamp(0.0, 1.0) + 0.0 }.to_bits())
        }),
        ("cvt.ftz.f32.f32 %d, %a;", "f32", &["f32"], &|x| {
            if f(x[0]).is_subnormal() { x[0] & 1 << 31 } else { x[0] }
        }),
        ("cvt.rna.tf32.f32 %d, %a;", "b32", &["f32"], &|x| {
            // Half a unit of the 13 bits that go is added, ties away from zero.
            if f(x[0]).is_finite() {
                (x[0] + 0x1000) & !0x1fff
            } else {
                x[0]
            }
        }),
    ]);
}

/// A float as `.sat` clamps it: 0…1, and NaN is 0.
fn saturated(x: f64) -> f64 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

#[test]
fn saturated_to_and_from_f64() {
    for mode in ["rn", "rz", "rm", "rp"] {
        for from in INTEGERS {
            let text = format!("cvt.{mode}.sat.f64.{from} %d, %a;");
            check(&[(&text, "f64", &[register(from)], &|x| {
                saturated(of_integer(value(from, x[0]), mode, false)).to_bits()
            })]);
        }
        let (single, half) = (
            format!("cvt.{mode}.sat.f32.f64 %d, %a;"),
            format!("cvt.{mode}.sat.f16.f64 %d, %a;"),
        );
        check(&[
            (&single, "f32", &["f64"], &|x| {
                let x = f64::from_bits(x[0]);
                let near = x as f32;
                let y = match mode {
                    "rm" | "rz" if f64::from(near) > x && x > 0.0 => near.next_down(),
                    "rp" if f64::from(near) < x => near.next_up(),
                    _ => near,
                };
                u64::from((saturated(f64::from(y)) as f32).to_bits())
            }),
            (&half, "f16", &["f64"], &|x| {
                let y = F16.value(F16.round(f64::from_bits(x[0]), mode));
                F16.round(saturated(y), "rn")
            }),
        ]);
    }
    for mode in ["rni", "rzi", "rmi", "rpi"] {
        let text = format!("cvt.{mode}.sat.f64.f64 %d, %a;");
        check(&[(&text, "f64", &["f64"], &|x| {
            saturated(whole(f64::from_bits(x[0]), mode)).to_bits()
        })]);
        for to in INTEGERS {
            let text = format!("cvt.{mode}.sat.{to}.f64 %d, %a;");
            let (least, most) = range(to);
            check(&[(&text, register(to), &["f64"], &|x| {
                let y = whole(f64::from_bits(x[0]), mode);
                value(to, (y as i128).clamp(least, most) as u64) as u64
            })]);
        }
    }
    for from in ["f16", "bf16", "f32", "f64"] {
        let text = format!("cvt.sat.f64.{from} %d, %a;");
        check(&[(&text, "f64", &[from], &|x| saturated(float(from, x[0])).to_bits())]);
    }
}

#[test]
fn subnormal_f32_are_flushed_on_their_way_to_a_half() {
    let flushed = |x: u64| {
        if f32::from_bits(x as u32).is_subnormal() {
            x & 1 << 31
        } else {
            x
        }
    };
    for mode in ["rn", "rz", "rm", "rp"] {
        let (plain, sat) = (
            format!("cvt.{mode}.ftz.f16.f32 %d, %a;"),
            format!("cvt.{mode}.ftz.sat.f16.f32 %d, %a;"),
        );
        check(&[
            (&plain, "f16", &["f32"], &|x| {
                F16.round(float("f32", flushed(x[0])), mode)
            }),
            (&sat, "f16", &["f32"], &|x| {
                let y = F16.value(F16.round(float("f32", flushed(x[0])), mode));
                F16.round(saturated(y), "rn")
            }),
        ]);
    }
    check(&[("cvt.ftz.f64.f32 %d, %a;", "f64", &["f32"], &|x| {
        float("f32", flushed(x[0])).to_bits()
    })]);
}
