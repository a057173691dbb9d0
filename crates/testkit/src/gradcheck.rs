//! Analytic gradients against central differences, in f64.

use crate::{Array, Case, Tolerance, assert_close};
use kiln_core::philox::{Key, uniform};
use kiln_core::{Backend, DType, Result};
use kiln_nn::{Tensor, grad, no_grad};

const EPS: f64 = 1e-6;

/// Fixed weights in ±(0.5..1.5): summing an op's output with them makes a scalar whose gradient tests every element.
pub(crate) fn weights(len: usize, stream: u32) -> Vec<f64> {
    let key = Key::new(2024, stream, 0);
    (0..len as u64)
        .map(|i| {
            let u = f64::from(uniform(key.word(i)));
            if u < 0.5 { -0.5 - 2.0 * u } else { 2.0 * u - 0.5 }
        })
        .collect()
}

pub(crate) fn leaves<B: Backend>(backend: &B, inputs: &[Array], dtype: DType) -> Result<Vec<Tensor<B>>> {
    inputs
        .iter()
        .map(|a| Ok(Tensor::from_f64(backend, &a.data, &a.shape, dtype)?.requires_grad()))
        .collect()
}

/// The gradients of `Σ w·f(inputs)`, zeros where none flows.
pub(crate) fn gradients<B: Backend, C: Case>(
    backend: &B,
    case: &C,
    inputs: &[Tensor<B>],
    create_graph: bool,
) -> Result<Vec<Tensor<B>>> {
    let y = case.call(backend, inputs)?;
    let seed = Tensor::from_f64(backend, &weights(y.size(), 1), y.shape(), y.dtype())?;
    let refs: Vec<&Tensor<B>> = inputs.iter().collect();
    let found = grad(&y, &refs, Some(&seed), create_graph)?;
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

fn dot<B: Backend>(t: &Tensor<B>, stream: u32) -> Result<f64> {
    let values = t.to_f64()?;
    Ok(values
        .iter()
        .zip(weights(values.len(), stream))
        .map(|(v, w)| v * w)
        .sum())
}

/// Central differences of `f` at every element of every input.
fn numeric(inputs: &[Array], mut f: impl FnMut(&[Array]) -> f64) -> Vec<Vec<f64>> {
    let mut point = inputs.to_vec();
    let mut all = Vec::new();
    for i in 0..inputs.len() {
        let mut slopes = Vec::with_capacity(inputs[i].size());
        for j in 0..inputs[i].size() {
            let x = inputs[i].data[j];
            let h = EPS * x.abs().max(1.0);
            point[i].data[j] = x + h;
            let above = f(&point);
            point[i].data[j] = x - h;
            let below = f(&point);
            point[i].data[j] = x;
            slopes.push((above - below) / (2.0 * h));
        }
        all.push(slopes);
    }
    all
}

/// First gradients against central differences of the op itself.
///
/// # Panics
/// When a gradient is off, or the op returns an error.
pub fn gradcheck<B: Backend, C: Case>(backend: &B, case: &C) {
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let analytic = gradients(backend, case, &leaves(backend, &inputs, DType::F64)?, false)?;
        let slopes = numeric(&inputs, |at| {
            let y = no_grad(|| case.call(backend, &leaves(backend, at, DType::F64)?));
            y.and_then(|y| dot(&y, 1)).unwrap_or_else(|e| panic!("{case:?}: {e}"))
        });
        for (i, (a, n)) in analytic.iter().zip(slopes).enumerate() {
            assert_close(
                &format!("gradient of input {i} of {case:?}"),
                &a.to_f64()?,
                &n,
                Tolerance::NUMERIC,
            );
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}

/// First gradients in f32 against central differences of the oracle: what proves a backend that has no f64.
///
/// # Panics
/// As [`gradcheck`].
pub fn gradcheck_by_oracle<B: Backend, C: Case>(backend: &B, case: &C) {
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let analytic = gradients(backend, case, &leaves(backend, &inputs, DType::F32)?, false)?;
        let slopes = numeric(&inputs, |at| {
            let y = case.oracle(at).data;
            y.iter().zip(weights(y.len(), 1)).map(|(v, w)| v * w).sum()
        });
        for (i, (a, n)) in analytic.iter().zip(slopes).enumerate() {
            assert_close(
                &format!("f32 gradient of input {i} of {case:?}"),
                &a.to_f64()?,
                &n,
                Tolerance::F32_GRADIENT,
            );
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}

/// The gradients of `Σ v·g`, where g are the first gradients and v fixed weights.
fn second<B: Backend, C: Case>(backend: &B, case: &C, inputs: &[Array], dtype: DType) -> Result<Vec<Vec<f64>>> {
    let xs = leaves(backend, inputs, dtype)?;
    let first = gradients(backend, case, &xs, true)?;
    let refs: Vec<&Tensor<B>> = xs.iter().collect();
    let mut second: Vec<Vec<f64>> = inputs.iter().map(|a| vec![0.0; a.size()]).collect();
    for (k, g) in first.iter().enumerate().filter(|(_, g)| g.is_tracked()) {
        let seed = Tensor::from_f64(backend, &weights(g.size(), 7 + k as u32), g.shape(), dtype)?;
        for (sum, part) in second.iter_mut().zip(grad(g, &refs, Some(&seed), true)?) {
            for (s, p) in sum.iter_mut().zip(part.map_or(Ok(Vec::new()), |p| p.to_f64())?) {
                *s += p;
            }
        }
    }
    Ok(second)
}

/// Gradients of gradients in f32 against second differences of the oracle: what proves a backend that has no f64. The
/// first gradients weighed by v are the slope of `L = Σ w·f` along v, so their own gradient is the difference of four
/// values of L. Terms that cancel are as large as the largest result: the absolute part of the tolerance is relative to it.
///
/// # Panics
/// As [`gradcheck`].
pub fn gradgradcheck_by_oracle<B: Backend, C: Case>(backend: &B, case: &C) {
    /// Rounding leaves 1e-8 of L, the third derivative as much: both far below what f32 leaves.
    const STEP: f64 = 1e-4;
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let value = |at: &[Array]| -> f64 {
            let y = case.oracle(at).data;
            y.iter().zip(weights(y.len(), 1)).map(|(v, w)| v * w).sum()
        };
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
        // Steps of both sizes must agree: between them they see a kink of the function, where it has no second derivative.
        let steps = [STEP, STEP / 2.0];
        let mut ends = steps.map(|step| [moved(step), moved(-step)]);
        for (i, got) in second(backend, case, &inputs, DType::F32)?.iter().enumerate() {
            let mut smooth = Vec::with_capacity(got.len());
            let mut want = Vec::with_capacity(got.len());
            for (j, got) in got.iter().enumerate() {
                let mut at = |n: usize| {
                    let h = steps[n] * inputs[i].data[j].abs().max(1.0);
                    let [above, below] = [0, 1].map(|end| {
                        let point = &mut ends[n][end];
                        let x = point[i].data[j];
                        point[i].data[j] = x + h;
                        let above = value(point);
                        point[i].data[j] = x - h;
                        let below = value(point);
                        point[i].data[j] = x;
                        above - below
                    });
                    (above - below) / (4.0 * h * steps[n])
                };
                let [whole, half] = [0, 1].map(&mut at);
                if (whole - half).abs() <= 0.1 * whole.abs().max(1.0) {
                    smooth.push(*got);
                    want.push(whole);
                }
            }
            let largest = want.iter().fold(1.0, |m: f64, w| m.max(w.abs()));
            let Tolerance { rtol, atol } = Tolerance::F32_GRADIENT;
            assert_close(
                &format!("f32 second gradient of input {i} of {case:?}"),
                &smooth,
                &want,
                Tolerance {
                    rtol,
                    atol: atol * largest,
                },
            );
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}

/// Gradients of gradients against central differences of the first gradients.
///
/// # Panics
/// As [`gradcheck`].
pub fn gradgradcheck<B: Backend, C: Case>(backend: &B, case: &C) {
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let second = second(backend, case, &inputs, DType::F64)?;
        let slopes = numeric(&inputs, |at| {
            let sum = || -> Result<f64> {
                let gs = gradients(backend, case, &leaves(backend, at, DType::F64)?, false)?;
                gs.iter().enumerate().map(|(k, g)| dot(g, 7 + k as u32)).sum()
            };
            sum().unwrap_or_else(|e| panic!("{case:?}: {e}"))
        });
        for (i, (s, n)) in second.iter().zip(slopes).enumerate() {
            assert_close(
                &format!("second gradient of input {i} of {case:?}"),
                s,
                &n,
                Tolerance::NUMERIC,
            );
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}
