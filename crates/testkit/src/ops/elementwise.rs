//! Elementwise ops.

mod bad_input;
mod binary;
mod unary;

pub use bad_input::bad_input;
pub use binary::{add, comparisons, div, extremes, mul, pow, select, sub, ties};
pub use unary::{casts, unary};

/// The error function to 1e-15: its Maclaurin series, and beyond 3 Laplace's continued fraction of the complement.
pub(crate) fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size < 3.0 {
        let (mut term, mut sum) = (x, x);
        for k in 1..100 {
            term *= -x * x / f64::from(k);
            sum += term / f64::from(2 * k + 1);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..60).rev().fold(0.0, |f, k| f64::from(k) / 2.0 / (size + f));
    let complement = (-x * x).exp() / (std::f64::consts::PI.sqrt() * (size + fraction));
    (1.0 - complement).copysign(x)
}
