//! Logic, shifts and bit fields; `mov`, `selp`, `prmt` and `lop3`.

use kiln_ptx::Opcode;

use super::lanes::{Plan, Ty, binary, choose, ternary, test, unary};
use crate::machine::{Inst, Warp, lanes};

macro_rules! words {
    ($ty:expr, |$t:ident| $plan:expr) => {
        match $ty {
            "b16" | "u16" | "s16" | "f16" | "bf16" => {
                type $t = u16;
                Some($plan)
            }
            "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => {
                type $t = u32;
                Some($plan)
            }
            "b64" | "u64" | "s64" | "f64" => {
                type $t = u64;
                Some($plan)
            }
            _ => None,
        }
    };
}

/// The plan of an instruction on bits, if it is one.
pub(crate) fn select(op: &Opcode<'_>) -> Option<Plan> {
    let ty = op.ty();
    match op.name {
        "mov" if ty == "pred" => Some(predicate(|a, _| a, 1)),
        "not" if ty == "pred" => Some(predicate(|a, _| !a, 1)),
        "and" if ty == "pred" => Some(predicate(|a, b| a & b, 2)),
        "or" if ty == "pred" => Some(predicate(|a, b| a | b, 2)),
        "xor" if ty == "pred" => Some(predicate(|a, b| a ^ b, 2)),
        "mov" => words!(ty, |T| unary(|a: T| a)),
        "not" => words!(ty, |T| unary(|a: T| !a)),
        "cnot" => words!(ty, |T| unary(|a: T| T::from(a == 0))),
        "and" => words!(ty, |T| binary(|a: T, b: T| a & b)),
        "or" => words!(ty, |T| binary(|a: T, b: T| a | b)),
        "xor" => words!(ty, |T| binary(|a: T, b: T| a ^ b)),
        "selp" => words!(ty, |T| choose(|p, a: T, b: T| if p { a } else { b })),
        "slct" => match op.ty() {
            "s32" => words!(op.first_ty(), |T| ternary(|a: T, b: T, c: i32| if c >= 0 {
                a
            } else {
                b
            })),
            "f32" => words!(op.first_ty(), |T| ternary(|a: T, b: T, c: f32| if c >= 0.0 {
                a
            } else {
                b
            })),
            _ => None,
        },
        // Shifts past the width give zeros, or the sign.
        "shl" => words!(ty, |T| binary(|a: T, b: u32| if b < T::BITS { a << b } else { 0 })),
        "shr" => match ty {
            "s16" => Some(binary(|a: i16, b: u32| a >> b.min(15))),
            "s32" => Some(binary(|a: i32, b: u32| a >> b.min(31))),
            "s64" => Some(binary(|a: i64, b: u32| a >> b.min(63))),
            _ => words!(ty, |T| binary(|a: T, b: u32| if b < T::BITS { a >> b } else { 0 })),
        },
        "shf" => match (op.has("l"), op.has("wrap")) {
            (true, true) => Some(ternary(|a: u32, b: u32, c: u32| funnel_left(a, b, c & 31))),
            (true, false) => Some(ternary(|a: u32, b: u32, c: u32| funnel_left(a, b, c.min(32)))),
            (false, true) => Some(ternary(|a: u32, b: u32, c: u32| funnel_right(a, b, c & 31))),
            (false, false) => Some(ternary(|a: u32, b: u32, c: u32| funnel_right(a, b, c.min(32)))),
        },
        "brev" => words!(ty, |T| unary(|a: T| a.reverse_bits())),
        "popc" => words!(ty, |T| unary(|a: T| a.count_ones())),
        "clz" => words!(ty, |T| unary(|a: T| a.leading_zeros())),
        "bfind" => find(op),
        "fns" => Some(ternary(|a: u32, base: u32, nth: i32| nth_set(a, base, nth))),
        "bfe" => match ty {
            "u32" => Some(ternary(|a: u32, at: u32, len: u32| {
                extract(u64::from(a), at, len, 32) as u32
            })),
            "u64" => Some(ternary(|a: u64, at: u32, len: u32| extract(a, at, len, 64))),
            "s32" => Some(ternary(|a: i32, at: u32, len: u32| {
                extract_signed(i64::from(a), at, len, 32) as i32
            })),
            "s64" => Some(ternary(|a: i64, at: u32, len: u32| extract_signed(a, at, len, 64))),
            _ => None,
        },
        "bfi" => match ty {
            "b32" => Some(Plan::new(insert::<u32>, Some(Ty::B32), &[Ty::B32; 4])),
            "b64" => Some(Plan::new(
                insert::<u64>,
                Some(Ty::B64),
                &[Ty::B64, Ty::B64, Ty::B32, Ty::B32],
            )),
            _ => None,
        },
        "lop3" => Some(Plan::new(lop3, Some(Ty::B32), &[Ty::B32; 4])),
        "prmt" => prmt(op),
        "testp" => testp(op),
        "copysign" => match ty {
            "f32" => Some(binary(|a: f32, b: f32| b.copysign(a))),
            "f64" => Some(binary(|a: f64, b: f64| b.copysign(a))),
            _ => None,
        },
        _ => None,
    }
}

fn predicate<F: Fn(u32, u32) -> u32 + 'static>(_: F, sources: usize) -> Plan {
    /// # Safety
    /// As for every `Handler`.
    unsafe fn run<F: Fn(u32, u32) -> u32 + 'static>(w: &mut Warp, i: &Inst) {
        const { assert!(size_of::<F>() == 0) };
        // SAFETY: the operands are predicates; F has no bytes, and `predicate` was given a value of it.
        unsafe {
            let f = std::ptr::NonNull::<F>::dangling().as_ref();
            let a = w.predicate(i.a);
            let b = if i.b.is_some() { w.predicate(i.b) } else { 0 };
            w.set_predicate(i.d, f(a, b));
        }
    }
    Plan::new(run::<F>, Some(Ty::Pred), &[Ty::Pred; 2][..sources])
}

fn funnel_left(a: u32, b: u32, n: u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    ((both << n) >> 32) as u32
}

fn funnel_right(a: u32, b: u32, n: u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    (both >> n) as u32
}

fn find(op: &Opcode<'_>) -> Option<Plan> {
    fn place(bits: u64, width: u32, shift: bool) -> u32 {
        if bits == 0 {
            return u32::MAX;
        }
        let at = 63 - bits.leading_zeros();
        if shift { width - 1 - at } else { at }
    }
    let shift = op.has("shiftamt");
    Some(match (op.ty(), shift) {
        ("u32", false) => unary(|a: u32| place(u64::from(a), 32, false)),
        ("u32", true) => unary(|a: u32| place(u64::from(a), 32, true)),
        ("s32", false) => unary(|a: i32| place(u64::from((a ^ a >> 31) as u32), 32, false)),
        ("s32", true) => unary(|a: i32| place(u64::from((a ^ a >> 31) as u32), 32, true)),
        ("u64", false) => unary(|a: u64| place(a, 64, false)),
        ("u64", true) => unary(|a: u64| place(a, 64, true)),
        ("s64", false) => unary(|a: i64| place((a ^ a >> 63) as u64, 64, false)),
        ("s64", true) => unary(|a: i64| place((a ^ a >> 63) as u64, 64, true)),
        _ => return None,
    })
}

/// The position of the n-th set bit from `base`, upwards or downwards.
fn nth_set(a: u32, base: u32, nth: i32) -> u32 {
    let base = base & 31;
    let step = |at: u32| {
        if nth >= 0 {
            (at < 31).then(|| at + 1)
        } else {
            at.checked_sub(1)
        }
    };
    if nth == 0 {
        return if a >> base & 1 != 0 { base } else { u32::MAX };
    }
    let (mut left, mut at) = (nth.unsigned_abs(), Some(base));
    while let Some(here) = at {
        left -= u32::from(a >> here & 1 != 0);
        if left == 0 {
            return here;
        }
        at = step(here);
    }
    u32::MAX
}

fn extract(a: u64, at: u32, len: u32, width: u32) -> u64 {
    let (at, len) = (at & 0xff, len & 0xff);
    if at >= width || len == 0 {
        return 0;
    }
    let kept = a >> at;
    if len >= 64 { kept } else { kept & ((1 << len) - 1) }
}

fn extract_signed(a: i64, at: u32, len: u32, width: u32) -> i64 {
    let (at, len) = (at & 0xff, len & 0xff);
    if len == 0 {
        return 0;
    }
    // `a` is sign-extended to 64 bits, so bits above the width repeat the sign, as the instruction wants.
    let kept = a >> at.min(width - 1);
    let len = len.min(width - at.min(width - 1));
    kept << (64 - len) >> (64 - len)
}

/// A register that takes a bit field.
trait Field: Copy {
    const BITS: u32;
    fn wide(self) -> u64;
    fn narrow(x: u64) -> Self;
}

impl Field for u32 {
    const BITS: u32 = 32;
    fn wide(self) -> u64 {
        u64::from(self)
    }
    fn narrow(x: u64) -> u32 {
        x as u32
    }
}

impl Field for u64 {
    const BITS: u32 = 64;
    fn wide(self) -> u64 {
        self
    }
    fn narrow(x: u64) -> u64 {
        x
    }
}

/// `bfi d, a, b, at, len`: `d` is `b` with `len` bits of `a` at `at`.
unsafe fn insert<T: Field>(w: &mut Warp, i: &Inst) {
    for l in lanes(w.mask) {
        // SAFETY: `select` gave the operands these widths.
        unsafe {
            let (a, b) = ((*w.row::<T>(i.a).add(l)).wide(), (*w.row::<T>(i.b).add(l)).wide());
            let (at, len) = (*w.row::<u32>(i.c).add(l) & 0xff, *w.row::<u32>(i.e).add(l) & 0xff);
            let field = if len >= 64 { u64::MAX } else { (1u64 << len) - 1 };
            let out = if at >= T::BITS {
                b
            } else {
                b & !(field << at) | (a & field) << at
            };
            *w.row::<T>(i.d).add(l) = T::narrow(out);
        }
    }
}

/// Any function of three bits, by its table.
unsafe fn lop3(w: &mut Warp, i: &Inst) {
    // SAFETY: all operands are rows of u32 (`select`).
    unsafe {
        let table = *w.row::<u32>(i.e);
        for l in lanes(w.mask) {
            let (a, b, c) = (
                *w.row::<u32>(i.a).add(l),
                *w.row::<u32>(i.b).add(l),
                *w.row::<u32>(i.c).add(l),
            );
            let mut out = 0;
            for k in 0..8 {
                if table >> k & 1 != 0 {
                    let x = if k & 4 != 0 { a } else { !a };
                    let y = if k & 2 != 0 { b } else { !b };
                    let z = if k & 1 != 0 { c } else { !c };
                    out |= x & y & z;
                }
            }
            *w.row::<u32>(i.d).add(l) = out;
        }
    }
}

fn prmt(op: &Opcode<'_>) -> Option<Plan> {
    fn pick(a: u32, b: u32, control: u32) -> u32 {
        let both = u64::from(b) << 32 | u64::from(a);
        (0..4).fold(0, |out, k| {
            let nibble = control >> (4 * k) & 15;
            let byte = (both >> (8 * (nibble & 7))) as u8;
            let byte = if nibble & 8 != 0 {
                ((byte as i8) >> 7) as u8
            } else {
                byte
            };
            out | u32::from(byte) << (8 * k)
        })
    }
    /// The control word that a mode makes of the low two bits.
    fn mode(c: u32, table: [u32; 4]) -> u32 {
        table[(c & 3) as usize]
    }
    Some(match op.modifiers.get(1).copied() {
        None => ternary(|a: u32, b: u32, c: u32| pick(a, b, c)),
        Some("f4e") => ternary(|a: u32, b: u32, c: u32| pick(a, b, mode(c, [0x3210, 0x4321, 0x5432, 0x6543]))),
        Some("b4e") => ternary(|a: u32, b: u32, c: u32| pick(a, b, mode(c, [0x5670, 0x6701, 0x7012, 0x0123]))),
        Some("rc8") => ternary(|a: u32, b: u32, c: u32| pick(a, b, mode(c, [0x0000, 0x1111, 0x2222, 0x3333]))),
        Some("ecl") => ternary(|a: u32, b: u32, c: u32| pick(a, b, mode(c, [0x3210, 0x3211, 0x3222, 0x3333]))),
        Some("ecr") => ternary(|a: u32, b: u32, c: u32| pick(a, b, mode(c, [0x0000, 0x1110, 0x2210, 0x3210]))),
        Some("rc16") => ternary(|a: u32, b: u32, c: u32| pick(a, b, mode(c, [0x1010, 0x3232, 0x1010, 0x3232]))),
        Some(_) => return None,
    })
}

fn testp(op: &Opcode<'_>) -> Option<Plan> {
    Some(match (op.first_ty(), op.ty()) {
        ("finite", "f32") => test(|a: f32| a.is_finite()),
        ("infinite", "f32") => test(|a: f32| a.is_infinite()),
        ("number", "f32") => test(|a: f32| !a.is_nan()),
        ("notanumber", "f32") => test(|a: f32| a.is_nan()),
        ("normal", "f32") => test(|a: f32| a.is_normal()),
        ("subnormal", "f32") => test(|a: f32| a.is_subnormal()),
        ("finite", "f64") => test(|a: f64| a.is_finite()),
        ("infinite", "f64") => test(|a: f64| a.is_infinite()),
        ("number", "f64") => test(|a: f64| !a.is_nan()),
        ("notanumber", "f64") => test(|a: f64| a.is_nan()),
        ("normal", "f64") => test(|a: f64| a.is_normal()),
        ("subnormal", "f64") => test(|a: f64| a.is_subnormal()),
        _ => return None,
    })
}
