//! Analytic gradients compared with central differences, in f64 and f32.

use crate::compare::unit;
use crate::slopes::{by_oracle, slopes, weights};
use crate::{Array, Case, assert_close};
use kiln_core::{Backend, DType, Result};
use kiln_nn::{Tensor, grad, no_grad};

/// The step of second differences. f64's unit roundoff is divided by its square and the fourth derivative multiplied by it: errors of
/// 1e-9 and 6e-8.
pub(crate) const SECOND_STEP: f64 = 1.0 / (1 << 12) as f64;

pub(crate) fn leaves<B: Backend>(backend: &B, inputs: &[Array], dtype: DType) -> Result<Vec<Tensor<B>>> {
    inputs
        .iter()
        .map(|a| Ok(Tensor::from_f64(backend, &a.data, &a.shape, dtype)?.requires_grad()))
        .collect()
}

/// The gradients of `Σ w·f(inputs)` with fixed weights; zeros for inputs that have none.
pub(crate) fn gradients<B: Backend, C: Case>(
    backend: &B,
    case: &C,
    inputs: &[Tensor<B>],
    create_graph: bool,
) -> Result<Vec<Tensor<B>>> {
    let y = case.call(backend, inputs)?;
    seeded(backend, inputs, &y, &weights(y.size(), 1), create_graph)
}

/// As [`gradients`], with given weights.
pub(crate) fn weighted_gradients<B: Backend, C: Case>(
    backend: &B,
    case: &C,
    inputs: &[Tensor<B>],
    w: &[f64],
    create_graph: bool,
) -> Result<Vec<Tensor<B>>> {
    seeded(backend, inputs, &case.call(backend, inputs)?, w, create_graph)
}

/// The gradients of `Σ w·y`; zeros for inputs that have none.
pub(crate) fn seeded<B: Backend>(
    backend: &B,
    inputs: &[Tensor<B>],
    y: &Tensor<B>,
    w: &[f64],
    create_graph: bool,
) -> Result<Vec<Tensor<B>>> {
    let seed = Tensor::from_f64(backend, w, y.shape(), y.dtype())?;
    let refs: Vec<&Tensor<B>> = inputs.iter().collect();
    let found = grad(y, &refs, Some(&seed), create_graph)?;
    found
        .into_iter()
        .zip(inputs)
        .map(|(g, x)| {
            let g = match g {
                Some(g) => g,
                None => x.zeros_like()?,
            };
            assert_eq!(g.shape(), x.shape(), "gradient shape");
            assert_eq!(g.dtype(), x.dtype(), "gradient dtype");
            Ok(g)
        })
        .collect()
}

/// Compares first gradients in f64 with central differences of the op itself.
///
/// # Panics
/// When a gradient is beyond its bound, or the op returns an error.
pub fn gradcheck<B: Backend, C: Case>(backend: &B, case: &C) {
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let analytic = gradients(backend, case, &leaves(backend, &inputs, DType::F64)?, false)?;
        let want = case.oracle(&inputs);
        let rounding = case.rounding(&inputs, &want);
        let noise = rounding.bounds(DType::F64, &want.data);
        let found = slopes(&inputs, &weights(want.size(), 1), &noise, |at| {
            let y = no_grad(|| case.call(backend, &leaves(backend, at, DType::F64)?)?.to_f64());
            y.unwrap_or_else(|e| panic!("{case:?}: {e}"))
        });
        for (i, (a, mut n)) in analytic.iter().zip(found).enumerate() {
            n.steps = rounding.steps;
            n.terms += case.slope_terms(&inputs);
            let what = format!("gradient of input {i} of {case:?}");
            assert_close(&what, &a.to_f64()?, &n.values, &n.bounds(DType::F64));
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}

/// Compares first gradients in f32 with central differences of the oracle, which also works for a backend without f64.
///
/// # Panics
/// As [`gradcheck`].
pub fn gradcheck_by_oracle<B: Backend, C: Case>(backend: &B, case: &C) {
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let analytic = gradients(backend, case, &leaves(backend, &inputs, DType::F32)?, false)?;
        for (i, (a, n)) in analytic.iter().zip(by_oracle(case, &inputs)).enumerate() {
            let what = format!("f32 gradient of input {i} of {case:?}");
            assert_close(&what, &a.to_f64()?, &n.values, &n.bounds(DType::F32));
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}

/// The gradients of `Σ v·g`, where g are the first gradients and v fixed weights; and the largest magnitude of g.
fn second<B: Backend, C: Case>(backend: &B, case: &C, inputs: &[Array], dtype: DType) -> Result<(Vec<Vec<f64>>, f64)> {
    let xs = leaves(backend, inputs, dtype)?;
    let first = gradients(backend, case, &xs, true)?;
    let refs: Vec<&Tensor<B>> = xs.iter().collect();
    let mut second: Vec<Vec<f64>> = inputs.iter().map(|a| vec![0.0; a.size()]).collect();
    let mut largest: f64 = 0.0;
    for (k, g) in first.iter().enumerate() {
        largest = g.to_f64()?.iter().fold(largest, |m, g| m.max(g.abs()));
        if !g.is_tracked() {
            continue;
        }
        let seed = Tensor::from_f64(backend, &weights(g.size(), 7 + k as u32), g.shape(), dtype)?;
        for (sum, part) in second.iter_mut().zip(grad(g, &refs, Some(&seed), true)?) {
            for (s, p) in sum.iter_mut().zip(part.map_or(Ok(Vec::new()), |p| p.to_f64())?) {
                *s += p;
            }
        }
    }
    Ok((second, largest))
}

/// Compares gradients of gradients in f32 with second differences of the oracle, which also works for a backend without f64.
/// The sum of the first gradients weighted by v is the derivative of `L = Σ w·f` along v, so its gradient is approximated by a
/// difference of four values of L.
///
/// The bound has three parts. The truncation error falls with the square of the step, so at half the step it is a third
/// of the difference between the two approximations. The rounding error of the four values is divided by the steps. The
/// rounding error of the gradient itself: eight values of the forward pass with their roundings enter a product of two
/// derivatives, and such products are added for each result and each element that v weights; it is relative to the
/// largest of the first and second derivatives, whose terms are both in the sum over v.
///
/// # Panics
/// As [`gradcheck`].
pub fn gradgradcheck_by_oracle<B: Backend, C: Case>(backend: &B, case: &C) {
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let here = case.oracle(&inputs);
        let rounding = case.rounding(&inputs, &here);
        let noise = rounding.bounds(DType::F64, &here.data);
        let w = weights(here.size(), 1);
        let along: Vec<Vec<f64>> = inputs
            .iter()
            .enumerate()
            .map(|(k, x)| weights(x.size(), 7 + k as u32))
            .collect();
        let moved = |step: f64| -> Vec<Array> {
            let pairs = inputs.iter().zip(&along);
            let each = |(x, v): (&Array, &Vec<f64>)| {
                let data = x.data.iter().zip(v).map(|(x, v)| x + step * v).collect();
                Array::new(&x.shape, data)
            };
            pairs.map(each).collect()
        };
        // Approximations with both steps must agree to a hundredth, which they do at a kink by rare chance alone; if not, the function has a
        // kink nearby, and the element is skipped.
        let steps = [SECOND_STEP, SECOND_STEP / 2.0];
        let mut ends = steps.map(|step| [moved(step), moved(-step)]);
        let (found, first) = second(backend, case, &inputs, DType::F32)?;
        let elements = here.size() + inputs.iter().map(Array::size).sum::<usize>();
        let roundings = 8.0 * (rounding.steps + 2.0) + elements as f64;
        for (i, got) in found.iter().enumerate() {
            let (mut smooth, mut want, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
            let mut largest: f64 = 0.0;
            for (j, got) in got.iter().enumerate() {
                // The difference quotient, the sum of the magnitudes of its terms, and its rounding error.
                let mut at = |n: usize| {
                    let h = steps[n] * inputs[i].data[j].abs().max(1.0);
                    let [above, below] = [0, 1].map(|end| {
                        let point = &mut ends[n][end];
                        let x = point[i].data[j];
                        point[i].data[j] = x + h;
                        let above = case.oracle(point).data;
                        point[i].data[j] = x - h;
                        let below = case.oracle(point).data;
                        point[i].data[j] = x;
                        above.into_iter().zip(below).map(|(a, b)| a - b).collect::<Vec<f64>>()
                    });
                    let (mut sum, mut terms, mut error) = (0.0, 0.0, 0.0);
                    for (k, w) in w.iter().enumerate() {
                        let term = w * (above[k] - below[k]) / (4.0 * h * steps[n]);
                        sum += term;
                        terms += term.abs();
                        let one = noise[k] + unit(DType::F64) * here.data[k].abs();
                        error += w.abs() * one / (h * steps[n]);
                    }
                    (sum, terms, error)
                };
                let [whole, half] = [0, 1].map(&mut at);
                let apart = (whole.0 - half.0).abs();
                if apart <= 0.01 * whole.0.abs().max(1.0) {
                    smooth.push(*got);
                    want.push(half.0);
                    bounds.push(apart + half.2);
                    largest = largest.max(half.1);
                }
            }
            let terms = largest + first + case.slope_terms(&inputs);
            let rounding = roundings * unit(DType::F32) * terms;
            bounds.iter_mut().for_each(|bound| *bound += rounding);
            let what = format!("f32 second gradient of input {i} of {case:?}");
            assert_close(&what, &smooth, &want, &bounds);
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}

/// Compares gradients of gradients in f64 with central differences of the first gradients, whose rounding error is part of the
/// bound; see [`gradgradcheck_by_oracle`].
///
/// # Panics
/// As [`gradcheck`].
pub fn gradgradcheck<B: Backend, C: Case>(backend: &B, case: &C) {
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let (second, first) = second(backend, case, &inputs, DType::F64)?;
        let want = case.oracle(&inputs);
        let steps = case.rounding(&inputs, &want).steps;
        let w: Vec<f64> = inputs
            .iter()
            .enumerate()
            .flat_map(|(k, x)| weights(x.size(), 7 + k as u32))
            .collect();
        let terms = first + case.slope_terms(&inputs);
        let roundings = 4.0 * (steps + 2.0) + want.size() as f64;
        let noise = vec![roundings * unit(DType::F64) * terms; w.len()];
        let found = slopes(&inputs, &w, &noise, |at| {
            let gradients = || -> Result<Vec<f64>> {
                let gs = gradients(backend, case, &leaves(backend, at, DType::F64)?, false)?;
                let each: Vec<Vec<f64>> = gs.iter().map(Tensor::to_f64).collect::<Result<_>>()?;
                Ok(each.concat())
            };
            gradients().unwrap_or_else(|e| panic!("{case:?}: {e}"))
        });
        for (i, (s, mut n)) in second.iter().zip(found).enumerate() {
            n.steps = 2.0 * steps;
            n.terms += terms;
            let what = format!("second gradient of input {i} of {case:?}");
            assert_close(&what, s, &n.values, &n.bounds(DType::F64));
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}
