//! f16 and bf16 arithmetic, one value or two packed in a register. Results are those of exact arithmetic, rounded once.

use kiln_ptx::Opcode;

use super::compare::relation;
use super::lanes::{Bf16, F16, Plan, binary_flags, compare, ternary_flags, unary_flags};
use super::rounding::{FTZ, Half, MODE, NAN, RELU, RN, SAT, flush, modifiers, odd_sum};
use crate::machine::{Inst, Warp, lanes};

/// The plan of an instruction on halves, if it is one.
pub(crate) fn select(op: &Opcode<'_>) -> Option<Plan> {
    if op.name == "setp" && op.ty().ends_with("16x2") {
        return packed_setp(op);
    }
    if op.name == "set" {
        return set(op);
    }
    let flags = modifiers(op);
    let known = [
        "rn", "ftz", "sat", "relu", "NaN", "approx", "f16", "bf16", "f16x2", "bf16x2",
    ];
    if flags & MODE != RN || !op.only(&known) {
        return None;
    }
    let plan = match op.ty() {
        "f16" => single::<F16>(op.name)?,
        "bf16" => single::<Bf16>(op.name)?,
        "f16x2" => packed::<F16>(op.name)?,
        "bf16x2" => packed::<Bf16>(op.name)?,
        _ => return None,
    };
    Some(plan.flags(flags))
}

fn input<H: Half>(flags: u32, a: H) -> f64 {
    let x = a.wide();
    // The smallest normal f16 is 2^-14.
    if flags & FTZ != 0 && x.abs() < 6.103_515_6e-5 {
        f64::from(0f32.copysign(x))
    } else {
        f64::from(x)
    }
}

fn add<H: Half>(m: u32, a: H, b: H) -> H {
    result(m, odd_sum(input(m, a), input(m, b), m))
}

fn sub<H: Half>(m: u32, a: H, b: H) -> H {
    result(m, odd_sum(input(m, a), -input(m, b), m))
}

fn mul<H: Half>(m: u32, a: H, b: H) -> H {
    result(m, input(m, a) * input(m, b))
}

fn fma<H: Half>(m: u32, a: H, b: H, c: H) -> H {
    result(m, odd_sum(input(m, a) * input(m, b), input(m, c), m))
}

fn result<H: Half>(m: u32, x: f64) -> H {
    H::round(x, m & (FTZ | SAT | RELU))
}

/// `min` and `max`: the bits of one operand.
fn extreme<H: Half>(m: u32, a: H, b: H, pick: fn(f32, f32) -> f32) -> H {
    let (x, y) = (a.wide(), b.wide());
    if (m & NAN != 0 && (x.is_nan() || y.is_nan())) || (x.is_nan() && y.is_nan()) {
        return H::of_bits(H::NAN);
    }
    H::narrow(pick(flush(x, m), flush(y, m)))
}

fn least<H: Half>(m: u32, a: H, b: H) -> H {
    extreme(m, a, b, super::float::least)
}

fn greatest<H: Half>(m: u32, a: H, b: H) -> H {
    extreme(m, a, b, super::float::greatest)
}

fn neg<H: Half>(_: u32, a: H) -> H {
    H::of_bits(a.bits() ^ 0x8000)
}

fn abs<H: Half>(_: u32, a: H) -> H {
    H::of_bits(a.bits() & 0x7fff)
}

fn ex2<H: Half>(m: u32, a: H) -> H {
    H::round(f64::from(flush(a.wide(), m)).exp2(), m & FTZ)
}

fn tanh<H: Half>(m: u32, a: H) -> H {
    H::round(f64::from(a.wide()).tanh(), m & FTZ)
}

fn single<H: Half>(name: &str) -> Option<Plan> {
    Some(match name {
        "add" => binary_flags(|m, a: H, b: H| add(m, a, b)),
        "sub" => binary_flags(|m, a: H, b: H| sub(m, a, b)),
        "mul" => binary_flags(|m, a: H, b: H| mul(m, a, b)),
        "fma" => ternary_flags(|m, a: H, b: H, c: H| fma(m, a, b, c)),
        "min" => binary_flags(|m, a: H, b: H| least(m, a, b)),
        "max" => binary_flags(|m, a: H, b: H| greatest(m, a, b)),
        "neg" => unary_flags(|m, a: H| neg(m, a)),
        "abs" => unary_flags(|m, a: H| abs(m, a)),
        "ex2" => unary_flags(|m, a: H| ex2(m, a)),
        "tanh" => unary_flags(|m, a: H| tanh(m, a)),
        _ => return None,
    })
}

/// The two halves of a register.
fn split<H: Half>(x: u32) -> [H; 2] {
    [H::of_bits(x as u16), H::of_bits((x >> 16) as u16)]
}

fn join<H: Half>(low: H, high: H) -> u32 {
    u32::from(low.bits()) | u32::from(high.bits()) << 16
}

fn each1<H: Half>(m: u32, a: u32, f: impl Fn(u32, H) -> H) -> u32 {
    let [a0, a1] = split(a);
    join(f(m, a0), f(m, a1))
}

fn each2<H: Half>(m: u32, a: u32, b: u32, f: impl Fn(u32, H, H) -> H) -> u32 {
    let ([a0, a1], [b0, b1]) = (split(a), split(b));
    join(f(m, a0, b0), f(m, a1, b1))
}

fn packed<H: Half>(name: &str) -> Option<Plan> {
    Some(match name {
        "add" => binary_flags(|m, a: u32, b: u32| each2(m, a, b, add::<H>)),
        "sub" => binary_flags(|m, a: u32, b: u32| each2(m, a, b, sub::<H>)),
        "mul" => binary_flags(|m, a: u32, b: u32| each2(m, a, b, mul::<H>)),
        "fma" => ternary_flags(|m, a: u32, b: u32, c: u32| {
            let [c0, c1] = split::<H>(c);
            let ([a0, a1], [b0, b1]) = (split(a), split(b));
            join(fma(m, a0, b0, c0), fma(m, a1, b1, c1))
        }),
        "min" => binary_flags(|m, a: u32, b: u32| each2(m, a, b, least::<H>)),
        "max" => binary_flags(|m, a: u32, b: u32| each2(m, a, b, greatest::<H>)),
        "neg" => unary_flags(|m, a: u32| each1(m, a, neg::<H>)),
        "abs" => unary_flags(|m, a: u32| each1(m, a, abs::<H>)),
        "ex2" => unary_flags(|m, a: u32| each1(m, a, ex2::<H>)),
        "tanh" => unary_flags(|m, a: u32| each1(m, a, tanh::<H>)),
        _ => return None,
    })
}

/// The relations by number, for flags.
const RELATIONS: [&str; 14] = [
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

fn related(flags: u32, a: f32, b: f32) -> bool {
    let name = RELATIONS[(flags >> 8 & 15) as usize % RELATIONS.len()];
    relation(name).is_some_and(|f| f(flush(a, flags & FTZ), flush(b, flags & FTZ)))
}

fn relation_flags(op: &Opcode<'_>) -> Option<u32> {
    let name = op.modifiers.first()?;
    let at = RELATIONS.iter().position(|r| r == name)? as u32;
    Some(at << 8 | modifiers(op) & FTZ)
}

/// `set.CMP.D.S`: all ones or 1.0 where it holds, in each half for packed types.
fn set(op: &Opcode<'_>) -> Option<Plan> {
    if super::compare::combine(op) != 0 {
        return None;
    }
    let flags = relation_flags(op);
    let (d, s) = (op.first_ty(), op.ty());
    let plan = match (d, s) {
        ("f16x2", "f16x2") => binary_flags(|m, a: u32, b: u32| set_pair::<F16>(m, a, b, 0x3c00)),
        ("bf16x2", "bf16x2") => binary_flags(|m, a: u32, b: u32| set_pair::<Bf16>(m, a, b, 0x3f80)),
        ("u32" | "s32", "f16x2") => binary_flags(|m, a: u32, b: u32| set_pair::<F16>(m, a, b, 0xffff)),
        ("u32" | "s32", "bf16x2") => binary_flags(|m, a: u32, b: u32| set_pair::<Bf16>(m, a, b, 0xffff)),
        ("f16", "f16") => binary_flags(|m, a: F16, b: F16| if related(m, a.wide(), b.wide()) { 0x3c00u16 } else { 0 }),
        ("bf16", "bf16") => {
            binary_flags(|m, a: Bf16, b: Bf16| if related(m, a.wide(), b.wide()) { 0x3f80u16 } else { 0 })
        }
        ("u16" | "s16", "f16") => {
            binary_flags(|m, a: F16, b: F16| if related(m, a.wide(), b.wide()) { 0xffffu16 } else { 0 })
        }
        ("u16" | "s16", "bf16") => {
            binary_flags(|m, a: Bf16, b: Bf16| if related(m, a.wide(), b.wide()) { 0xffffu16 } else { 0 })
        }
        ("f32", "f32") => binary_flags(|m, a: f32, b: f32| if related(m, a, b) { 1f32 } else { 0.0 }),
        ("u32" | "s32", "f32") => binary_flags(|m, a: f32, b: f32| if related(m, a, b) { u32::MAX } else { 0 }),
        _ => return None,
    };
    Some(plan.flags(flags?))
}

fn set_pair<H: Half>(m: u32, a: u32, b: u32, one: u32) -> u32 {
    let ([a0, a1], [b0, b1]) = (split::<H>(a), split::<H>(b));
    let low = if related(m, a0.wide(), b0.wide()) { one } else { 0 };
    let high = if related(m, a1.wide(), b1.wide()) { one << 16 } else { 0 };
    low | high
}

/// `setp.CMP.f16x2 p|q, a, b`: `p` compares the low halves and `q` the high ones.
fn packed_setp(op: &Opcode<'_>) -> Option<Plan> {
    if super::compare::combine(op) != 0 {
        return None;
    }
    let flags = relation_flags(op)?;
    let run = match op.ty() {
        "f16x2" => packed_setp_run::<F16>,
        "bf16x2" => packed_setp_run::<Bf16>,
        _ => return None,
    };
    // The shape of `compare`, with another handler.
    let mut plan = compare(|a: u32, b: u32| a == b);
    plan.run = run;
    Some(plan.flags(flags))
}

unsafe fn packed_setp_run<H: Half>(w: &mut Warp, i: &Inst) {
    // SAFETY: the sources are rows of u32 and the destinations predicates (`packed_setp`).
    unsafe {
        let (mut p, mut q) = (0u32, 0u32);
        for l in lanes(w.mask) {
            let (a, b) = (
                split::<H>(*w.row::<u32>(i.a).add(l)),
                split::<H>(*w.row::<u32>(i.b).add(l)),
            );
            p |= u32::from(related(i.flags, a[0].wide(), b[0].wide())) << l;
            q |= u32::from(related(i.flags, a[1].wide(), b[1].wide())) << l;
        }
        w.set_predicate(i.d, p);
        if i.d2.is_some() {
            w.set_predicate(i.d2, q);
        }
    }
}
