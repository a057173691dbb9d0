//! f32 and f64 arithmetic, in every direction.

use crate::table::check;

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn b(x: f32) -> u64 {
    u64::from(x.to_bits())
}

fn d(x: u64) -> f64 {
    f64::from_bits(x)
}

#[test]
fn plain_arithmetic() {
    check(&[
        ("add.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| b(f(x[0]) + f(x[1]))),
        ("sub.rn.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(f(x[0]) - f(x[1]))
        }),
        ("mul.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| b(f(x[0]) * f(x[1]))),
        ("fma.rn.f32 %d, %a, %b, %c;", "f32", &["f32", "f32", "f32"], &|x| {
            b(f(x[0]).mul_add(f(x[1]), f(x[2])))
        }),
        ("div.rn.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(f(x[0]) / f(x[1]))
        }),
        ("rcp.rn.f32 %d, %a;", "f32", &["f32"], &|x| b(1.0 / f(x[0]))),
        ("sqrt.rn.f32 %d, %a;", "f32", &["f32"], &|x| b(f(x[0]).sqrt())),
        ("neg.f32 %d, %a;", "f32", &["f32"], &|x| x[0] ^ 1 << 31),
        ("abs.f32 %d, %a;", "f32", &["f32"], &|x| x[0] & 0x7fff_ffff),
        ("add.f64 %d, %a, %b;", "f64", &["f64", "f64"], &|x| {
            (d(x[0]) + d(x[1])).to_bits()
        }),
        ("sub.f64 %d, %a, %b;", "f64", &["f64", "f64"], &|x| {
            (d(x[0]) - d(x[1])).to_bits()
        }),
        ("mul.rn.f64 %d, %a, %b;", "f64", &["f64", "f64"], &|x| {
            (d(x[0]) * d(x[1])).to_bits()
        }),
        ("fma.rn.f64 %d, %a, %b, %c;", "f64", &["f64", "f64", "f64"], &|x| {
            d(x[0]).mul_add(d(x[1]), d(x[2])).to_bits()
        }),
        ("div.rn.f64 %d, %a, %b;", "f64", &["f64", "f64"], &|x| {
            (d(x[0]) / d(x[1])).to_bits()
        }),
        ("rcp.rn.f64 %d, %a;", "f64", &["f64"], &|x| (1.0 / d(x[0])).to_bits()),
        ("sqrt.rn.f64 %d, %a;", "f64", &["f64"], &|x| d(x[0]).sqrt().to_bits()),
        ("neg.f64 %d, %a;", "f64", &["f64"], &|x| x[0] ^ 1 << 63),
        ("abs.f64 %d, %a;", "f64", &["f64"], &|x| x[0] & u64::MAX >> 1),
    ]);
}

/// Rounds the exact value, known by its comparison with candidates, starting at the nearest.
fn direct(near: f32, mode: &str, above: impl Fn(f64) -> bool, below: impl Fn(f64) -> bool) -> f32 {
    if near.is_nan() {
        return near;
    }
    // `above(c)` says that the exact value is above the candidate.
    let wide = f64::from(near);
    let (down, up) = match mode {
        "rm" => (true, false),
        "rp" => (false, true),
        _ => (near > 0.0, near < 0.0),
    };
    if down && below(wide) {
        near.next_down()
    } else if up && above(wide) {
        near.next_up()
    } else {
        near
    }
}

/// The exact sum as a pair of which the first is the rounded sum.
fn exact_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

fn directed_sum(a: f64, b: f64, mode: &str) -> f32 {
    let (s, e) = exact_sum(a, b);
    if !s.is_finite() {
        return s as f32;
    }
    if s == 0.0 && e == 0.0 {
        // Zeros of one sign keep it; a sum that cancels is -0 when rounding down, +0 otherwise.
        let same = a == 0.0 && b == 0.0 && a.is_sign_negative() == b.is_sign_negative();
        return if same {
            a as f32
        } else if mode == "rm" {
            -0.0
        } else {
            0.0
        };
    }
    let near = s as f32;
    direct(
        near,
        mode,
        |c| s > c || s == c && e > 0.0,
        |c| s < c || s == c && e < 0.0,
    )
}

#[test]
fn directed_f32() {
    for mode in ["rz", "rm", "rp"] {
        let add = format!("add.{mode}.f32 %d, %a, %b;");
        let mul = format!("mul.{mode}.f32 %d, %a, %b;");
        let fma = format!("fma.{mode}.f32 %d, %a, %b, %c;");
        let div = format!("div.{mode}.f32 %d, %a, %b;");
        let rcp = format!("rcp.{mode}.f32 %d, %a;");
        let sqrt = format!("sqrt.{mode}.f32 %d, %a;");
        let quotient = |a: f32, b: f32| {
            let near = a / b;
            let (a, b) = (f64::from(a), f64::from(b));
            if b == 0.0 || !a.is_finite() || !b.is_finite() {
                return near;
            }
            // For an infinite candidate the exact value is inside.
            let above = |c: f64| {
                if c.is_infinite() {
                    c < 0.0
                } else if b > 0.0 {
                    a > c * b
                } else {
                    a < c * b
                }
            };
            let below = |c: f64| {
                if c.is_infinite() {
                    c > 0.0
                } else if b > 0.0 {
                    a < c * b
                } else {
                    a > c * b
                }
            };
            direct_zero(near, mode, above, below)
        };
        check(&[
            (&add, "f32", &["f32", "f32"], &|x| {
                b(directed_sum(f(x[0]).into(), f(x[1]).into(), mode))
            }),
            (&mul, "f32", &["f32", "f32"], &|x| {
                let p = f64::from(f(x[0])) * f64::from(f(x[1]));
                if !p.is_finite() {
                    return b(p as f32);
                }
                b(direct_zero(p as f32, mode, |c| p > c, |c| p < c))
            }),
            (&fma, "f32", &["f32", "f32", "f32"], &|x| {
                let p = f64::from(f(x[0])) * f64::from(f(x[1]));
                b(directed_sum(p, f(x[2]).into(), mode))
            }),
            (&div, "f32", &["f32", "f32"], &|x| b(quotient(f(x[0]), f(x[1])))),
            (&rcp, "f32", &["f32"], &|x| b(quotient(1.0, f(x[0])))),
            (&sqrt, "f32", &["f32"], &|x| {
                let a = f64::from(f(x[0]));
                if !a.is_finite() {
                    return b(f(x[0]).sqrt());
                }
                b(direct(f(x[0]).sqrt(), mode, |c| a > c * c, |c| a < c * c))
            }),
        ]);
    }
}

/// As `direct`, where the nearest may be a zero with a sign.
fn direct_zero(near: f32, mode: &str, above: impl Fn(f64) -> bool, below: impl Fn(f64) -> bool) -> f32 {
    if near == 0.0 {
        return match mode {
            "rp" if above(0.0) => f32::from_bits(1),
            "rm" if below(0.0) => -f32::from_bits(1),
            _ => near,
        };
    }
    let out = direct(near, mode, above, below);
    if out == 0.0 { 0f32.copysign(near) } else { out }
}

#[test]
fn flushed_and_saturated() {
    let z = |x: u64| if f(x).is_subnormal() { 0f32.copysign(f(x)) } else { f(x) };
    let z32 = move |x: f32| z(b(x));
    let sat = |x: f32| if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) + 0.0 };
    check(&[
        ("add.ftz.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(z32(z(x[0]) + z(x[1])))
        }),
        ("mul.ftz.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(z32(z(x[0]) * z(x[1])))
        }),
        ("fma.rn.ftz.f32 %d, %a, %b, %c;", "f32", &["f32", "f32", "f32"], &|x| {
            b(z32(z(x[0]).mul_add(z(x[1]), z(x[2]))))
        }),
        ("abs.ftz.f32 %d, %a;", "f32", &["f32"], &|x| b(z(x[0]).abs())),
        ("add.sat.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(sat(f(x[0]) + f(x[1])))
        }),
        ("mul.sat.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(sat(f(x[0]) * f(x[1])))
        }),
        ("fma.rn.sat.f32 %d, %a, %b, %c;", "f32", &["f32", "f32", "f32"], &|x| {
            b(sat(f(x[0]).mul_add(f(x[1]), f(x[2]))))
        }),
    ]);
}

#[test]
fn extremes() {
    // Of a number and a NaN the number; -0 is below +0.
    let key = |x: f32| (x, !x.is_sign_negative());
    let min = move |x: f32, y: f32| if y.is_nan() || key(x) <= key(y) { x } else { y };
    let max = move |x: f32, y: f32| if y.is_nan() || key(x) >= key(y) { x } else { y };
    let nan = |x: &[u64]| f(x[0]).is_nan() || f(x[1]).is_nan();
    let key64 = |x: f64| (x, !x.is_sign_negative());
    check(&[
        ("min.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(min(f(x[0]), f(x[1])))
        }),
        ("max.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(max(f(x[0]), f(x[1])))
        }),
        ("min.NaN.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            if nan(x) { 0x7fff_ffff } else { b(min(f(x[0]), f(x[1]))) }
        }),
        ("max.NaN.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            if nan(x) { 0x7fff_ffff } else { b(max(f(x[0]), f(x[1]))) }
        }),
        ("min.f64 %d, %a, %b;", "f64", &["f64", "f64"], &|x| {
            let (a, c) = (d(x[0]), d(x[1]));
            (if c.is_nan() || key64(a) <= key64(c) { a } else { c }).to_bits()
        }),
        ("max.f64 %d, %a, %b;", "f64", &["f64", "f64"], &|x| {
            let (a, c) = (d(x[0]), d(x[1]));
            (if c.is_nan() || key64(a) >= key64(c) { a } else { c }).to_bits()
        }),
    ]);
}

#[test]
fn approximations_are_the_rounded_functions() {
    let wide = |x: u64| f64::from(f(x));
    check(&[
        ("ex2.approx.f32 %d, %a;", "f32", &["f32"], &|x| {
            b(wide(x[0]).exp2() as f32)
        }),
        ("lg2.approx.f32 %d, %a;", "f32", &["f32"], &|x| {
            b(wide(x[0]).log2() as f32)
        }),
        ("rcp.approx.f32 %d, %a;", "f32", &["f32"], &|x| b(1.0 / f(x[0]))),
        ("div.approx.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(f(x[0]) / f(x[1]))
        }),
        ("div.full.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            b(f(x[0]) / f(x[1]))
        }),
        ("sqrt.approx.f32 %d, %a;", "f32", &["f32"], &|x| b(f(x[0]).sqrt())),
        ("rsqrt.approx.f32 %d, %a;", "f32", &["f32"], &|x| {
            b((1.0 / wide(x[0]).sqrt()) as f32)
        }),
        ("sin.approx.f32 %d, %a;", "f32", &["f32"], &|x| {
            b(wide(x[0]).sin() as f32)
        }),
        ("cos.approx.f32 %d, %a;", "f32", &["f32"], &|x| {
            b(wide(x[0]).cos() as f32)
        }),
        ("tanh.approx.f32 %d, %a;", "f32", &["f32"], &|x| {
            b(wide(x[0]).tanh() as f32)
        }),
    ]);
}

#[test]
fn directed_f64() {
    // f64 values with few bits, whose exact results pairs of f64 can hold.
    for mode in ["rz", "rm", "rp"] {
        let shift = |r: f64, e: f64| match mode {
            "rm" if e < 0.0 => r.next_down(),
            "rp" if e > 0.0 => r.next_up(),
            "rz" if r > 0.0 && e < 0.0 => r.next_down(),
            "rz" if r < 0.0 && e > 0.0 => r.next_up(),
            _ => r,
        };
        let add = format!("add.{mode}.f64 %d, %a, %b;");
        let mul = format!(
            "{{.reg .f64 x, y;\ncvt.f64.f32 x, %a;\ncvt.f64.f32 y, %b;\nadd.f64 x, x, 0d3EB0000000000000;\nmul.{mode}.f64 %d, x, y;}}"
        );
        let fma = format!(
            "{{.reg .f64 x, y, z;\ncvt.f64.f32 x, %a;\ncvt.f64.f32 y, %b;\ncvt.f64.f32 z, %c;\nfma.{mode}.f64 %d, x, y, z;}}"
        );
        let wide = |x: u64| f64::from(f(x));
        check(&[
            (&add, "f64", &["f64", "f64"], &|x| {
                let (s, e) = exact_sum(d(x[0]), d(x[1]));
                if s.is_finite() {
                    zeroed(shift(s, e), d(x[0]), d(x[1]), mode).to_bits()
                } else {
                    overflow(s, d(x[0]), d(x[1]), mode).to_bits()
                }
            }),
            (&mul, "f64", &["f32", "f32"], &|x| {
                let (p, q) = (wide(x[0]) + f64::from_bits(0x3eb0_0000_0000_0000), wide(x[1]));
                let r = p * q;
                if r.is_finite() {
                    shift(r, p.mul_add(q, -r)).to_bits()
                } else {
                    r.to_bits()
                }
            }),
            // The product of two f32 is exact.
            (&fma, "f64", &["f32", "f32", "f32"], &|x| {
                let (s, e) = exact_sum(wide(x[0]) * wide(x[1]), wide(x[2]));
                let (p, c) = (wide(x[0]) * wide(x[1]), wide(x[2]));
                if s.is_finite() {
                    zeroed(shift(s, e), p, c, mode).to_bits()
                } else {
                    s.to_bits()
                }
            }),
        ]);
    }
}

/// The sign of a sum that is zero.
fn zeroed(s: f64, a: f64, b: f64, mode: &str) -> f64 {
    let plus = a.is_sign_positive() && b.is_sign_positive();
    if s == 0.0 && mode == "rm" && !plus { -0.0 } else { s }
}

/// The result of a finite sum that overflows, in a direction.
fn overflow(s: f64, a: f64, b: f64, mode: &str) -> f64 {
    let inward = mode == "rz" || mode == "rm" && s > 0.0 || mode == "rp" && s < 0.0;
    if a.is_finite() && b.is_finite() && inward {
        f64::MAX.copysign(s)
    } else {
        s
    }
}

#[test]
fn classes() {
    check(&[
        ("testp.finite.f32 %d, %a;", "pred", &["f32"], &|x| {
            f(x[0]).is_finite().into()
        }),
        ("testp.infinite.f32 %d, %a;", "pred", &["f32"], &|x| {
            f(x[0]).is_infinite().into()
        }),
        ("testp.number.f32 %d, %a;", "pred", &["f32"], &|x| {
            (!f(x[0]).is_nan()).into()
        }),
        ("testp.notanumber.f64 %d, %a;", "pred", &["f64"], &|x| {
            d(x[0]).is_nan().into()
        }),
        ("testp.normal.f32 %d, %a;", "pred", &["f32"], &|x| {
            f(x[0]).is_normal().into()
        }),
        ("testp.subnormal.f64 %d, %a;", "pred", &["f64"], &|x| {
            d(x[0]).is_subnormal().into()
        }),
    ]);
}

#[test]
fn comparisons() {
    let names = ["eq", "ne", "lt", "le", "gt", "ge"];
    let order: [fn(f64, f64) -> bool; 6] = [
        |a, b| a == b,
        |a, b| a != b,
        |a, b| a < b,
        |a, b| a <= b,
        |a, b| a > b,
        |a, b| a >= b,
    ];
    for (name, holds) in names.iter().zip(order) {
        let either = |a: f64, b: f64| a.is_nan() || b.is_nan();
        let (a32, a64) = (
            format!("setp.{name}.f32 %d, %a, %b;"),
            format!("setp.{name}u.f64 %d, %a, %b;"),
        );
        let set = format!("set.{name}.f32.f32 %d, %a, %b;");
        let all = format!("set.{name}u.u32.f32 %d, %a, %b;");
        let ordered = |x: &[u64]| {
            let (a, b) = (f64::from(f(x[0])), f64::from(f(x[1])));
            !either(a, b) && holds(a, b)
        };
        let unordered = |a: f64, b: f64| either(a, b) || holds(a, b);
        check(&[
            (&a32, "pred", &["f32", "f32"], &|x| ordered(x).into()),
            (&a64, "pred", &["f64", "f64"], &|x| unordered(d(x[0]), d(x[1])).into()),
            (&set, "f32", &["f32", "f32"], &|x| b(f32::from(u8::from(ordered(x))))),
            (&all, "u32", &["f32", "f32"], &|x| {
                if unordered(f(x[0]).into(), f(x[1]).into()) {
                    u64::MAX
                } else {
                    0
                }
            }),
        ]);
        for ty in ["s16", "u16", "s32", "u32", "s64", "u64"] {
            let text = format!("setp.{name}.{ty} %d, %a, %b;");
            let bits: u32 = ty[1..].parse().expect("bits");
            let value = |x: u64| {
                if ty.starts_with('s') {
                    i128::from((x as i64) << (64 - bits) >> (64 - bits))
                } else {
                    i128::from(x)
                }
            };
            let formula = |x: &[u64]| {
                let o = value(x[0]).cmp(&value(x[1]));
                u64::from(match *name {
                    "eq" => o.is_eq(),
                    "ne" => o.is_ne(),
                    "lt" => o.is_lt(),
                    "le" => o.is_le(),
                    "gt" => o.is_gt(),
                    _ => o.is_ge(),
                })
            };
            check(&[(&text, "pred", &[ty, ty], &formula)]);
        }
    }
    check(&[
        ("setp.num.f32 %d, %a, %b;", "pred", &["f32", "f32"], &|x| {
            (!f(x[0]).is_nan() && !f(x[1]).is_nan()).into()
        }),
        ("setp.nan.f32 %d, %a, %b;", "pred", &["f32", "f32"], &|x| {
            (f(x[0]).is_nan() || f(x[1]).is_nan()).into()
        }),
        (
            "setp.lt.and.u32 %d, %a, %b, %c;",
            "pred",
            &["u32", "u32", "pred"],
            &|x| u64::from(x[0] < x[1]) & x[2],
        ),
        (
            "setp.lt.or.u32 %d, %a, %b, !%c;",
            "pred",
            &["u32", "u32", "pred"],
            &|x| u64::from(x[0] < x[1]) | x[2] ^ 1,
        ),
        (
            "setp.lt.xor.u32 %d, %a, %b, %c;",
            "pred",
            &["u32", "u32", "pred"],
            &|x| u64::from(x[0] < x[1]) ^ x[2],
        ),
        ("setp.lt.u32 %p7|%d, %a, %b;", "pred", &["u32", "u32"], &|x| {
            u64::from(x[0] >= x[1])
        }),
        (
            "setp.lt.and.u32 %p7|%d, %a, %b, %c;",
            "pred",
            &["u32", "u32", "pred"],
            &|x| u64::from(x[0] >= x[1]) & x[2],
        ),
    ]);
}
