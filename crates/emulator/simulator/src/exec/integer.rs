//! Integer arithmetic.

use kiln_ptx::Opcode;

use super::lanes::{Plan, Ty, binary, ternary, unary};
use crate::machine::{Inst, Warp, lanes};

macro_rules! by_type {
    ($ty:expr, |$t:ident| $plan:expr, $($name:literal => $rust:ty),*) => {
        match $ty {
            $($name => { type $t = $rust; Some($plan) })*
            _ => None,
        }
    };
}

macro_rules! integers {
    ($ty:expr, |$t:ident| $plan:expr) => {
        by_type!($ty, |$t| $plan, "s16" => i16, "u16" => u16, "s32" => i32, "u32" => u32, "s64" => i64, "u64" => u64)
    };
}

/// The plan of an integer instruction, if it is one.
pub(crate) fn select(op: &Opcode<'_>) -> Option<Plan> {
    let ty = op.ty();
    match op.name {
        "add" | "sub" | "addc" | "subc" | "mad" | "madc" if op.has("cc") || op.name.ends_with('c') => carry(op),
        "add" if op.has("sat") => (ty == "s32").then(|| binary(|a: i32, b: i32| a.saturating_add(b))),
        "sub" if op.has("sat") => (ty == "s32").then(|| binary(|a: i32, b: i32| a.saturating_sub(b))),
        "add" if ty == "u16x2" || ty == "s16x2" => Some(binary(|a: u32, b: u32| pair(a, b, u16::wrapping_add))),
        "add" => integers!(ty, |T| binary(|a: T, b: T| a.wrapping_add(b))),
        "sub" => integers!(ty, |T| binary(|a: T, b: T| a.wrapping_sub(b))),
        "mul" if op.has("wide") => wide_mul(ty),
        "mul" if op.has("hi") => high_mul(ty),
        "mul" => integers!(ty, |T| binary(|a: T, b: T| a.wrapping_mul(b))),
        "mul24" if op.has("lo") => Some(if ty == "s32" {
            binary(|a: i32, b: i32| (a << 8 >> 8).wrapping_mul(b << 8 >> 8))
        } else {
            binary(|a: u32, b: u32| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff))
        }),
        "mad" if op.has("wide") => wide_mad(ty),
        "mad" if op.has("hi") => high_mad(op),
        "mad" => integers!(ty, |T| ternary(|a: T, b: T, c: T| a.wrapping_mul(b).wrapping_add(c))),
        "div" => integers!(ty, |T| binary(|a: T, b: T| if b == 0 { !0 } else { a.wrapping_div(b) })),
        "rem" => integers!(ty, |T| binary(|a: T, b: T| if b == 0 { a } else { a.wrapping_rem(b) })),
        "min" if op.has("relu") && ty == "s32" => Some(binary(|a: i32, b: i32| a.min(b).max(0))),
        "max" if op.has("relu") && ty == "s32" => Some(binary(|a: i32, b: i32| a.max(b).max(0))),
        "min" if op.modifiers.len() == 1 => integers!(ty, |T| binary(|a: T, b: T| a.min(b))),
        "max" if op.modifiers.len() == 1 => integers!(ty, |T| binary(|a: T, b: T| a.max(b))),
        "neg" => by_type!(ty, |T| unary(|a: T| a.wrapping_neg()), "s16" => i16, "s32" => i32, "s64" => i64),
        "abs" => by_type!(ty, |T| unary(|a: T| a.wrapping_abs()), "s16" => i16, "s32" => i32, "s64" => i64),
        "sad" => match ty {
            "s32" => Some(ternary(|a: i32, b: i32, c: u32| a.abs_diff(b).wrapping_add(c))),
            "u32" => Some(ternary(|a: u32, b: u32, c: u32| a.abs_diff(b).wrapping_add(c))),
            "s16" => Some(ternary(|a: i16, b: i16, c: u16| a.abs_diff(b).wrapping_add(c))),
            "u16" => Some(ternary(|a: u16, b: u16, c: u16| a.abs_diff(b).wrapping_add(c))),
            "s64" => Some(ternary(|a: i64, b: i64, c: u64| a.abs_diff(b).wrapping_add(c))),
            "u64" => Some(ternary(|a: u64, b: u64, c: u64| a.abs_diff(b).wrapping_add(c))),
            _ => None,
        },
        "dp4a" => match (op.first_ty(), ty) {
            ("s32", "s32") => Some(ternary(|a: i32, b: i32, c: i32| {
                dot4(a, b, c, |x| x as i8 as i32, |x| x as i8 as i32)
            })),
            ("s32", "u32") => Some(ternary(|a: i32, b: i32, c: i32| {
                dot4(a, b, c, |x| x as i8 as i32, |x| x as u8 as i32)
            })),
            ("u32", "s32") => Some(ternary(|a: i32, b: i32, c: i32| {
                dot4(a, b, c, |x| x as u8 as i32, |x| x as i8 as i32)
            })),
            ("u32", "u32") => Some(ternary(|a: i32, b: i32, c: i32| {
                dot4(a, b, c, |x| x as u8 as i32, |x| x as u8 as i32)
            })),
            _ => None,
        },
        _ => None,
    }
}

fn pair(a: u32, b: u32, f: fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

fn dot4(a: i32, b: i32, c: i32, x: fn(i32) -> i32, y: fn(i32) -> i32) -> i32 {
    (0..4).fold(c, |sum, k| {
        sum.wrapping_add(x(a >> (8 * k)).wrapping_mul(y(b >> (8 * k))))
    })
}

fn wide_mul(ty: &str) -> Option<Plan> {
    match ty {
        "s16" => Some(binary(|a: i16, b: i16| i32::from(a) * i32::from(b))),
        "u16" => Some(binary(|a: u16, b: u16| u32::from(a) * u32::from(b))),
        "s32" => Some(binary(|a: i32, b: i32| i64::from(a) * i64::from(b))),
        "u32" => Some(binary(|a: u32, b: u32| u64::from(a) * u64::from(b))),
        _ => None,
    }
}

fn wide_mad(ty: &str) -> Option<Plan> {
    match ty {
        "s16" => Some(ternary(|a: i16, b: i16, c: i32| {
            (i32::from(a) * i32::from(b)).wrapping_add(c)
        })),
        "u16" => Some(ternary(|a: u16, b: u16, c: u32| {
            (u32::from(a) * u32::from(b)).wrapping_add(c)
        })),
        "s32" => Some(ternary(|a: i32, b: i32, c: i64| {
            (i64::from(a) * i64::from(b)).wrapping_add(c)
        })),
        "u32" => Some(ternary(|a: u32, b: u32, c: u64| {
            (u64::from(a) * u64::from(b)).wrapping_add(c)
        })),
        _ => None,
    }
}

fn high_mul(ty: &str) -> Option<Plan> {
    match ty {
        "s16" => Some(binary(|a: i16, b: i16| ((i32::from(a) * i32::from(b)) >> 16) as i16)),
        "u16" => Some(binary(|a: u16, b: u16| ((u32::from(a) * u32::from(b)) >> 16) as u16)),
        "s32" => Some(binary(|a: i32, b: i32| ((i64::from(a) * i64::from(b)) >> 32) as i32)),
        "u32" => Some(binary(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32)),
        "s64" => Some(binary(|a: i64, b: i64| ((i128::from(a) * i128::from(b)) >> 64) as i64)),
        "u64" => Some(binary(|a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64)),
        _ => None,
    }
}

fn high_mad(op: &Opcode<'_>) -> Option<Plan> {
    if op.has("sat") {
        let saturated = |a: i32, b: i32, c: i32| (((i64::from(a) * i64::from(b)) >> 32) as i32).saturating_add(c);
        return (op.ty() == "s32").then(|| ternary(saturated));
    }
    match op.ty() {
        "s32" => Some(ternary(|a: i32, b: i32, c: i32| {
            ((i64::from(a) * i64::from(b)) >> 32).wrapping_add(i64::from(c)) as i32
        })),
        "u32" => Some(ternary(|a: u32, b: u32, c: u32| {
            (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c)
        })),
        "s64" => Some(ternary(|a: i64, b: i64, c: i64| {
            (((i128::from(a) * i128::from(b)) >> 64) as i64).wrapping_add(c)
        })),
        "u64" => Some(ternary(|a: u64, b: u64, c: u64| {
            (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c)
        })),
        _ => None,
    }
}

/// Bits of the flags of a carry instruction.
mod carry_flags {
    pub(super) const IN: u32 = 1;
    pub(super) const OUT: u32 = 2;
    pub(super) const SUBTRACT: u32 = 4;
    pub(super) const HIGH: u32 = 8;
    pub(super) const SIGNED: u32 = 16;
}

fn carry(op: &Opcode<'_>) -> Option<Plan> {
    use carry_flags::{HIGH, IN, OUT, SIGNED, SUBTRACT};
    let mut flags = 0;
    flags |= if op.name.ends_with('c') { IN } else { 0 };
    flags |= if op.has("cc") { OUT } else { 0 };
    flags |= if op.name.starts_with("sub") { SUBTRACT } else { 0 };
    flags |= if op.has("hi") { HIGH } else { 0 };
    flags |= if op.ty().starts_with('s') { SIGNED } else { 0 };
    let plan = match (op.name.starts_with("mad"), op.ty()) {
        (false, "s32" | "u32") => Plan::new(add_carry::<u32>, Some(Ty::B32), &[Ty::B32; 2]),
        (false, "s64" | "u64") => Plan::new(add_carry::<u64>, Some(Ty::B64), &[Ty::B64; 2]),
        (true, "s32" | "u32") => Plan::new(mad_carry::<u32>, Some(Ty::B32), &[Ty::B32; 3]),
        (true, "s64" | "u64") => Plan::new(mad_carry::<u64>, Some(Ty::B64), &[Ty::B64; 3]),
        _ => return None,
    };
    Some(plan.flags(flags))
}

/// A register that carries.
trait Word: Copy {
    const BITS: u32;
    fn wide(self) -> u128;
    fn signed(self) -> i128;
    fn narrow(x: u128) -> Self;
}

impl Word for u32 {
    const BITS: u32 = 32;
    fn wide(self) -> u128 {
        u128::from(self)
    }
    fn signed(self) -> i128 {
        i128::from(self as i32)
    }
    fn narrow(x: u128) -> u32 {
        x as u32
    }
}

impl Word for u64 {
    const BITS: u32 = 64;
    fn wide(self) -> u128 {
        u128::from(self)
    }
    fn signed(self) -> i128 {
        i128::from(self as i64)
    }
    fn narrow(x: u128) -> u64 {
        x as u64
    }
}

/// `a ± b ± carry`; the carry of a subtraction is its borrow.
fn sum_with_carry<T: Word>(w: &mut Warp, flags: u32, lane: usize, a: u128, b: u128) -> T {
    let carry_in = u128::from(flags & carry_flags::IN != 0 && w.carry >> lane & 1 != 0);
    let sum = if flags & carry_flags::SUBTRACT != 0 {
        a.wrapping_sub(b).wrapping_sub(carry_in)
    } else {
        a + b + carry_in
    };
    if flags & carry_flags::OUT != 0 {
        w.carry = w.carry & !(1 << lane) | ((sum >> T::BITS & 1) as u32) << lane;
    }
    T::narrow(sum)
}

unsafe fn add_carry<T: Word>(w: &mut Warp, i: &Inst) {
    for l in lanes(w.mask) {
        // SAFETY: the operands are rows of T (`carry`).
        unsafe {
            let (a, b) = ((*w.row::<T>(i.a).add(l)).wide(), (*w.row::<T>(i.b).add(l)).wide());
            *w.row::<T>(i.d).add(l) = sum_with_carry(w, i.flags, l, a, b);
        }
    }
}

unsafe fn mad_carry<T: Word>(w: &mut Warp, i: &Inst) {
    for l in lanes(w.mask) {
        // SAFETY: the operands are rows of T (`carry`).
        unsafe {
            let (a, b) = (*w.row::<T>(i.a).add(l), *w.row::<T>(i.b).add(l));
            let c = (*w.row::<T>(i.c).add(l)).wide();
            let product = if i.flags & carry_flags::SIGNED != 0 {
                (a.signed() * b.signed()) as u128
            } else {
                a.wide() * b.wide()
            };
            let part = if i.flags & carry_flags::HIGH != 0 {
                product >> T::BITS
            } else {
                product
            };
            *w.row::<T>(i.d).add(l) = sum_with_carry(w, i.flags, l, T::narrow(part).wide(), c);
        }
    }
}
