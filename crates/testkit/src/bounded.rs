//! Numbers that carry a bound of their own rounding error.

use crate::compare::{smallest_normal, unit};
use kiln_core::DType;
use std::ops::{Add, Div, Mul, Sub};

/// A number computed in f64, and the most by which the same formula can miss it in the arithmetic of `dtype` (running error
/// analysis: Higham, Accuracy and Stability of Numerical Algorithms, section 3.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounded {
    pub(crate) value: f64,
    pub(crate) error: f64,
    dtype: DType,
}

impl Bounded {
    /// A number that the arithmetic holds without an error.
    pub(crate) fn exact(value: f64, dtype: DType) -> Self {
        let error = 0.0;
        Bounded { value, error, dtype }
    }

    /// A number that is rounded once, to the precision of the arithmetic.
    pub(crate) fn constant(value: f64, dtype: DType) -> Self {
        Bounded::exact(value, dtype).rounded(dtype)
    }

    /// The same after a rounding to `dtype`.
    #[must_use]
    pub(crate) fn rounded(self, dtype: DType) -> Self {
        let largest = (self.value.abs() + self.error).max(smallest_normal(dtype));
        let error = self.error + largest * unit(dtype);
        Bounded { error, ..self }
    }

    fn of(self, value: f64, error: f64) -> Self {
        // Zero times an error without a bound has no bound.
        let error = if error.is_nan() { f64::INFINITY } else { error };
        Bounded { value, error, ..self }.rounded(self.dtype)
    }

    /// `√x`, with errors below zero cut off.
    pub(crate) fn sqrt(self) -> Self {
        let root = self.value.sqrt();
        let above = (self.value + self.error).sqrt() - root;
        let below = root - (self.value - self.error).max(0.0).sqrt();
        self.of(root, above.max(below))
    }

    /// The larger of both.
    pub(crate) fn max(self, other: Self) -> Self {
        let (value, error) = (self.value.max(other.value), self.error.max(other.error));
        Bounded { value, error, ..self }
    }
}

impl Add for Bounded {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.of(self.value + other.value, self.error + other.error)
    }
}

impl Sub for Bounded {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.of(self.value - other.value, self.error + other.error)
    }
}

impl Mul for Bounded {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let error = self.value.abs() * other.error + other.value.abs() * self.error + self.error * other.error;
        self.of(self.value * other.value, error)
    }
}

/// Without a bound (infinite) where the divisor may be zero.
impl Div for Bounded {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let (quotient, least) = (self.value / other.value, other.value.abs() - other.error);
        let error = (self.error + quotient.abs() * other.error) / least;
        self.of(quotient, if least > 0.0 { error } else { f64::INFINITY })
    }
}

#[cfg(test)]
mod tests {
    use super::Bounded;
    use kiln_core::DType;
    use proptest::prelude::*;

    /// `(√(a² + b) − a)·c/(b + 1)`, whose difference cancels where b is small.
    fn formula<T>(a: T, b: T, c: T, one: T, sqrt: impl Fn(T) -> T) -> T
    where
        T: std::ops::Add<Output = T> + std::ops::Sub<Output = T> + std::ops::Mul<Output = T>,
        T: std::ops::Div<Output = T> + Copy,
    {
        (sqrt(a * a + b) - a) * c / (b + one)
    }

    proptest! {
        /// f32 arithmetic stays within the bound, and the bound is within 100 times of what errors are made of.
        #[test]
        fn f32_stays_within_the_bound(a in 0.1f32..9.0, b in 0.01f32..4.0, c in -3.0f32..3.0) {
            let unit = 2f64.powi(-24);
            let exact = |x: f32| Bounded::exact(f64::from(x), DType::F32);
            let bounded = formula(exact(a), exact(b), exact(c), exact(1.0), Bounded::sqrt);
            let error = (f64::from(formula(a, b, c, 1.0, f32::sqrt)) - bounded.value).abs();
            prop_assert!(error <= bounded.error, "{error:e} of {bounded:?}");
            let terms = f64::from(a + b) * f64::from(c.abs());
            prop_assert!(bounded.error <= 100.0 * unit * terms, "{bounded:?}");
        }
    }

    #[test]
    fn a_divisor_that_may_be_zero_leaves_no_bound() {
        let third = Bounded::constant(1.0 / 3.0, DType::F32);
        assert_eq!((third / (third - third)).error, f64::INFINITY);
        let zero = Bounded::exact(0.0, DType::F32);
        assert_eq!((zero * (third / (third - third))).error, f64::INFINITY);
        assert!((third / third).error < 4.0 * 2f64.powi(-24));
    }
}
