//! Scalar functions on the accumulation types: what ops compute with after widening.

use kiln_core::Float;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Functions of f32 and f64, the two types that arithmetic happens in.
pub(crate) trait Math:
    Float<Acc = Self>
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    const HALF: Self;
    fn abs(self) -> Self;
    fn exp(self) -> Self;
    fn exp_m1(self) -> Self;
    fn ln(self) -> Self;
    fn ln_1p(self) -> Self;
    fn sqrt(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tanh(self) -> Self;
    fn powf(self, exponent: Self) -> Self;
    fn erf(self) -> Self;
    fn erfc(self) -> Self;

    /// 1/(1+e⁻ˣ), without overflow on either side: the exponential saturates and its reciprocal is then exact.
    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }

    /// The standard normal distribution function. The complementary error function keeps its lower tail accurate.
    #[inline(always)]
    fn normal_cdf(self) -> Self {
        Self::HALF * (self * Self::of(-std::f64::consts::FRAC_1_SQRT_2)).erfc()
    }

    /// The standard normal density.
    #[inline(always)]
    fn normal_pdf(self) -> Self {
        // 1/√(2π)
        (-Self::HALF * self * self).exp() * Self::of(0.398_942_280_401_432_7)
    }
}

macro_rules! math {
    ($t:ident, $exp:path, $tanh:path, $erf:path, $erfc:path) => {
        impl Math for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const HALF: $t = 0.5;
            #[inline(always)]
            fn abs(self) -> $t {
                $t::abs(self)
            }
            #[inline(always)]
            fn exp(self) -> $t {
                $exp(self)
            }
            #[inline(always)]
            fn exp_m1(self) -> $t {
                $t::exp_m1(self)
            }
            #[inline(always)]
            fn ln(self) -> $t {
                $t::ln(self)
            }
            #[inline(always)]
            fn ln_1p(self) -> $t {
                $t::ln_1p(self)
            }
            #[inline(always)]
            fn sqrt(self) -> $t {
                $t::sqrt(self)
            }
            #[inline(always)]
            fn sin(self) -> $t {
                $t::sin(self)
            }
            #[inline(always)]
            fn cos(self) -> $t {
                $t::cos(self)
            }
            #[inline(always)]
            fn tanh(self) -> $t {
                $tanh(self)
            }
            #[inline(always)]
            fn powf(self, exponent: $t) -> $t {
                $t::powf(self, exponent)
            }
            #[inline(always)]
            fn erf(self) -> $t {
                $erf(self)
            }
            #[inline(always)]
            fn erfc(self) -> $t {
                $erfc(self)
            }
        }
    };
}
math!(f32, exp32, tanh32, libm::erff, libm::erfcf);
math!(f64, f64::exp, f64::tanh, libm::erf, libm::erfc);

/// c₀xⁿ + c₁xⁿ⁻¹ + … by Horner's rule.
#[inline(always)]
fn horner<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut y = c[0];
    for &c in &c[1..] {
        y = y * x + c;
    }
    y
}

/// eˣ in f32 without branches or calls, so that loops over it vectorise: Cephes `expf` to 2 ulp, with the scale applied
/// in two halves, so that results below the smallest normal number round correctly.
#[inline(always)]
fn exp32(x: f32) -> f32 {
    // Beyond these the result is infinite or zero. A NaN fails both comparisons and stays.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    // Adding 1.5·2²³ rounds to an integer, which then stands in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts, the first with few enough bits that its product with n is exact.
    let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let p = horner(
        r,
        [
            1.987_569_1e-4,
            1.398_2e-3,
            8.333_452e-3,
            4.166_579_6e-2,
            1.666_666_5e-1,
            5e-1,
        ],
    );
    let y = p * (r * r) + r + 1.0;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = exponent >> 1;
    let power = |e: i32| f32::from_bits((e.wrapping_add(127) as u32) << 23);
    y * power(half) * power(exponent.wrapping_sub(half))
}

/// tanh x in f32 as [`exp32`]: the polynomial of Cephes `tanhf` near 0, the exponential elsewhere.
#[inline(always)]
fn tanh32(x: f32) -> f32 {
    let z = x * x;
    let near = horner(
        z,
        [
            -5.704_988_7e-3,
            2.063_909e-2,
            -5.373_971_6e-2,
            1.333_144_3e-1,
            -3.333_328e-1,
        ],
    ) * z
        * x
        + x;
    let far = 1.0 - 2.0 / (exp32(x.abs() * 2.0) + 1.0);
    if x.abs() < 0.625 { near } else { far.copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest distance from `want` in units of the last place, over floats of both signs up to `limit`.
    fn worst(limit: f32, f: impl Fn(f32) -> f32, want: impl Fn(f64) -> f64) -> (f64, f32) {
        let mut worst = (0.0, 0.0);
        for bits in (0..=limit.to_bits()).step_by(1009) {
            for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
                let want = want(f64::from(x));
                let near = want as f32;
                // Between this float and the next: the smallest step there is, below the normal numbers.
                let ulp = f64::from(f32::from_bits(near.abs().to_bits() + 1)) - f64::from(near.abs());
                let error = (f64::from(f(x)) - want).abs() / ulp;
                if error > worst.0 {
                    worst = (error, x);
                }
            }
        }
        worst
    }

    #[test]
    fn exponential_is_within_two_ulp() {
        let (error, x) = worst(88.7, exp32, f64::exp);
        assert!(error <= 2.0, "exp {x}: {error} ulp");
        // On the negative side down to where it vanishes.
        let (error, x) = worst(104.0, |x| exp32(-x.abs()), |x| (-x.abs()).exp());
        assert!(error <= 2.0, "exp {x}: {error} ulp");
        assert_eq!(
            [0.0, -0.0, f32::NEG_INFINITY, f32::MIN, -104.1].map(exp32),
            [1.0, 1.0, 0.0, 0.0, 0.0]
        );
        assert_eq!([f32::INFINITY, f32::MAX, 88.73].map(exp32), [f32::INFINITY; 3]);
        assert!(exp32(f32::NAN).is_nan() && exp32(88.72).is_finite());
    }

    #[test]
    fn tangent_is_within_two_ulp() {
        let (error, x) = worst(20.0, tanh32, f64::tanh);
        assert!(error <= 2.0, "tanh {x}: {error} ulp");
        assert_eq!(
            [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 0.0].map(tanh32),
            [1.0, -1.0, 1.0, 0.0]
        );
        assert!(tanh32(f32::NAN).is_nan());
    }
}
