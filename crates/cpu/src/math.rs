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
    ($t:ident, $erf:path, $erfc:path) => {
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
                $t::exp(self)
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
                $t::tanh(self)
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
math!(f32, libm::erff, libm::erfcf);
math!(f64, libm::erf, libm::erfc);
