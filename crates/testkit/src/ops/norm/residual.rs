//! Batch norm with what stands behind it in residual networks, as one op, against separate ops.

use kiln_core::{Backend, DType, Result};
use kiln_nn::autograd::grad;
use kiln_nn::layers::{BatchNorm, MaxPool2d, Relu};
use kiln_nn::{Init, Layer, Module, Sequential, Tensor, Window};

/// Values and gradients of a batch norm with a ReLU behind it, and with a residual that is added before, in training and in evaluation,
/// whose result is used once, twice or three times, or pooled. They are those of separate ops in every bit, but for halves with a
/// residual, whose sum is rounded once less.
///
/// # Panics
/// Where a value differs, or an op returns an error.
pub fn batch_norm_and_relu<B: Backend>(backend: &B) {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        if !backend.supports_dtype(dtype) {
            continue;
        }
        for shape in [[2, 1, 1, 1], [3, 2, 2, 5], [2, 4, 4, 8], [9, 8, 2, 33], [40, 6, 4, 16]] {
            for case in 0..32 {
                let case = Case {
                    residual: case & 1 == 1,
                    training: case & 2 == 2,
                    uses: 1 + (case >> 2 & 3),
                    scale: if case & 16 == 16 { least(dtype) } else { 1.0 },
                };
                same(backend, dtype, &shape, &case).unwrap_or_else(|e| panic!("{dtype} {shape:?} {case:?}: {e}"));
            }
        }
        sequence(backend, dtype).unwrap_or_else(|e| panic!("{dtype}: {e}"));
    }
    if backend.supports_dtype(DType::F64) {
        for residual in [false, true] {
            twice(backend, residual).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

#[derive(Debug)]
struct Case {
    residual: bool,
    training: bool,
    /// How often the result is used; with 4 it is pooled.
    uses: usize,
    /// The scale of every channel.
    scale: f64,
}

/// A scale with which many results of a half are rounded to zero.
fn least(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-23),
        DType::BF16 => 2f64.powi(-132),
        _ => -0.5,
    }
}

fn values<B: Backend>(backend: &B, shape: &[usize], dtype: DType, k: f64) -> Result<Tensor<B>> {
    let n = shape.iter().product::<usize>();
    let values: Vec<f64> = (0..n).map(|i| ((i + 1) as f64 * k).sin() * 1.5 + 0.1).collect();
    Tensor::from_f64(backend, &values, shape, dtype)
}

fn layer<B: Backend>(backend: &B, channels: usize, dtype: DType) -> Result<BatchNorm<B>> {
    BatchNorm::new(&mut Init::new(backend, 0).dtype(dtype), channels)
}

/// The results of the one op and of separate ops: value, gradients of x, residual, scale and shift, running mean.
fn same<B: Backend>(backend: &B, dtype: DType, shape: &[usize; 4], case: &Case) -> Result<()> {
    let x = values(backend, shape, dtype, 0.37)?;
    let r = values(backend, shape, dtype, 0.91)?;
    let run = |fused: bool| -> Result<Vec<Vec<f64>>> {
        let mut norm = layer(backend, shape[3], dtype)?;
        if !case.training {
            norm.eval();
        }
        if let Some(weight) = &mut norm.weight {
            weight.assign(&Tensor::full(backend, &[shape[3]], weight.dtype(), case.scale)?)?;
        }
        let (x, r) = (x.requires_grad(), r.requires_grad());
        let residual = case.residual.then_some(&r);
        let y = match (fused, residual) {
            (true, _) => norm.forward_relu(&x, residual)?,
            (false, Some(r)) => norm.forward(&x)?.add(r)?.relu()?,
            (false, None) => norm.forward(&x)?.relu()?,
        };
        let loss = match case.uses {
            4 => y
                .max_pool(&Window::new([1, 2]).padding([0, 1]), false)?
                .sum(&[], false)?,
            uses => {
                let mut loss = Tensor::zeros(backend, &[], dtype)?;
                for i in 0..uses {
                    let g = values(backend, shape, dtype, 0.53 + 0.2 * i as f64)?;
                    loss = loss.add(&y.mul(&g)?.sum(&[], false)?)?;
                }
                loss
            }
        };
        let grads = loss.backward()?;
        let mut found = vec![y.to_f64()?];
        for t in [Some(&x), residual] {
            found.extend(t.and_then(|t| grads.get(t)).map(Tensor::to_f64).transpose()?);
        }
        for p in [&norm.weight, &norm.bias].into_iter().flatten() {
            found.extend(grads.get(p).map(Tensor::to_f64).transpose()?);
        }
        found.extend(norm.running().map(|(mean, _)| mean.to_f64()).transpose()?);
        Ok(found)
    };
    let (one, apart) = (run(true)?, run(false)?);
    assert_eq!(one.len(), 5 + usize::from(case.residual));
    // A sum that was rounded once less may lie on the other side of zero, where the gradient is another.
    let rounding = match dtype {
        DType::BF16 if case.residual => 2f64.powi(-8),
        DType::F16 if case.residual => 2f64.powi(-11),
        _ => 0.0,
    };
    let compared = if rounding > 0.0 { 1 } else { one.len() };
    for (i, (one, apart)) in one.iter().zip(&apart).take(compared).enumerate() {
        let differs = |(a, b): (&f64, &f64)| (a - b).abs() > rounding * (8.0 + b.abs());
        let at = one.iter().zip(apart).position(differs);
        assert!(
            at.is_none() && one.len() == apart.len(),
            "{dtype} {shape:?} {case:?}: result {i} differs at {at:?}"
        );
    }
    Ok(())
}

/// A sequence runs the two layers as one op: values, gradients and parameter names are those of its layers one by one.
fn sequence<B: Backend>(backend: &B, dtype: DType) -> Result<()> {
    let net = || -> Result<Sequential<B>> {
        let norm = layer(backend, 6, dtype)?;
        Ok(Sequential::new()
            .push(norm)
            .push(Relu)
            .push(MaxPool2d::new(2))
            .push(Relu))
    };
    let (net, apart) = (net()?, net()?);
    let x = values(backend, &[3, 4, 6, 6], dtype, 0.61)?.requires_grad();
    let y = net.forward(&x)?;
    let steps = apart.iter().try_fold(x.clone(), |x, (_, layer)| layer.forward(&x))?;
    assert_eq!(y.to_f64()?, steps.to_f64()?, "{dtype}");
    let [got, want] = [y, steps].map(|y| y.sum(&[], false)?.backward()?.get(&x).map(Tensor::to_f64).transpose());
    assert_eq!(got?, want?, "{dtype}");
    let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.weight", "0.bias"]);
    Ok(())
}

/// Gradients of gradients of the op are those of separate ops.
fn twice<B: Backend>(backend: &B, residual: bool) -> Result<()> {
    let (x, r) = (
        values(backend, &[5, 3], DType::F64, 0.7)?,
        values(backend, &[5, 3], DType::F64, 1.9)?,
    );
    let run = |fused: bool| -> Result<Vec<Vec<f64>>> {
        let norm = layer(backend, 3, DType::F64)?;
        let (x, r) = (x.requires_grad(), r.requires_grad());
        let inputs = if residual { vec![&x, &r] } else { vec![&x] };
        let y = match (fused, residual) {
            (true, _) => norm.forward_relu(&x, residual.then_some(&r))?,
            (false, true) => norm.forward(&x)?.add(&r)?.relu()?,
            (false, false) => norm.forward(&x)?.relu()?,
        };
        let first = grad(&y.square()?.sum(&[], false)?, &inputs, None, true)?;
        let mut all = Vec::new();
        for g in first.iter().flatten() {
            all.push(g.to_f64()?);
            for second in grad(&g.square()?.sum(&[], false)?, &inputs, None, true)? {
                all.extend(second.map(|s| s.to_f64()).transpose()?);
            }
        }
        Ok(all)
    };
    let (one, apart) = (run(true)?, run(false)?);
    assert_eq!(one.len(), if residual { 6 } else { 2 });
    for (one, apart) in one.iter().flatten().zip(apart.iter().flatten()) {
        assert!(
            (one - apart).abs() <= 1e-9 * (1.0 + apart.abs()),
            "{one}, expected {apart}"
        );
    }
    Ok(())
}
