//! Comparison of two backends on one case, in values and gradients.

use crate::compare::unit;
use crate::gradcheck::{leaves, weighted_gradients};
use crate::slopes::weights;
use crate::{Array, Case, Proof, assert_close};
use kiln_core::philox::Key;
use kiln_core::{Backend, DType, Result};

/// The number of draws of random signs by which the terms of a gradient are measured.
const DRAWS: u32 = 4;

/// Runs `case` in f32 on `reference` and on `backend` and compares values, and gradients if the op has them. All elements of a
/// large gradient are compared, for which differences of the oracle would take too long.
///
/// Values are within the case's bound on either side. A gradient is a sum over results of `w·∂y/∂x`, and its rounding is
/// relative to the magnitudes of these terms, however they cancel. With random signs for the seeds `w` the mean square of
/// the sum is the sum of the squares of the terms, and the sum of their magnitudes is at most √n times its root.
///
/// # Panics
/// When the results differ, or either backend returns an error.
pub fn conformance<A: Backend, B: Backend>(reference: &A, backend: &B, case: &impl Case) {
    let name = backend.name();
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let rounding = case.rounding(&inputs, &case.oracle(&inputs));
        let want = case
            .call(reference, &leaves(reference, &inputs, DType::F32)?)?
            .to_f64()?;
        let got = case.call(backend, &leaves(backend, &inputs, DType::F32)?)?.to_f64()?;
        let bounds = rounding
            .bounds(DType::F32, &want)
            .into_iter()
            .map(|b| 2.0 * b)
            .collect::<Vec<_>>();
        assert_close(&format!("{name}: {case:?}"), &got, &want, &bounds);
        if case.proof() == Proof::Forward {
            return Ok(());
        }
        let w = weights(want.len(), 1);
        let want = gradients(reference, case, &inputs, &w)?;
        let got = gradients(backend, case, &inputs, &w)?;
        let terms = terms(reference, case, &inputs, &w)?;
        for (i, ((got, want), terms)) in got.iter().zip(&want).zip(terms).enumerate() {
            let roundings = 4.0 * (rounding.steps + 2.0) + (w.len() as f64).sqrt();
            let bound = 2.0 * roundings * unit(DType::F32) * (terms + case.slope_terms(&inputs));
            let what = format!("{name}: gradient of input {i} of {case:?}");
            assert_close(&what, got, want, &vec![bound; want.len()]);
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{name}: {case:?}: {e}"));
}

/// The gradients of `Σ w·y` in f32.
fn gradients<B: Backend>(backend: &B, case: &impl Case, inputs: &[Array], w: &[f64]) -> Result<Vec<Vec<f64>>> {
    gradients_in(backend, case, inputs, w, DType::F32)
}

/// The gradients of `Σ w·y`.
pub(crate) fn gradients_in<B: Backend>(
    backend: &B,
    case: &impl Case,
    inputs: &[Array],
    w: &[f64],
    dtype: DType,
) -> Result<Vec<Vec<f64>>> {
    let found = weighted_gradients(backend, case, &leaves(backend, inputs, dtype)?, w, false)?;
    found.iter().map(|g| g.to_f64()).collect()
}

/// For each input, about the largest sum of the magnitudes of the terms of one element's gradient.
pub(crate) fn terms<B: Backend>(backend: &B, case: &impl Case, inputs: &[Array], w: &[f64]) -> Result<Vec<f64>> {
    let mut squares: Vec<Vec<f64>> = inputs.iter().map(|x| vec![0.0; x.size()]).collect();
    for draw in 0..DRAWS {
        let key = Key::new(2025, draw, 0);
        let sign = |i: usize| if key.word(i as u64) & 1 == 0 { 1.0 } else { -1.0 };
        let signed: Vec<f64> = w.iter().enumerate().map(|(i, w)| w * sign(i)).collect();
        for (squares, g) in squares.iter_mut().zip(gradients(backend, case, inputs, &signed)?) {
            for (square, g) in squares.iter_mut().zip(g) {
                *square += g * g / f64::from(DRAWS);
            }
        }
    }
    let largest = |squares: Vec<f64>| squares.into_iter().fold(0.0, f64::max);
    let n = w.len() as f64;
    Ok(squares
        .into_iter()
        .map(|squares| (n * largest(squares)).sqrt())
        .collect())
}
