//! f64 arithmetic in every direction: the exact result as an integer and an exponent, rounded once.
//!
//! Rounding to nearest is the processor's own and needs none of this.

use super::rounding::{MODE, RM, RN, RP, RZ};

/// `size` units of `2^exponent`. Where bits were lost below, the last bit of `size` is set; it is then far below the 53
/// bits that a result keeps.
#[derive(Clone, Copy)]
struct Exact {
    negative: bool,
    size: u128,
    exponent: i32,
}

impl Exact {
    /// A finite number.
    fn of(x: f64) -> Exact {
        let (bits, field) = (x.to_bits(), (x.to_bits() >> 52 & 0x7ff) as i32);
        let fraction = bits & ((1 << 52) - 1);
        let hidden = u64::from(field != 0) << 52;
        Exact {
            negative: x.is_sign_negative(),
            size: u128::from(fraction | hidden),
            exponent: field.max(1) - 1075,
        }
    }

    fn times(self, other: Exact) -> Exact {
        Exact {
            negative: self.negative != other.negative,
            size: self.size * other.size,
            exponent: self.exponent + other.exponent,
        }
    }

    /// The exponent of the unit above the highest bit.
    fn top(self) -> i32 {
        self.exponent + 128 - self.size.leading_zeros() as i32
    }

    /// The same number in smaller units, so that its highest bit is bit `at`; it was below.
    fn raised(self, at: u32) -> Exact {
        let by = at - (127 - self.size.leading_zeros());
        Exact {
            size: self.size << by,
            exponent: self.exponent - by as i32,
            ..self
        }
    }

    fn round(self, flags: u32) -> f64 {
        if self.size == 0 {
            return if self.negative { -0.0 } else { 0.0 };
        }
        let unit = (self.top() - 53).max(-1074);
        let drop = unit - self.exponent;
        let (mut kept, up) = if drop <= 0 {
            ((self.size << -drop) as u64, false)
        } else {
            // Below this, every distance gives the same rounding.
            let far = drop > 127;
            let drop = drop.min(127) as u32;
            let (kept, rest, half) = (self.size >> drop, self.size & ((1 << drop) - 1), 1 << (drop - 1));
            let up = match flags & MODE {
                RN => !far && (rest > half || rest == half && kept & 1 == 1),
                RM => self.negative && rest != 0,
                RP => !self.negative && rest != 0,
                _ => false,
            };
            (kept as u64, up)
        };
        kept += u64::from(up);
        let mut unit = unit;
        if kept >> 53 != 0 {
            kept >>= 1;
            unit += 1;
        }
        // A number below the normal ones has no hidden bit and the field 0.
        let field = if kept >> 52 == 0 { 0 } else { unit + 1075 };
        let size = if field < 0x7ff {
            f64::from_bits((field as u64) << 52 | kept & ((1 << 52) - 1))
        } else if inward(self.negative, flags) {
            f64::MAX
        } else {
            f64::INFINITY
        };
        if self.negative { -size } else { size }
    }
}

/// True if a result beyond the largest number is rounded to the largest number.
fn inward(negative: bool, flags: u32) -> bool {
    match flags & MODE {
        RN => false,
        RZ => true,
        RM => !negative,
        _ => negative,
    }
}

/// The sum of two finite numbers, of which one may be a product.
fn total(x: Exact, y: Exact, flags: u32) -> f64 {
    let cancelled = |negative| if negative { -0.0 } else { 0.0 };
    match (x.size == 0, y.size == 0) {
        (true, true) if x.negative == y.negative => return cancelled(x.negative),
        (true, true) => return cancelled(flags & MODE == RM),
        (true, false) => return y.round(flags),
        (false, true) => return x.round(flags),
        (false, false) => {}
    }
    let (high, low) = if x.top() >= y.top() { (x, y) } else { (y, x) };
    // Room for a carry above, and for a bit that was lost below: only a number far smaller than the other loses any.
    let (high, low) = (high.raised(125), low.raised(125));
    let by = (high.exponent - low.exponent).min(127) as u32;
    let lost = low.size & ((1 << by) - 1) != 0;
    let low_size = low.size >> by | u128::from(lost);
    let size = if high.negative == low.negative {
        high.size + low_size
    } else {
        high.size.abs_diff(low_size)
    };
    if size == 0 {
        return cancelled(flags & MODE == RM);
    }
    let negative = high.negative != (high.negative != low.negative && low_size > high.size);
    Exact {
        negative,
        size,
        exponent: high.exponent,
    }
    .round(flags)
}

/// `a + b`.
pub(super) fn add(a: f64, b: f64, flags: u32) -> f64 {
    if !a.is_finite() || !b.is_finite() {
        return a + b;
    }
    total(Exact::of(a), Exact::of(b), flags)
}

/// `a * b`.
pub(super) fn mul(a: f64, b: f64, flags: u32) -> f64 {
    if !a.is_finite() || !b.is_finite() {
        return a * b;
    }
    Exact::of(a).times(Exact::of(b)).round(flags)
}

/// `a * b + c`.
pub(super) fn fma(a: f64, b: f64, c: f64, flags: u32) -> f64 {
    if !a.is_finite() || !b.is_finite() || !c.is_finite() {
        return a.mul_add(b, c);
    }
    total(Exact::of(a).times(Exact::of(b)), Exact::of(c), flags)
}

/// `a / b`.
pub(super) fn div(a: f64, b: f64, flags: u32) -> f64 {
    if !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return a / b;
    }
    let (a, b) = (Exact::of(a).raised(125), Exact::of(b).raised(52));
    let (size, rest) = (a.size / b.size, a.size % b.size);
    Exact {
        negative: a.negative != b.negative,
        size: size << 1 | u128::from(rest != 0),
        exponent: a.exponent - b.exponent - 1,
    }
    .round(flags)
}

/// The square root.
pub(super) fn sqrt(a: f64, flags: u32) -> f64 {
    if !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    let even = Exact::of(a).raised(126);
    // Half of an odd exponent would be no integer.
    let odd = even.exponent & 1;
    let size = even.size >> odd;
    let root = size.isqrt();
    Exact {
        negative: false,
        size: root << 1 | u128::from(root * root != size),
        exponent: (even.exponent + odd) / 2 - 1,
    }
    .round(flags)
}

/// An integer as f64.
pub(super) fn integer(a: i128, flags: u32) -> f64 {
    Exact {
        negative: a < 0,
        size: a.unsigned_abs(),
        exponent: 0,
    }
    .round(flags)
}
