//! Convolutions that give the moments of their channels to the batch norm behind them.

use half::{bf16, f16};
use kiln_core::ops::{ConvParams, Op, Window};
use kiln_core::{Backend, DType, Float, Result, Shape};
use kiln_nn::layers::{BatchNorm, Conv2d};
use kiln_nn::{Init, Layer, Tensor};

type Sizes = ([usize; 4], usize, usize, usize);

/// Input, output channels, kernel and groups: channels that vectors and tiles divide and not, more blocks of rows than one block joins.
const CASES: [Sizes; 6] = [
    ([2, 1, 1, 3], 5, 1, 1),
    ([2, 5, 6, 3], 4, 3, 1),
    ([3, 9, 8, 16], 24, 3, 1),
    ([2, 8, 7, 32], 64, 3, 2),
    ([1, 11, 12, 40], 136, 1, 1),
    ([46, 12, 12, 8], 72, 1, 1),
];

/// The result of the op, which is that of the convolution in every bit, with the moments of its stored values against those in f64; and
/// values, gradients and running statistics of layers that run so against those that do not.
///
/// # Panics
/// Where a value differs, or an op returns an error.
pub fn convolution_and_batch_norm<B: Backend>(backend: &B) {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        if !backend.supports_dtype(dtype) {
            continue;
        }
        for case in CASES {
            // Values far from zero beside their spread, whose squares have no digits to spare.
            for shift in [0.0, 300.0] {
                let run: fn(&B, Sizes, f64) -> Result<()> = match dtype {
                    DType::F32 => moments::<B, f32>,
                    DType::F64 => moments::<B, f64>,
                    DType::BF16 => moments::<B, bf16>,
                    _ => moments::<B, f16>,
                };
                if backend.supports(Op::ConvMoments, dtype) {
                    run(backend, case, shift).unwrap_or_else(|e| panic!("{dtype} {case:?}: {e}"));
                }
            }
            layers(backend, dtype, case).unwrap_or_else(|e| panic!("{dtype} {case:?}: {e}"));
        }
    }
}

fn values(n: usize, k: f64, shift: f64) -> Vec<f64> {
    (0..n).map(|i| ((i + 1) as f64 * k).sin() + shift).collect()
}

fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-53),
        _ => 2f64.powi(-24),
    }
}

fn read<B: Backend, T: Float>(backend: &B, buffer: &B::Buffer) -> Result<Vec<f64>> {
    Ok(backend.download::<T>(buffer)?.into_iter().map(|v| v.f64()).collect())
}

fn moments<B: Backend, T: Float>(backend: &B, (x, outputs, kernel, groups): Sizes, shift: f64) -> Result<()> {
    let w = [outputs, kernel, kernel, x[3] / groups];
    let window = Window::new([kernel, kernel]);
    let (p, shape) = ConvParams::new("conv2d", &Shape::new(&x)?, &Shape::new(&w)?, &window, groups)?;
    let dtype = T::DTYPE;
    let buffer = |shape: &[usize], k: f64, shift: f64| {
        let values: Vec<T> = values(shape.iter().product(), k, shift)
            .into_iter()
            .map(T::of)
            .collect();
        backend.upload(&values)
    };
    let (x, w) = (buffer(&x, 0.37, shift)?, buffer(&w, 0.91, 0.2)?);
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let (mut y, mut plain) = (backend.alloc(dtype, shape.size())?, backend.alloc(dtype, shape.size())?);
    let mut found = backend.alloc(wide, 2 * outputs)?;
    backend.conv(&p, &x, &w, None, &mut plain)?;
    backend.conv_moments(&p, &x, &w, &mut y, &mut found)?;
    let (y, plain) = (read::<B, T>(backend, &y)?, read::<B, T>(backend, &plain)?);
    assert!(y == plain, "{dtype}: the result is that of the convolution");
    let found = match wide {
        DType::F64 => read::<B, f64>(backend, &found)?,
        _ => read::<B, f32>(backend, &found)?,
    };
    let rows = y.len() / outputs;
    for c in 0..outputs {
        let column = || y.iter().skip(c).step_by(outputs);
        let mean = column().sum::<f64>() / rows as f64;
        let m2 = column().map(|v| (v - mean).powi(2)).sum::<f64>();
        let spread = (m2 / rows as f64).sqrt();
        let of_mean = 100.0 * unit(dtype) * (mean.abs() + spread);
        // What the mean is off by goes into every square.
        let of_m2 = 2000.0 * unit(dtype) * m2 + rows as f64 * of_mean.powi(2);
        let (got_mean, got_m2) = (found[c], found[outputs + c]);
        assert!(
            (got_mean - mean).abs() <= of_mean && (got_m2 - m2).abs() <= of_m2,
            "{dtype} {p:?}, channel {c}: mean {got_mean}, expected {mean}; squares {got_m2}, expected {m2}"
        );
    }
    Ok(())
}

fn layers<B: Backend>(backend: &B, dtype: DType, (x, outputs, kernel, groups): Sizes) -> Result<()> {
    let init = &mut Init::new(backend, 3).dtype(dtype);
    let builder = Conv2d::builder(x[3], outputs, kernel).groups(groups).bias(false);
    let conv = builder.build(init)?;
    let run = |together: bool, relu: bool| -> Result<Vec<Vec<f64>>> {
        let norm = BatchNorm::new(&mut Init::new(backend, 0).dtype(dtype), outputs)?;
        let x = Tensor::from_f64(backend, &values(x.iter().product(), 0.37, 0.1), &x, dtype)?.requires_grad();
        let y = match (together, relu) {
            (true, true) => conv.forward_norm_relu(&norm, &x, None)?,
            (true, false) => conv.forward_norm(&norm, &x)?,
            (false, true) => norm.forward_relu(&conv.forward(&x)?, None)?,
            (false, false) => norm.forward(&conv.forward(&x)?)?,
        };
        let g = Tensor::from_f64(backend, &values(y.size(), 0.53, 0.0), y.shape(), dtype)?;
        let grads = y.backward_with(&g)?;
        let mut found = vec![y.to_f64()?];
        for t in [grads.get(&x), grads.get(&conv.weight)] {
            found.extend(t.map(Tensor::to_f64).transpose()?);
        }
        found.extend(norm.running().map(|(mean, _)| mean.to_f64()).transpose()?);
        found.extend(norm.running().map(|(_, var)| var.to_f64()).transpose()?);
        Ok(found)
    };
    for relu in [false, true] {
        let (one, two) = (run(true, relu)?, run(false, relu)?);
        assert_eq!(one.len(), 5);
        for (i, (one, two)) in one.iter().zip(&two).enumerate() {
            // Statistics that were summed in another order move what was near a rounding's or a ReLU's edge.
            let compared = i == 0 || i > 2 || !relu;
            let largest = two.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let half = match dtype {
                DType::BF16 => 2f64.powi(-7),
                DType::F16 => 2f64.powi(-10),
                _ => 0.0,
            };
            let bound = (half + 4000.0 * unit(dtype)) * (largest + 1.0);
            let at = one.iter().zip(two).position(|(a, b)| (a - b).abs() > bound);
            assert!(
                !compared || (at.is_none() && one.len() == two.len()),
                "{dtype} {x:?} to {outputs}, relu {relu}: result {i} differs at {at:?}"
            );
        }
    }
    Ok(())
}
