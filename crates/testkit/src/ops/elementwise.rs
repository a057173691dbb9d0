//! Elementwise ops.

mod bad_input;
mod binary;
mod composed;
mod unary;

pub use bad_input::bad_input;
pub use binary::{add, atan2, comparisons, div, extremes, mul, pow, prelu, remainder, select, sub, ties};
pub use composed::{composed, composed_edges, quotients};
pub(crate) use unary::{Function, every_magnitude, functions, slopes};
pub use unary::{casts, unary, unary_accuracy, unary_slope_accuracy};

/// The error function, with an absolute error of about 1e-15.
pub(crate) fn erf(x: f64) -> f64 {
    if x.abs() < 1.0 {
        erf_series(x)
    } else {
        (1.0 - erfc_fraction(x.abs())).copysign(x)
    }
}

/// 1 − erf(x), with a relative error below 1e-15·(1 + x²), in the upper tail too.
pub(crate) fn erfc(x: f64) -> f64 {
    if x < 1.0 { 1.0 - erf(x) } else { erfc_fraction(x) }
}

/// erf's Maclaurin series, for arguments below 1.
fn erf_series(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for k in 1..30 {
        term *= -x * x / f64::from(k);
        sum += term / f64::from(2 * k + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// Laplace's continued fraction of erfc, for arguments of at least 1 (Abramowitz and Stegun, 7.1.14). After n terms its
/// error is about e^(−2x·√(2n)), which is 1e-17 for n = 200/x².
fn erfc_fraction(x: f64) -> f64 {
    let terms = 8 + (200.0 / (x * x)) as i32;
    let fraction = (1..terms).rev().fold(0.0, |f, k| f64::from(k) / 2.0 / (x + f));
    (-x * x).exp() / (std::f64::consts::PI.sqrt() * (x + fraction))
}
