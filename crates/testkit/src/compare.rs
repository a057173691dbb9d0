//! Closeness: bounds that follow from how often a result is rounded, and messages that show the place.

use crate::Array;
use kiln_core::DType;

/// Half of the distance from 1 to the next number of a dtype: one rounding moves a number by at most this much of it.
pub(crate) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        DType::F64 => 2f64.powi(-53),
        _ => 2f64.powi(-24),
    }
}

/// The smallest number of a dtype that has all its digits. Below it a rounding moves a number by as much as it moves this one.
pub(crate) fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-14),
        DType::F64 => f64::MIN_POSITIVE,
        _ => 2f64.powi(-126),
    }
}

/// The error that rounding may leave in a result: `steps` roundings in a row, each at most half of a unit in the last place
/// of `magnitude`, which is the sum of the magnitudes of the terms that the result is made of (Higham, Accuracy and
/// Stability of Numerical Algorithms, section 3.1: k roundings in a row are off by at most k·u/(1 − k·u), in any order).
#[derive(Clone, Debug)]
pub struct Rounding {
    /// Roundings in a row in the dtype of the arithmetic: f64 for f64, f32 for all others. 0 is exact.
    pub steps: f64,
    /// Roundings of intermediate results to the tensor's dtype, beside the one of the result itself.
    pub stored: f64,
    /// As `steps`, of the oracle: as many, unless it is less careful than the arithmetic.
    pub oracle: f64,
    /// For each result the sum of the magnitudes of its terms.
    pub magnitude: Array,
}

impl Rounding {
    /// Results that are moved, counted or picked, so that nothing is rounded.
    pub fn exact(want: &Array) -> Self {
        Rounding::relative(0.0, want)
    }

    /// `steps` roundings of the result itself, without terms that cancel.
    pub fn relative(steps: f64, want: &Array) -> Self {
        Rounding::terms(steps, want.map(f64::abs))
    }

    /// `steps` roundings of terms that add up to `magnitude`.
    pub fn terms(steps: f64, magnitude: Array) -> Self {
        Rounding {
            steps,
            stored: 0.0,
            oracle: steps,
            magnitude,
        }
    }

    /// The same with intermediate results that are rounded to the tensor's dtype.
    #[must_use]
    pub fn stored(self, stored: f64) -> Self {
        Rounding { stored, ..self }
    }

    /// The same with an oracle, and arithmetic in f64, that round so often instead.
    #[must_use]
    pub fn oracle(self, oracle: f64) -> Self {
        Rounding { oracle, ..self }
    }

    /// The distance from `want` that each result in `dtype` may have: its own error and that of the oracle, which is made of f64.
    pub fn bounds(&self, dtype: DType, want: &[f64]) -> Vec<f64> {
        let arithmetic = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let steps = if dtype == DType::F64 {
            self.steps.max(self.oracle)
        } else {
            self.steps
        };
        let wide = steps * unit(arithmetic) + self.oracle * unit(DType::F64);
        let least = smallest_normal(arithmetic);
        let narrow = if dtype == arithmetic { 0.0 } else { unit(dtype) };
        let one = |(magnitude, want): (&f64, &f64)| {
            if self.steps == 0.0 && self.stored == 0.0 {
                return 0.0;
            }
            let sums = wide * magnitude.max(least);
            // To one number from the next, what is rounded to the dtype may have been off already.
            let end = narrow * (want.abs() + sums).max(smallest_normal(dtype));
            let between = self.stored * unit(dtype) * magnitude.max(smallest_normal(dtype));
            sums + end + between
        };
        self.magnitude.data.iter().zip(want).map(one).collect()
    }
}

/// True when `got` is within `bound` of `want`; NaN equals NaN and infinities equal themselves alone.
pub fn accepts(got: f64, want: f64, bound: f64) -> bool {
    let near = want.is_finite() && (got - want).abs() <= bound;
    got == want || (got.is_nan() && want.is_nan()) || near
}

/// Compares element by element, each within its own bound.
///
/// # Panics
/// Naming the first difference and `what`.
pub fn assert_close(what: &str, got: &[f64], want: &[f64], bounds: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}: number of elements");
    assert_eq!(bounds.len(), want.len(), "{what}: number of bounds");
    for (i, ((&g, &w), &bound)) in got.iter().zip(want).zip(bounds).enumerate() {
        assert!(
            accepts(g, w, bound),
            "{what}: element {i} is {g:e}, expected {w:e} (difference {:e}, {bound:e} allowed)",
            (g - w).abs()
        );
    }
}
