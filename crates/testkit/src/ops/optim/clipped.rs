//! Clipping of gradients by their norm.

use crate::assert_close;
use kiln_core::{Backend, DType, Result};
use kiln_nn::{Gradients, Param, Tensor};

/// `clip_norm` of two hundred gradients, some of them empty, and of a few large ones, against the formula in f64: where the norm is above
/// the limit, where it is below, and without a limit. A limit of 0 gives zeros.
///
/// # Panics
/// Where a value differs, or an op returns an error.
pub fn clipped<B: Backend>(backend: &B) {
    let many: Vec<usize> = (0..200).map(|i| (i * 7) % 19).collect();
    for sizes in [many, vec![4096, 1, 9001], vec![3]] {
        for dtypes in [
            &[DType::F32][..],
            &[DType::BF16],
            &[DType::F16],
            &[DType::F64],
            &[DType::F32, DType::BF16],
        ] {
            if dtypes.iter().all(|&d| backend.supports_dtype(d)) {
                for limit in [0.5, 0.0, 1e6, f64::INFINITY] {
                    clip(backend, &sizes, dtypes, limit).unwrap_or_else(|e| panic!("{dtypes:?} {limit}: {e}"));
                }
            }
        }
    }
}

fn clip<B: Backend>(backend: &B, sizes: &[usize], dtypes: &[DType], limit: f64) -> Result<()> {
    let (mut params, mut grads) = (Vec::new(), Gradients::default());
    let mut before = Vec::new();
    for (i, &n) in sizes.iter().enumerate() {
        let dtype = dtypes[i % dtypes.len()];
        let values: Vec<f64> = (0..n).map(|j| ((i * 31 + j) as f64 * 0.7).sin()).collect();
        let param = Param::new(Tensor::zeros(backend, &[n], dtype)?);
        let grad = Tensor::from_f64(backend, &values, &[n], dtype)?;
        before.push(grad.to_f64()?);
        grads.insert(&param, grad)?;
        params.push(param);
    }
    let squares = before.iter().flatten().map(|g| g * g).sum::<f64>();
    let norm = squares.sqrt();
    let factor = (limit / (norm + 1e-6)).min(1.0);
    let n = sizes.iter().sum::<usize>() as f64;
    // Every square is added at most once for each element, by sums in f32 unless all is f64; the root halves the error.
    let unit = if dtypes == [DType::F64] {
        2f64.powi(-53)
    } else {
        2f64.powi(-24)
    };
    let relative = (n / 2.0 + 8.0) * unit;
    let got = grads.clip_norm(&params, limit)?.to_f64()?;
    assert_close(&format!("norm of {dtypes:?}"), &got, &[norm], &[relative * norm]);
    for (i, (param, before)) in params.iter().zip(&before).enumerate() {
        let rounding = match dtypes[i % dtypes.len()] {
            DType::BF16 => 2f64.powi(-7),
            DType::F16 => 2f64.powi(-10),
            _ => 2.0 * unit,
        };
        let want: Vec<f64> = before.iter().map(|g| g * factor).collect();
        let bounds: Vec<f64> = want.iter().map(|w| w.abs() * (relative + rounding) + 1e-7).collect();
        let Some(grad) = grads.get(param) else {
            panic!("a gradient is gone")
        };
        assert_close(&format!("{dtypes:?} by {limit}"), &grad.to_f64()?, &want, &bounds);
    }
    Ok(())
}
