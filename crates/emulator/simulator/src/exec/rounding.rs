//! Rounding as PTX has it: four directions, flushed denormals, saturation, and the half-precision formats.
//!
//! A sum, product or quotient is first computed in f64 *rounded to odd*: a nonzero error sets the last bit.
//! f64 has more than two bits above f32 and the halves, so rounding that result once more gives the exact result's rounding.

use kiln_ptx::Opcode;

use super::lanes::{Bf16, F16};

/// Bits of an instruction's flags.
pub(crate) const MODE: u32 = 3;
pub(crate) const RN: u32 = 0;
pub(crate) const RZ: u32 = 1;
pub(crate) const RM: u32 = 2;
pub(crate) const RP: u32 = 3;
/// Denormals in and out are zero.
pub(crate) const FTZ: u32 = 4;
/// The result is clamped to 0…1, and NaN to 0; integers are clamped to their range.
pub(crate) const SAT: u32 = 8;
/// A negative result is zero.
pub(crate) const RELU: u32 = 16;
/// A NaN among the operands is the result.
pub(crate) const NAN: u32 = 32;

/// Rounds to odd: if the exact value lies beside `rounded`, on the side of `error`, the result has its last bit set.
#[inline(always)]
fn odd(rounded: f64, error: f64) -> f64 {
    if error == 0.0 || !rounded.is_finite() || error.is_nan() {
        return rounded;
    }
    let bits = rounded.to_bits();
    if bits & 1 == 1 {
        return rounded;
    }
    // The neighbour on the error's side is odd.
    if (error > 0.0) == (rounded > 0.0) {
        f64::from_bits(bits + 1)
    } else {
        f64::from_bits(bits - 1)
    }
}

/// `a + b`, rounded to odd; with the error of the sum as Knuth gives it. `flags` decide the sign of a zero.
#[inline(always)]
pub(crate) fn odd_sum(a: f64, b: f64, flags: u32) -> f64 {
    let s = sum(a, b, flags);
    odd(s, sum_error(a, b, s))
}

/// `a + b`, rounded to nearest, but for a sum of zero: opposite numbers give -0 when rounding down.
#[inline(always)]
fn sum(a: f64, b: f64, flags: u32) -> f64 {
    let s = a + b;
    if s == 0.0 && flags & MODE == RM && (a.is_sign_negative() || b.is_sign_negative()) {
        -0.0
    } else {
        s
    }
}

/// `a + b - s`, exactly, where `s` is the rounded sum.
#[inline(always)]
fn sum_error(a: f64, b: f64, s: f64) -> f64 {
    let t = s - a;
    (a - (s - t)) + (b - t)
}

/// `a / b`, rounded to odd; for operands that are f32.
pub(crate) fn odd_div(a: f64, b: f64) -> f64 {
    let q = a / b;
    let r = (-q).mul_add(b, a);
    odd(q, if b < 0.0 { -r } else { r })
}

/// The square root, rounded to odd; for an operand that is f32.
pub(crate) fn odd_sqrt(a: f64) -> f64 {
    let q = a.sqrt();
    odd(q, (-q).mul_add(q, a))
}

/// An integer rounded to odd.
pub(crate) fn odd_integer(a: i128) -> f64 {
    let size = a.unsigned_abs();
    let extra = 128u32.saturating_sub(size.leading_zeros()).saturating_sub(53);
    let mut kept = size >> extra;
    if kept << extra != size {
        kept |= 1;
    }
    let value = kept as u64 as f64 * (1u128 << extra) as f64;
    if a < 0 { -value } else { value }
}

/// Rounds to an integer.
#[inline(always)]
pub(crate) fn to_integer(x: f64, mode: u32) -> f64 {
    match mode & MODE {
        RN => x.round_ties_even(),
        RZ => x.trunc(),
        RM => x.floor(),
        _ => x.ceil(),
    }
}

/// Rounds to `precision` bits, with the smallest normal exponent and the largest value of a format.
fn round_to(x: f64, mode: u32, precision: i32, smallest: i32, largest: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(smallest);
    let ulp = exponent - (precision - 1);
    let rounded = to_integer(x * power(-ulp), mode) * power(ulp);
    let rounded = if rounded == 0.0 { 0f64.copysign(x) } else { rounded };
    if rounded.abs() <= largest {
        return rounded;
    }
    let inward = match mode & MODE {
        RN => false,
        RZ => true,
        RM => x > 0.0,
        _ => x < 0.0,
    };
    (if inward { largest } else { f64::INFINITY }).copysign(x)
}

fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Rounds to f32.
pub(crate) fn narrow32(x: f64, flags: u32) -> f32 {
    let y = if flags & MODE == RN {
        x as f32
    } else {
        round_to(x, flags, 24, -126, f64::from(f32::MAX)) as f32
    };
    finish32(y, flags)
}

/// Flushes and saturates a result.
#[inline(always)]
pub(crate) fn finish32(y: f32, flags: u32) -> f32 {
    let y = flush(y, flags);
    let y = if flags & SAT != 0 { saturate(y) } else { y };
    if flags & RELU != 0 && y < 0.0 { 0.0 } else { y }
}

/// Flushes a denormal where `flags` ask for it.
#[inline(always)]
pub(crate) fn flush(x: f32, flags: u32) -> f32 {
    if flags & FTZ != 0 && x.abs() < f32::MIN_POSITIVE {
        0f32.copysign(x)
    } else {
        x
    }
}

/// As [`saturate`] where `flags` ask for it.
#[inline(always)]
pub(crate) fn finish64(y: f64, flags: u32) -> f64 {
    if flags & SAT == 0 {
        y
    } else if y > 0.0 {
        y.min(1.0)
    } else {
        0.0
    }
}

/// Clamps to 0…1; NaN becomes 0.
#[inline(always)]
fn saturate(x: f32) -> f32 {
    if x > 0.0 { if x < 1.0 { x } else { 1.0 } } else { 0.0 }
}

/// A format of 16 bits.
pub(crate) trait Half: super::lanes::Lane {
    /// The value in f32, which is exact.
    fn wide(self) -> f32;
    /// Rounds to nearest.
    fn narrow(x: f32) -> Self;
    /// Rounds a value that is exact or rounded to odd.
    fn round(x: f64, flags: u32) -> Self;
    fn bits(self) -> u16;
    fn of_bits(bits: u16) -> Self;
    /// The not-a-number that operations give.
    const NAN: u16 = 0x7fff;
}

impl Half for F16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        let h = u32::from(self.0);
        let sign = (h & 0x8000) << 16;
        let rest = h & 0x7fff;
        // Normal numbers need another bias; denormals are that many units of 2^-24; infinity and NaN keep their bits.
        let normal = (rest << 13) + (112 << 23);
        let special = (rest << 13) | 0x7f80_0000;
        let small = (rest as i32 as f32 * f32::from_bits(0x3380_0000)).to_bits();
        let bits = if rest >= 0x7c00 { special } else { normal };
        let bits = if rest < 0x400 { small } else { bits };
        f32::from_bits(bits | sign)
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        let bits = x.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let size = bits & 0x7fff_ffff;
        // Denormals: adding a half lets the float unit round at the right bit.
        let small = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let odd = size >> 13 & 1;
        let normal = size.wrapping_add(0xc800_0fff).wrapping_add(odd) >> 13;
        let out = if size < 0x3880_0000 { small } else { normal };
        let out = if size >= 0x4780_0000 { 0x7c00 } else { out };
        if size > 0x7f80_0000 {
            F16(Self::NAN)
        } else {
            F16((out | sign) as u16)
        }
    }

    fn round(x: f64, flags: u32) -> Self {
        let y = finish_half(round_to(x, flags, 11, -14, 65504.0), flags);
        if y.is_nan() {
            F16(Self::NAN)
        } else {
            F16::narrow(y as f32)
        }
    }

    #[inline(always)]
    fn bits(self) -> u16 {
        self.0
    }

    #[inline(always)]
    fn of_bits(bits: u16) -> Self {
        F16(bits)
    }
}

impl Half for Bf16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff).wrapping_add(bits >> 16 & 1) >> 16;
        if bits & 0x7fff_ffff > 0x7f80_0000 {
            Bf16(Self::NAN)
        } else {
            Bf16(rounded as u16)
        }
    }

    fn round(x: f64, flags: u32) -> Self {
        let largest = f64::from(f32::from_bits(0x7f7f_0000));
        let y = finish_half(round_to(x, flags, 8, -126, largest), flags);
        if y.is_nan() {
            Bf16(Self::NAN)
        } else {
            Bf16::narrow(y as f32)
        }
    }

    #[inline(always)]
    fn bits(self) -> u16 {
        self.0
    }

    #[inline(always)]
    fn of_bits(bits: u16) -> Self {
        Bf16(bits)
    }
}

fn finish_half(y: f64, flags: u32) -> f64 {
    let y = if flags & FTZ != 0 && y.abs() < power(-14) {
        0f64.copysign(y)
    } else {
        y
    };
    let y = finish64(y, flags);
    if flags & RELU != 0 && y < 0.0 { 0.0 } else { y }
}

/// The mode that an opcode's modifiers name, with `ftz`, `sat`, `relu` and `NaN`.
pub(crate) fn modifiers(op: &Opcode<'_>) -> u32 {
    op.modifiers.iter().fold(0, |flags, m| {
        flags
            | match *m {
                "rz" | "rzi" => RZ,
                "rm" | "rmi" => RM,
                "rp" | "rpi" => RP,
                "ftz" => FTZ,
                "sat" | "satfinite" => SAT,
                "relu" => RELU,
                "NaN" => NAN,
                _ => 0,
            }
    })
}
