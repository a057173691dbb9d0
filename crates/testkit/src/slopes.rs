//! Central differences with bounds of their errors.

use crate::compare::unit;
use crate::{Array, Case};
use kiln_core::DType;
use kiln_core::philox::{Key, uniform};

/// The step of the differences, multiplied by |x| if that is above 1. At 2⁻²⁰ the bound has 1e-6 of the second derivative for
/// curvature, and 1e-10 of the values for rounding.
const STEP: f64 = 1.0 / (1 << 20) as f64;

/// Fixed weights in ±(0.5..1.5): the gradient of an op's output weighted by them tests every element.
pub(crate) fn weights(len: usize, stream: u32) -> Vec<f64> {
    let key = Key::new(2024, stream, 0);
    (0..len as u64)
        .map(|i| {
            let u = f64::from(uniform(key.word(i)));
            if u < 0.5 { -0.5 - 2.0 * u } else { 2.0 * u - 0.5 }
        })
        .collect()
}

/// The derivatives of `L = Σ w·y` with respect to the elements of one input.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slopes {
    /// The derivatives.
    pub(crate) values: Vec<f64>,
    /// The largest error of each.
    errors: Vec<f64>,
    /// The largest sum of the magnitudes of the terms of a derivative, one for each result that depends on the element.
    pub(crate) terms: f64,
    /// The largest number of results that depend on one element.
    count: usize,
    /// Roundings in a row of a result.
    pub(crate) steps: f64,
}

impl Slopes {
    /// The largest distance of gradients in `dtype` from these derivatives: their own error, and the rounding of the
    /// backward pass. Its rules multiply the incoming gradient by at most two values of the forward pass, each with
    /// `steps` roundings and one for the product, which count once for the value and once for the derivative computed
    /// from it; and they add as many products as results depend on an element. All of it is relative to the terms of the
    /// largest gradient of the input, because a rule may add a term common to all elements.
    pub(crate) fn bounds(&self, dtype: DType) -> Vec<f64> {
        let roundings = 4.0 * (self.steps + 2.0) + self.count as f64;
        let rounding = roundings * unit(dtype) * self.terms;
        self.errors.iter().map(|error| error + rounding).collect()
    }
}

/// Central differences of `Σ w·f` for every element of every input; `noise` is the rounding error of each of f's results.
///
/// Errors: where a result is convex or concave, its derivative lies between the difference quotients before and after the
/// point. The central difference is their mean, so its error is at most half of their distance, also at a kink. Elsewhere
/// an error of STEP²/6 times the third derivative, 1e-13 of it, is neglected.
pub(crate) fn slopes(
    inputs: &[Array],
    w: &[f64],
    noise: &[f64],
    mut f: impl FnMut(&[Array]) -> Vec<f64>,
) -> Vec<Slopes> {
    let mut point = inputs.to_vec();
    let here = f(&point);
    let mut all = Vec::new();
    for i in 0..inputs.len() {
        let mut slopes = Slopes::default();
        for j in 0..inputs[i].size() {
            let x = inputs[i].data[j];
            let h = STEP * x.abs().max(1.0);
            point[i].data[j] = x + h;
            let above = f(&point);
            point[i].data[j] = x - h;
            let below = f(&point);
            point[i].data[j] = x;
            let (mut slope, mut bend, mut terms, mut rounding, mut count) = (0.0, 0.0, 0.0, 0.0, 0);
            for (k, w) in w.iter().enumerate() {
                // The derivative of a result that stays the same may be hidden by rounding.
                rounding += w.abs() * (noise[k] + unit(DType::F64) * here[k].abs()) / h;
                if above[k] == here[k] && below[k] == here[k] {
                    continue;
                }
                let rise = (above[k] - below[k]) / (2.0 * h);
                slope += w * rise;
                terms += (w * rise).abs();
                bend += (w * (above[k] - 2.0 * here[k] + below[k]) / (2.0 * h)).abs();
                count += 1;
            }
            // x + h and x − h are rounded, each by half of a unit in the last place of x.
            let moved = 2.0 * unit(DType::F64) * x.abs().max(1.0) / h;
            slopes.values.push(slope);
            slopes.errors.push(bend + rounding + moved * terms);
            slopes.terms = slopes.terms.max(terms);
            slopes.count = slopes.count.max(count);
        }
        all.push(slopes);
    }
    all
}

/// The derivatives of the oracle's `Σ w·y`, with the rounding that the case allows.
pub(crate) fn by_oracle(case: &impl Case, inputs: &[Array]) -> Vec<Slopes> {
    let want = case.oracle(inputs);
    let rounding = case.rounding(inputs, &want);
    let noise = rounding.bounds(DType::F64, &want.data);
    let w = weights(want.size(), 1);
    let mut all = slopes(inputs, &w, &noise, |at| case.oracle(at).data);
    let terms = case.slope_terms(inputs);
    for slopes in &mut all {
        slopes.terms += terms;
        slopes.steps = rounding.steps;
    }
    all
}
