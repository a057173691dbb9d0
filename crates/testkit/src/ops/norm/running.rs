//! The running statistics of batch norm.

use crate::assert_close;
use kiln_core::{Backend, DType, Result};
use kiln_nn::layers::BatchNorm;
use kiln_nn::module::Value;
use kiln_nn::{Init, Layer, Module, Tensor};

/// Running statistics of the layer over three batches, the second of them empty, against the formula in f64; and the result of the layer
/// against that of the op without statistics.
///
/// # Panics
/// Where a value differs, or an op returns an error.
pub fn running_statistics<B: Backend>(backend: &B) {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        if !backend.supports_dtype(dtype) {
            continue;
        }
        for (shape, momentum) in [
            (&[2usize, 1][..], 0.1),
            (&[3, 5], 0.0),
            (&[2, 3, 3, 8], 1.0),
            (&[70, 33], 0.1),
            (&[30, 5, 4, 16], 0.3),
        ] {
            follows(backend, dtype, shape, momentum).unwrap_or_else(|e| panic!("{dtype} {shape:?}: {e}"));
        }
    }
}

fn follows<B: Backend>(backend: &B, dtype: DType, shape: &[usize], momentum: f64) -> Result<()> {
    let (c, n) = (shape[shape.len() - 1], shape.iter().product::<usize>());
    let rows = n / c;
    let mut init = Init::new(backend, 0).dtype(dtype);
    let layer = BatchNorm::builder(c).momentum(momentum).build(&mut init)?;
    let unit = if dtype == DType::F64 {
        2f64.powi(-53)
    } else {
        2f64.powi(-24)
    };
    // The statistics, and the bounds of their errors: a sum of `rows` terms in each batch, and a few products.
    let (mut mean, mut var) = (vec![0.0; c], vec![1.0; c]);
    let (mut mean_bound, mut var_bound) = (vec![0.0; c], vec![0.0; c]);
    let steps = (rows + 12) as f64 * unit;
    for batch in 0..3 {
        if batch == 1 {
            layer.forward(&Tensor::zeros(backend, &[&[0], &shape[1..]].concat(), dtype)?)?;
            continue;
        }
        let values: Vec<f64> = (0..n).map(|i| ((i * 7 + batch) as f64 * 0.37).sin() + 0.5).collect();
        let x = Tensor::from_f64(backend, &values, shape, dtype)?;
        let y = layer.forward(&x)?;
        let plain = x.batch_norm(layer.weight.as_deref(), layer.bias.as_deref(), 1e-5)?.0;
        assert_eq!(y.to_f64()?, plain.to_f64()?, "{dtype} {shape:?}");
        let stored = x.to_f64()?;
        for k in 0..c {
            let column = || stored.iter().skip(k).step_by(c);
            let m = column().sum::<f64>() / rows as f64;
            let v = column().map(|x| (x - m).powi(2)).sum::<f64>() / (rows - 1) as f64;
            let size = column().map(|x| x.abs()).sum::<f64>() / rows as f64;
            let square = column().map(|x| x * x).sum::<f64>() / (rows - 1) as f64;
            mean[k] = (1.0 - momentum) * mean[k] + momentum * m;
            var[k] = (1.0 - momentum) * var[k] + momentum * v;
            mean_bound[k] += steps * size + 4.0 * unit * mean[k].abs();
            var_bound[k] += steps * square + 4.0 * unit * var[k];
        }
    }
    let Some((got_mean, got_var)) = layer.running() else {
        panic!("the layer has running statistics")
    };
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    assert_eq!([got_mean.dtype(), got_var.dtype()], [wide; 2]);
    assert_close(
        &format!("{dtype} {shape:?} mean"),
        &got_mean.to_f64()?,
        &mean,
        &mean_bound,
    );
    assert_close(
        &format!("{dtype} {shape:?} variance"),
        &got_var.to_f64()?,
        &var,
        &var_bound,
    );
    let state = layer.state_dict();
    let Some(Value::Int(batches)) = state.get("num_batches_tracked") else {
        panic!("the layer counts its batches")
    };
    assert_eq!(batches.to_vec::<i32>()?, [3]);
    Ok(())
}
