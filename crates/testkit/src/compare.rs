//! Comparison of results, with bounds derived from the number of roundings.

use crate::Array;
use kiln_core::DType;

/// The unit roundoff of a dtype, half of the distance from 1 to the next number: the largest relative error of one rounding.
pub(crate) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        DType::F64 => 2f64.powi(-53),
        _ => 2f64.powi(-24),
    }
}

/// The smallest normal number of a dtype. Below it the absolute error of a rounding is at most that of this number.
pub(crate) fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-14),
        DType::F64 => f64::MIN_POSITIVE,
        _ => 2f64.powi(-126),
    }
}

/// The rounding error that a result may have: `steps` roundings in a row, each at most half of a unit in the last place
/// of `magnitude`, the sum of the magnitudes of the terms of the result (Higham, Accuracy and Stability of Numerical
/// Algorithms, section 3.1: the relative error of k roundings in a row, in any order, is at most k·u/(1 − k·u)).
#[derive(Clone, Debug)]
pub struct Rounding {
    /// Roundings in a row in the dtype of the arithmetic: f64 for f64, f32 for all others. 0 for exact results.
    pub steps: f64,
    /// Roundings of intermediate results to the tensor's dtype, in addition to that of the result.
    pub stored: f64,
    /// As `steps`, for the oracle: by default the same number; more if the oracle is less accurate than the arithmetic.
    pub oracle: f64,
    /// The sum of the magnitudes of the terms of each result.
    pub magnitude: Array,
}

impl Rounding {
    /// No rounding, for results that are moved, counted or picked.
    pub fn exact(want: &Array) -> Self {
        Rounding::relative(0.0, want)
    }

    /// `steps` roundings relative to the result, for results without terms that cancel.
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

    /// The same with this number of roundings of intermediate results to the tensor's dtype.
    #[must_use]
    pub fn stored(self, stored: f64) -> Self {
        Rounding { stored, ..self }
    }

    /// The same with this number of roundings in a row for the oracle, and for arithmetic in f64 if it is larger than `steps`.
    #[must_use]
    pub fn oracle(self, oracle: f64) -> Self {
        Rounding { oracle, ..self }
    }

    /// The largest error of each result in `dtype`, relative to an oracle's `want`: its own and that of the oracle, which
    /// computes in f64.
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
            // The value that is rounded to the dtype may already have the error `sums`.
            let end = narrow * (want.abs() + sums).max(smallest_normal(dtype));
            let between = self.stored * unit(dtype) * magnitude.max(smallest_normal(dtype));
            sums + end + between
        };
        self.magnitude.data.iter().zip(want).map(one).collect()
    }
}

/// True if `got` is within `bound` of `want`. NaN is accepted for NaN, and an infinity only for itself.
pub fn accepts(got: f64, want: f64, bound: f64) -> bool {
    let near = want.is_finite() && (got - want).abs() <= bound;
    got == want || (got.is_nan() && want.is_nan()) || near
}

/// Asserts that every element is within its own bound of the expected one.
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
