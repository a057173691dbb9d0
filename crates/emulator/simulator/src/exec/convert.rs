//! `cvt`, between every two types.

use kiln_ptx::Opcode;

use super::exact;
use super::lanes::{Bf16, F16, Lane, Plan, Ty, binary_flags, unary, unary_flags};
use super::rounding::{
    FTZ, Half, MODE, RELU, RN, RZ, SAT, finish32, finish64, flush, modifiers, narrow32, odd_integer, to_integer,
};

/// Takes the low part of a wider register.
pub(crate) fn truncate(from: Ty, to: Ty) -> Option<Plan> {
    Some(match (from, to) {
        (Ty::B64, Ty::B32) => unary(|a: u64| a as u32),
        (Ty::B64, Ty::B16) => unary(|a: u64| a as u16),
        (Ty::B64, Ty::B8) => unary(|a: u64| a as u8),
        (Ty::B32, Ty::B16) => unary(|a: u32| a as u16),
        (Ty::B32, Ty::B8) => unary(|a: u32| a as u8),
        (Ty::B16, Ty::B8) => unary(|a: u16| a as u8),
        _ => return None,
    })
}

/// Fills a wider register, with zeros or with the sign.
pub(crate) fn extend(from: Ty, to: Ty, signed: bool) -> Option<Plan> {
    Some(match (from, to, signed) {
        (Ty::B8, Ty::B16, false) => unary(|a: u8| u16::from(a)),
        (Ty::B8, Ty::B32, false) => unary(|a: u8| u32::from(a)),
        (Ty::B8, Ty::B64, false) => unary(|a: u8| u64::from(a)),
        (Ty::B16, Ty::B32, false) => unary(|a: u16| u32::from(a)),
        (Ty::B16, Ty::B64, false) => unary(|a: u16| u64::from(a)),
        (Ty::B32, Ty::B64, false) => unary(|a: u32| u64::from(a)),
        (Ty::B8, Ty::B16, true) => unary(|a: i8| i16::from(a)),
        (Ty::B8, Ty::B32, true) => unary(|a: i8| i32::from(a)),
        (Ty::B8, Ty::B64, true) => unary(|a: i8| i64::from(a)),
        (Ty::B16, Ty::B32, true) => unary(|a: i16| i32::from(a)),
        (Ty::B16, Ty::B64, true) => unary(|a: i16| i64::from(a)),
        (Ty::B32, Ty::B64, true) => unary(|a: i32| i64::from(a)),
        _ => return None,
    })
}

/// Calls a macro-like body with the Rust type of an integer type.
macro_rules! with_integer {
    ($ty:expr, |$t:ident| $body:expr) => {
        match $ty {
            "u8" | "b8" => {
                type $t = u8;
                $body
            }
            "s8" => {
                type $t = i8;
                $body
            }
            "u16" | "b16" => {
                type $t = u16;
                $body
            }
            "s16" => {
                type $t = i16;
                $body
            }
            "u32" | "b32" => {
                type $t = u32;
                $body
            }
            "s32" => {
                type $t = i32;
                $body
            }
            "u64" | "b64" => {
                type $t = u64;
                $body
            }
            "s64" => {
                type $t = i64;
                $body
            }
            _ => None,
        }
    };
}

/// The plan of a conversion, if it is one. Registers may be wider than the types: decoding sees to that.
pub(crate) fn select(op: &Opcode<'_>) -> Option<Plan> {
    if op.name != "cvt" {
        return None;
    }
    let (to, from) = (op.first_ty(), op.ty());
    let known = [
        "rn",
        "rz",
        "rm",
        "rp",
        "rna",
        "rni",
        "rzi",
        "rmi",
        "rpi",
        "ftz",
        "sat",
        "relu",
        "satfinite",
    ];
    let count = op.modifiers.len().checked_sub(2)?;
    if !op.modifiers[..count].iter().all(|m| known.contains(m)) || op.has("satfinite") {
        return None;
    }
    let flags = modifiers(op);
    let integral = op.modifiers.iter().any(|m| matches!(*m, "rni" | "rzi" | "rmi" | "rpi"));
    let plan = match (float(to), float(from)) {
        (false, false) => integers(to, from, flags),
        (false, true) => from_float(to, from, flags),
        (true, false) => to_float(to, from, flags),
        (true, true) if op.has("rna") => (to == "tf32").then(|| unary(tf32_away)),
        (true, true) => floats(to, from, flags, integral),
    };
    plan.map(|plan| plan.flags(flags))
}

fn float(ty: &str) -> bool {
    matches!(ty, "f16" | "bf16" | "f32" | "f64" | "f16x2" | "bf16x2" | "tf32")
}

/// An integer type's value, and its range.
trait Whole: Lane {
    fn value(self) -> i128;
    fn clamp(x: i128) -> Self;
    /// The float, clamped; NaN is 0.
    fn of(x: f64) -> Self;
}

macro_rules! whole {
    ($($t:ty),*) => { $(impl Whole for $t {
        #[inline(always)]
        fn value(self) -> i128 {
            self as i128
        }
        #[inline(always)]
        fn clamp(x: i128) -> Self {
            x.clamp(<$t>::MIN as i128, <$t>::MAX as i128) as $t
        }
        #[inline(always)]
        fn of(x: f64) -> Self {
            x as $t
        }
    })* };
}
whole!(u8, i8, u16, i16, u32, i32, u64, i64);

#[expect(clippy::unnecessary_cast, reason = "the source's type comes from a macro")]
fn integers(to: &str, from: &str, flags: u32) -> Option<Plan> {
    if flags & SAT != 0 {
        return with_integer!(from, |S| with_integer!(to, |D| Some(unary(
            |a: S| <D as Whole>::clamp(a.value())
        ))));
    }
    with_integer!(from, |S| match to {
        "u8" | "s8" | "b8" => Some(unary(|a: S| a as u8)),
        "u16" | "s16" | "b16" => Some(unary(|a: S| a as u16)),
        "u32" | "s32" | "b32" => Some(unary(|a: S| a as u32)),
        "u64" | "s64" | "b64" => Some(unary(|a: S| a as u64)),
        _ => None,
    })
}

fn from_float(to: &str, from: &str, flags: u32) -> Option<Plan> {
    match (to, from, flags & (MODE | FTZ)) {
        ("s32", "f32", RZ) => return Some(unary(|a: f32| a as i32)),
        ("u32", "f32", RZ) => return Some(unary(|a: f32| a as u32)),
        ("s32", "f32", RN) => return Some(unary(|a: f32| a.round_ties_even() as i32)),
        _ => {}
    }
    with_integer!(to, |D| match from {
        "f32" => Some(unary_flags(|m, a: f32| <D as Whole>::of(to_integer(
            f64::from(flush(a, m)),
            m
        )))),
        "f64" => Some(unary_flags(|m, a: f64| <D as Whole>::of(to_integer(a, m)))),
        "f16" => Some(unary_flags(|m, a: F16| <D as Whole>::of(to_integer(
            f64::from(a.wide()),
            m
        )))),
        "bf16" => Some(unary_flags(|m, a: Bf16| <D as Whole>::of(to_integer(
            f64::from(a.wide()),
            m
        )))),
        _ => None,
    })
}

fn to_float(to: &str, from: &str, flags: u32) -> Option<Plan> {
    if flags == RN {
        match (to, from) {
            ("f32", "s32") => return Some(unary(|a: i32| a as f32)),
            ("f32", "u32") => return Some(unary(|a: u32| a as f32)),
            ("f64", "s32") => return Some(unary(|a: i32| f64::from(a))),
            ("f64", "u32") => return Some(unary(|a: u32| f64::from(a))),
            ("f64", "s64") => return Some(unary(|a: i64| a as f64)),
            ("f64", "u64") => return Some(unary(|a: u64| a as f64)),
            _ => {}
        }
    }
    with_integer!(from, |S| match to {
        "f32" => Some(unary_flags(|m, a: S| narrow32(odd_integer(a.value()), m))),
        "f64" => Some(unary_flags(|m, a: S| finish64(exact::integer(a.value(), m), m))),
        "f16" => Some(unary_flags(|m, a: S| <F16 as Half>::round(odd_integer(a.value()), m))),
        "bf16" => Some(unary_flags(|m, a: S| <Bf16 as Half>::round(odd_integer(a.value()), m))),
        _ => None,
    })
}

/// Rounds to the 10 bits of TF32's mantissa, ties away from zero.
fn tf32_away(a: f32) -> f32 {
    if a.is_nan() || a.is_infinite() {
        return a;
    }
    f32::from_bits(a.to_bits().wrapping_add(0x1000) & 0xffff_e000)
}

fn whole32(x: f32, m: u32) -> f32 {
    finish32(to_integer(f64::from(flush(x, m)), m) as f32, m)
}

fn floats(to: &str, from: &str, flags: u32, integral: bool) -> Option<Plan> {
    if integral {
        return Some(match (to, from, flags) {
            ("f32", "f32", 0) => unary(|a: f32| a.round_ties_even()),
            ("f32", "f32", super::rounding::RZ) => unary(|a: f32| a.trunc()),
            ("f32", "f32", super::rounding::RM) => unary(|a: f32| a.floor()),
            ("f32", "f32", super::rounding::RP) => unary(|a: f32| a.ceil()),
            ("f32", "f32", _) => unary_flags(|m, a: f32| whole32(a, m)),
            ("f64", "f64", _) => unary_flags(|m, a: f64| finish64(to_integer(a, m), m)),
            ("f16", "f16", _) => unary_flags(|m, a: F16| F16::narrow(whole32(a.wide(), m & !FTZ))),
            ("bf16", "bf16", _) => unary_flags(|m, a: Bf16| Bf16::narrow(whole32(a.wide(), m & !FTZ))),
            _ => return None,
        });
    }
    Some(match (to, from) {
        ("f32", "f32") if flags == 0 => unary(|a: f32| a),
        ("f32", "f32") => unary_flags(|m, a: f32| finish32(flush(a, m), m)),
        ("f64", "f64") => unary_flags(|m, a: f64| finish64(a, m)),
        ("f64", "f32") if flags == 0 => unary(|a: f32| f64::from(a)),
        ("f64", "f32") => unary_flags(|m, a: f32| finish64(f64::from(flush(a, m)), m)),
        ("f32", "f64") if flags == 0 => unary(|a: f64| a as f32),
        ("f32", "f64") => unary_flags(|m, a: f64| narrow32(a, m)),
        ("f32", "f16") if flags & SAT == 0 => unary(|a: F16| a.wide()),
        ("f32", "f16") => unary_flags(|m, a: F16| finish32(a.wide(), m)),
        ("f32", "bf16") if flags & (SAT | FTZ) == 0 => unary(|a: Bf16| a.wide()),
        ("f32", "bf16") => unary_flags(|m, a: Bf16| finish32(a.wide(), m)),
        ("f64", "f16") => unary_flags(|m, a: F16| finish64(f64::from(a.wide()), m)),
        ("f64", "bf16") => unary_flags(|m, a: Bf16| finish64(f64::from(a.wide()), m)),
        ("f16", "f32") if flags == 0 => unary(F16::narrow),
        ("bf16", "f32") if flags == 0 => unary(Bf16::narrow),
        ("f16", "f32") => unary_flags(|m, a: f32| F16::round(f64::from(flush(a, m)), m & !FTZ)),
        ("bf16", "f32") => unary_flags(|m, a: f32| Bf16::round(f64::from(flush(a, m)), m & !FTZ)),
        ("f16", "f64") => unary_flags(|m, a: f64| F16::round(a, m & !FTZ)),
        ("bf16", "f64") => unary_flags(|m, a: f64| Bf16::round(a, m & !FTZ)),
        ("f16", "bf16") => unary_flags(|m, a: Bf16| F16::round(f64::from(a.wide()), m & !FTZ)),
        ("bf16", "f16") => unary_flags(|m, a: F16| Bf16::round(f64::from(a.wide()), m & !FTZ)),
        ("f16", "f16") => unary_flags(|m, a: F16| F16::round(f64::from(a.wide()), m & (SAT | RELU))),
        ("bf16", "bf16") => unary_flags(|m, a: Bf16| Bf16::round(f64::from(a.wide()), m & (SAT | RELU))),
        // The first source becomes the upper half.
        ("f16x2", "f32") => binary_flags(|m, a: f32, b: f32| packed::<F16>(m, a, b)),
        ("bf16x2", "f32") => binary_flags(|m, a: f32, b: f32| packed::<Bf16>(m, a, b)),
        _ => return None,
    })
}

fn packed<H: Half>(flags: u32, high: f32, low: f32) -> u32 {
    let one = |x: f32| {
        let h: H = if flags == 0 {
            H::narrow(x)
        } else {
            H::round(f64::from(flush(x, flags)), flags & !FTZ)
        };
        u32::from(h.bits())
    };
    one(low) | one(high) << 16
}
