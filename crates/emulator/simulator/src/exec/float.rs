//! f32 and f64 arithmetic.
//!
//! The plain forms (round to nearest, denormals kept) are closures of their own, which become vector code; every other
//! form goes through `rounding` for f32 and through `exact` for f64. Approximations (`ex2.approx` and others) give the
//! rounded value of the real function: a GPU's differ by an ulp or two.

use kiln_ptx::Opcode;

use super::lanes::{Plan, binary, binary_flags, ternary, ternary_flags, unary, unary_flags};
use super::rounding::{FTZ, MODE, NAN, RN, finish32, flush, modifiers, narrow32, odd_div, odd_sqrt, odd_sum};
use super::{approx, exact};

const KNOWN: &[&str] = &[
    "rn", "rz", "rm", "rp", "ftz", "sat", "full", "approx", "NaN", "xorsign", "abs", "f32", "f64",
];

/// The plan of an instruction on f32 or f64, if it is one.
pub(crate) fn select(op: &Opcode<'_>) -> Option<Plan> {
    if !op.only(KNOWN) || op.has("xorsign") || (op.has("abs") && op.name != "abs") {
        return None;
    }
    match op.ty() {
        "f32" => f32s(op),
        "f64" => f64s(op),
        _ => None,
    }
}

fn f32s(op: &Opcode<'_>) -> Option<Plan> {
    let flags = modifiers(op);
    let plain = flags == 0;
    let plan = match op.name {
        "add" if plain => binary(|a: f32, b: f32| a + b),
        "add" => {
            binary_flags(|m, a: f32, b: f32| narrow32(odd_sum(f64::from(flush(a, m)), f64::from(flush(b, m)), m), m))
        }
        "sub" if plain => binary(|a: f32, b: f32| a - b),
        "sub" => {
            binary_flags(|m, a: f32, b: f32| narrow32(odd_sum(f64::from(flush(a, m)), -f64::from(flush(b, m)), m), m))
        }
        "mul" if plain => binary(|a: f32, b: f32| a * b),
        "mul" => binary_flags(|m, a: f32, b: f32| narrow32(f64::from(flush(a, m)) * f64::from(flush(b, m)), m)),
        "fma" | "mad" if plain => ternary(|a: f32, b: f32, c: f32| a.mul_add(b, c)),
        "fma" | "mad" => ternary_flags(|m, a: f32, b: f32, c: f32| {
            let product = f64::from(flush(a, m)) * f64::from(flush(b, m));
            narrow32(odd_sum(product, f64::from(flush(c, m)), m), m)
        }),
        "div" if plain => binary(|a: f32, b: f32| a / b),
        "div" => binary_flags(|m, a: f32, b: f32| narrow32(odd_div(f64::from(flush(a, m)), f64::from(flush(b, m))), m)),
        "rcp" if plain => unary(|a: f32| 1.0 / a),
        "rcp" => unary_flags(|m, a: f32| narrow32(odd_div(1.0, f64::from(flush(a, m))), m)),
        "sqrt" if plain => unary(|a: f32| a.sqrt()),
        "sqrt" => unary_flags(|m, a: f32| narrow32(odd_sqrt(f64::from(flush(a, m))), m)),
        "rsqrt" if plain => unary(|a: f32| (1.0 / f64::from(a).sqrt()) as f32),
        "rsqrt" => unary_flags(|m, a: f32| finish32((1.0 / f64::from(flush(a, m)).sqrt()) as f32, m)),
        "ex2" if plain => unary(approx::exp2),
        "ex2" => unary_flags(|m, a: f32| finish32(approx::exp2(flush(a, m)), m)),
        "lg2" if plain => unary(approx::log2),
        "lg2" => unary_flags(|m, a: f32| finish32(approx::log2(flush(a, m)), m)),
        "sin" => unary_flags(|m, a: f32| finish32(f64::from(flush(a, m)).sin() as f32, m)),
        "cos" => unary_flags(|m, a: f32| finish32(f64::from(flush(a, m)).cos() as f32, m)),
        "tanh" => unary_flags(|m, a: f32| finish32(f64::from(a).tanh() as f32, m)),
        "neg" => unary_flags_or_plain(plain, |a| -a, |m, a| -flush(a, m)),
        "abs" => unary_flags_or_plain(plain, f32::abs, |m, a| flush(a, m).abs()),
        "min" | "max" => return f32_extreme(op, flags),
        _ => return None,
    };
    Some(plan.flags(flags))
}

fn unary_flags_or_plain(
    plain: bool,
    simple: impl Fn(f32) -> f32 + 'static,
    full: impl Fn(u32, f32) -> f32 + 'static,
) -> Plan {
    if plain { unary(simple) } else { unary_flags(full) }
}

/// The smaller; of a number and a NaN the number, and -0 is below +0.
#[inline(always)]
pub(crate) fn least(a: f32, b: f32) -> f32 {
    let below = if a == b { a.is_sign_negative() } else { a < b };
    if below || b.is_nan() { a } else { b }
}

/// The larger; of a number and a NaN the number, and -0 is below +0.
#[inline(always)]
pub(crate) fn greatest(a: f32, b: f32) -> f32 {
    let above = if a == b { a.is_sign_positive() } else { a > b };
    if above || b.is_nan() { a } else { b }
}

/// The NaN that f32 instructions give.
const QUIET: f32 = f32::from_bits(0x7fff_ffff);

fn f32_extreme(op: &Opcode<'_>, flags: u32) -> Option<Plan> {
    let three = op.modifiers.len() > 4;
    if three {
        return None;
    }
    let plan = match (op.name, flags) {
        ("min", 0) => binary(least),
        ("max", 0) => binary(greatest),
        ("min", _) => binary_flags(|m, a: f32, b: f32| {
            if m & NAN != 0 && (a.is_nan() || b.is_nan()) {
                QUIET
            } else {
                least(flush(a, m), flush(b, m))
            }
        }),
        _ => binary_flags(|m, a: f32, b: f32| {
            if m & NAN != 0 && (a.is_nan() || b.is_nan()) {
                QUIET
            } else {
                greatest(flush(a, m), flush(b, m))
            }
        }),
    };
    Some(plan.flags(flags))
}

fn f64s(op: &Opcode<'_>) -> Option<Plan> {
    let flags = modifiers(op);
    let mode = flags & MODE;
    let plan = match op.name {
        "add" if mode == RN => binary(|a: f64, b: f64| a + b),
        "add" => binary_flags(|m, a: f64, b: f64| exact::add(a, b, m)),
        "sub" if mode == RN => binary(|a: f64, b: f64| a - b),
        "sub" => binary_flags(|m, a: f64, b: f64| exact::add(a, -b, m)),
        "mul" if mode == RN => binary(|a: f64, b: f64| a * b),
        "mul" => binary_flags(|m, a: f64, b: f64| exact::mul(a, b, m)),
        "fma" | "mad" if mode == RN => ternary(|a: f64, b: f64, c: f64| a.mul_add(b, c)),
        "fma" | "mad" => ternary_flags(|m, a: f64, b: f64, c: f64| exact::fma(a, b, c, m)),
        "div" if mode == RN => binary(|a: f64, b: f64| a / b),
        "div" => binary_flags(|m, a: f64, b: f64| exact::div(a, b, m)),
        // The approximation flushes denormals and keeps the upper half alone.
        "rcp" if op.has("approx") => unary(|a: f64| upper(1.0 / flush64(a))),
        "rcp" if mode == RN => unary(|a: f64| 1.0 / a),
        "rcp" => unary_flags(|m, a: f64| exact::div(1.0, a, m)),
        "sqrt" if mode == RN => unary(|a: f64| a.sqrt()),
        "sqrt" => unary_flags(|m, a: f64| exact::sqrt(a, m)),
        "rsqrt" => unary(|a: f64| upper(1.0 / flush64(a).sqrt())),
        "neg" => unary(|a: f64| -a),
        "abs" => unary(f64::abs),
        "min" => binary(|a: f64, b: f64| {
            let below = if a == b { a.is_sign_negative() } else { a < b };
            if below || b.is_nan() { a } else { b }
        }),
        "max" => binary(|a: f64, b: f64| {
            let above = if a == b { a.is_sign_positive() } else { a > b };
            if above || b.is_nan() { a } else { b }
        }),
        _ => return None,
    };
    Some(plan.flags(flags & !FTZ))
}

fn flush64(a: f64) -> f64 {
    if a.abs() < f64::MIN_POSITIVE {
        0f64.copysign(a)
    } else {
        a
    }
}

fn upper(a: f64) -> f64 {
    f64::from_bits(a.to_bits() & 0xffff_ffff_0000_0000)
}
