//! Gradients in half precision, within a bound made of the roundings of the backward pass.

use crate::compare::{accepts, smallest_normal, unit};
use crate::conformance::{gradients_in, terms};
use crate::gradcheck::{leaves, seeded};
use crate::slopes::{Slopes, slopes, weights};
use crate::{Array, Case, Reference};
use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;

/// The number of elements of all inputs together above which gradients are compared with `Reference`'s, not with differences.
const NUMERIC_LIMIT: usize = 48;

/// The largest number of a half.
pub(crate) fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        _ => (2.0 - 2f64.powi(-7)) * 2f64.powi(127),
    }
}

/// Gradients in f64 with the most by which those in half precision may miss them.
struct Wanted {
    values: Vec<f64>,
    bounds: Vec<f64>,
}

/// The roundings of a gradient in half precision, each relative to the terms of the largest gradient of the input:
///
/// * those of the arithmetic, which is in f32, as [`Slopes::bounds`] has them;
/// * those to the half itself. A rule stores its result and may store each of the two values by which it multiplies: the two count
///   once for the value and once for the derivative computed from it, and each has the roundings of the case's results.
fn halves(stored: f64) -> f64 {
    4.0 * (stored + 1.0) + 1.0
}

/// Compares first gradients in a half dtype with central differences of the oracle at the rounded inputs, with rounded seeds. Large
/// cases are compared with the gradients of [`Reference`] in f64.
///
/// # Panics
/// When a gradient is beyond its bound, or the op returns an error.
pub fn half_gradcheck<B: Backend, C: Case>(backend: &B, case: &C, dtype: DType) {
    let run = || -> Result<()> {
        let inputs = leaves(backend, &case.inputs(), dtype)?;
        let y = case.call(backend, &inputs)?;
        let seeds = Tensor::from_f64(backend, &weights(y.size(), 1), y.shape(), dtype)?.to_f64()?;
        let got = seeded(backend, &inputs, &y, &seeds, false)?;
        let rounded: Vec<Array> = inputs
            .iter()
            .map(|x| Ok(Array::new(x.shape().dims(), x.to_f64()?)))
            .collect::<Result<_>>()?;
        let wanted = match rounded.iter().map(Array::size).sum::<usize>() > NUMERIC_LIMIT {
            true => by_reference(case, &rounded, &seeds, dtype)?,
            false => by_differences(case, &rounded, &seeds, dtype),
        };
        for (i, (got, want)) in got.iter().zip(wanted).enumerate() {
            let got = got.to_f64()?;
            assert_eq!(
                got.len(),
                want.values.len(),
                "{dtype} gradient of input {i} of {case:?}"
            );
            for (j, (got, (want, bound))) in got.iter().zip(want.values.iter().zip(&want.bounds)).enumerate() {
                // The rounded input may lie where there is no derivative, and a gradient beyond the largest number may be infinite.
                if !want.is_finite() || !bound.is_finite() || want.abs() + bound > largest(dtype) {
                    continue;
                }
                assert!(
                    accepts(*got, *want, *bound),
                    "{dtype} gradient of input {i} of {case:?}: element {j} is {got:e}, expected {want:e} (difference {:e}, \
                     {bound:e} allowed)",
                    (got - want).abs()
                );
            }
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}

/// The inputs, each larger or smaller by two roundings to `dtype`. An op may round its parameters, such as the ends of a clamp, to the
/// half of its input: a derivative is then that of a point nearby, which matters next to a kink.
fn beside(inputs: &[Array], dtype: DType) -> [Vec<Array>; 2] {
    [1.0, -1.0].map(|sign| {
        inputs
            .iter()
            .map(|x| x.map(|v| v + sign * 2.0 * unit(dtype) * v.abs()))
            .collect()
    })
}

/// Adds to the bounds by how much derivatives beside the inputs differ.
fn widen(bounds: &mut [f64], above: &[f64], below: &[f64]) {
    for (bound, (above, below)) in bounds.iter_mut().zip(above.iter().zip(below)) {
        *bound += (above - below).abs();
    }
}

fn by_differences(case: &impl Case, inputs: &[Array], seeds: &[f64], dtype: DType) -> Vec<Wanted> {
    let want = case.oracle(inputs);
    let rounding = case.rounding(inputs, &want);
    let noise = rounding.bounds(DType::F64, &want.data);
    let at = |inputs: &[Array]| slopes(inputs, seeds, &noise, |at| case.oracle(at).data);
    let [above, below] = beside(inputs, dtype).map(|inputs| at(&inputs));
    let terms = case.slope_terms(inputs);
    let wanted = |(mut slopes, (above, below)): (Slopes, (Slopes, Slopes))| {
        slopes.terms += terms;
        slopes.steps = rounding.steps;
        let rounded = halves(rounding.stored) * unit(dtype) * slopes.terms.max(smallest_normal(dtype));
        let mut bounds = slopes.bounds(DType::F32);
        bounds.iter_mut().for_each(|bound| *bound += rounded);
        widen(&mut bounds, &above.values, &below.values);
        Wanted {
            values: slopes.values,
            bounds,
        }
    };
    at(inputs)
        .into_iter()
        .zip(above.into_iter().zip(below))
        .map(wanted)
        .collect()
}

fn by_reference(case: &impl Case, inputs: &[Array], seeds: &[f64], dtype: DType) -> Result<Vec<Wanted>> {
    let rounding = case.rounding(inputs, &case.oracle(inputs));
    let at = |inputs: &[Array]| gradients_in(&Reference, case, inputs, seeds, DType::F64);
    let [above, below] = beside(inputs, dtype).map(|inputs| at(&inputs));
    let terms = terms(&Reference, case, inputs, seeds)?;
    let (above, below) = (above?, below?);
    let mut all = Vec::new();
    for (i, (values, terms)) in at(inputs)?.into_iter().zip(terms).enumerate() {
        let terms = terms + case.slope_terms(inputs);
        let roundings = 4.0 * (rounding.steps + 2.0) + (seeds.len() as f64).sqrt();
        let rounded = halves(rounding.stored) * unit(dtype) * terms.max(smallest_normal(dtype));
        let bound = 2.0 * roundings * unit(DType::F32) * terms + rounded;
        let mut bounds = vec![bound; values.len()];
        widen(&mut bounds, &above[i], &below[i]);
        all.push(Wanted { values, bounds });
    }
    Ok(all)
}
