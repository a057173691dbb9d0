//! Data gradients of convolutions that give the sums of the batch norm before them.

use half::{bf16, f16};
use kiln_core::ops::{
    Activation, BatchNormGrads, BatchNormInputs, BatchNormParams, ConvNormGrads, ConvParams, Op, Window,
};
use kiln_core::{Backend, DType, Float, Result, Shape};
use kiln_nn::autograd::grad;
use kiln_nn::layers::{BatchNorm, Conv2d};
use kiln_nn::{Init, Layer, Tensor};

/// Input, output channels, kernel, stride and groups.
type Sizes = ([usize; 4], usize, usize, usize, usize);

/// Channels that vectors and tiles divide and not, strides with positions that no window reads, more blocks of rows than one block joins.
const CASES: [Sizes; 7] = [
    ([2, 1, 2, 3], 5, 1, 1, 1),
    ([2, 5, 6, 3], 4, 3, 1, 1),
    ([3, 9, 8, 16], 24, 3, 2, 1),
    ([2, 8, 7, 32], 64, 3, 1, 2),
    ([1, 11, 12, 136], 40, 1, 1, 1),
    ([1, 7, 9, 72], 32, 1, 2, 1),
    ([46, 12, 12, 8], 8, 1, 1, 1),
];

/// The op against the two ops that it stands for, `d` in every bit, the sums against those in f64; and gradients of layers whose backward
/// pass runs so against those of a pass that does not.
///
/// # Panics
/// Where a value differs, or an op returns an error.
pub fn batch_norm_and_convolution<B: Backend>(backend: &B) {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        if !backend.supports_dtype(dtype) {
            continue;
        }
        for case in CASES {
            for behind in 0..12 {
                let behind = Behind {
                    relu: behind & 1 == 1,
                    y: behind & 3 == 3,
                    more: behind & 4 == 4,
                    affine: behind < 8,
                };
                let run: fn(&B, Sizes, Behind) -> Result<()> = match dtype {
                    DType::F32 => sums::<B, f32>,
                    DType::F64 => sums::<B, f64>,
                    DType::BF16 => sums::<B, bf16>,
                    _ => sums::<B, f16>,
                };
                if backend.supports(Op::ConvNormGrad, dtype) {
                    run(backend, case, behind).unwrap_or_else(|e| panic!("{dtype} {case:?} {behind:?}: {e}"));
                }
            }
        }
        for uses in USES {
            for case in [CASES[1], CASES[2], CASES[4]] {
                layers(backend, dtype, case, uses).unwrap_or_else(|e| panic!("{dtype} {case:?} {uses:?}: {e}"));
            }
        }
    }
}

/// The parts of a case: a ReLU behind the norm, its result, and a second term of the gradient.
#[derive(Clone, Copy, Debug)]
struct Behind {
    relu: bool,
    /// True if the result is given.
    y: bool,
    more: bool,
    affine: bool,
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

fn half_unit(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 0.0,
    }
}

fn read<B: Backend, T: Float>(backend: &B, buffer: &B::Buffer) -> Result<Vec<f64>> {
    Ok(backend.download::<T>(buffer)?.into_iter().map(|v| v.f64()).collect())
}

fn read_wide<B: Backend>(backend: &B, dtype: DType, buffer: &B::Buffer) -> Result<Vec<f64>> {
    match dtype {
        DType::F64 => read::<B, f64>(backend, buffer),
        _ => read::<B, f32>(backend, buffer),
    }
}

fn upload<B: Backend, T: Float>(backend: &B, values: &[f64]) -> Result<B::Buffer> {
    backend.upload(&values.iter().map(|&v| T::of(v)).collect::<Vec<T>>())
}

fn upload_wide<B: Backend>(backend: &B, dtype: DType, values: &[f64]) -> Result<B::Buffer> {
    match dtype {
        DType::F64 => upload::<B, f64>(backend, values),
        _ => upload::<B, f32>(backend, values),
    }
}

fn sums<B: Backend, T: Float>(
    backend: &B,
    (x_shape, outputs, kernel, stride, groups): Sizes,
    behind: Behind,
) -> Result<()> {
    let (dtype, channels) = (T::DTYPE, x_shape[3]);
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let w = [outputs, kernel, kernel, channels / groups];
    let window = Window::new([kernel, kernel]).stride([stride, stride]);
    let (mut p, y_shape) = ConvParams::new("conv2d", &Shape::new(&x_shape)?, &Shape::new(&w)?, &window, groups)?;
    if behind.relu {
        p.activation = Activation::Relu as u32;
    }
    let n: usize = x_shape.iter().product();
    let of = |n: usize, k: f64, shift: f64| upload::<B, T>(backend, &values(n, k, shift));
    let (g, w) = (of(y_shape.size(), 0.53, 0.1)?, of(w.iter().product(), 0.91, 0.2)?);
    // Values far from zero beside their spread.
    let (x, y, more) = (of(n, 0.37, 5.0)?, of(n, 1.7, 0.0)?, of(n, 0.29, 0.0)?);
    // Parameters of the accumulation dtype beside a half.
    let (scale, shift) = (
        upload_wide(backend, dtype, &values(channels, 0.7, 0.4))?,
        upload_wide(backend, dtype, &values(channels, 1.3, 0.0))?,
    );
    let (mean, rstd) = (
        upload_wide(backend, dtype, &values(channels, 0.11, 5.0))?,
        upload_wide(backend, dtype, &values(channels, 0.17, 1.5))?,
    );
    let inputs = || BatchNormInputs {
        x: &x,
        scale: behind.affine.then_some(&scale),
        shift: behind.affine.then_some(&shift),
        mean: &mean,
        rstd: &rstd,
        y: behind.y.then_some(&y),
    };
    let more = behind.more.then_some(&more);
    let (tensor, vector) = (|| backend.alloc(dtype, n), || backend.alloc(wide, channels));
    // Two ops.
    let (mut plain, mut dr, mut dx, mut a, mut b) = (tensor()?, tensor()?, tensor()?, vector()?, vector()?);
    backend.conv_data_grad(&p, &g, &w, &mut plain)?;
    let norm = p.norm_of_input();
    let to = BatchNormGrads {
        dx: &mut dx,
        dr: Some(&mut dr),
        dscale: &mut a,
        dshift: &mut b,
    };
    backend.batch_norm_grad(&norm, &inputs(), &plain, more, to)?;
    // One, and what is left of the other.
    let run = || -> Result<_> {
        let (mut d, mut dscale, mut dshift) = (tensor()?, vector()?, vector()?);
        let mut again = (behind.relu && !behind.y).then(tensor).transpose()?;
        let to = ConvNormGrads {
            d: &mut d,
            dscale: &mut dscale,
            dshift: &mut dshift,
            y: again.as_mut(),
        };
        backend.conv_norm_grad(&p, &g, &w, &inputs(), more, to)?;
        let mut dx = tensor()?;
        if let Some(again) = again {
            let of = inputs();
            backend.batch_norm_apply(&norm, of.x, None, of.scale, of.shift, of.mean, of.rstd, &mut dx)?;
            let [found, expected] = [read::<B, T>(backend, &again)?, read::<B, T>(backend, &dx)?];
            assert!(found == expected, "{dtype}: y is that of the norm");
        }
        let p = BatchNormParams { relu: 0, ..norm };
        backend.batch_norm_data_grad(&p, &inputs(), &d, &dscale, &dshift, &mut dx)?;
        let tensors = [read::<B, T>(backend, &d)?, read::<B, T>(backend, &dx)?];
        let of = |sums| read_wide(backend, dtype, sums);
        Ok((tensors, [of(&dscale)?, of(&dshift)?]))
    };
    let ([d, of_x], found) = run()?;
    assert_eq!(
        run()?,
        ([d.clone(), of_x.clone()], found.clone()),
        "the same in every run"
    );
    assert!(d == read::<B, T>(backend, &dr)?, "{dtype}: d is that of the two ops");
    let (x, mean, rstd) = (
        read::<B, T>(backend, &x)?,
        read_wide(backend, dtype, &mean)?,
        read_wide(backend, dtype, &rstd)?,
    );
    for c in 0..channels {
        let column = |v: &[f64]| v.iter().copied().skip(c).step_by(channels).collect::<Vec<_>>();
        let (d, x) = (column(&d), column(&x));
        let hat = |x: f64| (x - mean[c]) * rstd[c];
        let [mut dot, mut total, mut size] = [0.0; 3];
        for (&d, &x) in d.iter().zip(&x) {
            (dot, total) = (dot + d * hat(x), total + d);
            size += d.abs() * (1.0 + hat(x).abs());
        }
        let bound = 60.0 * unit(dtype) * size + 1e-30;
        let (got_dot, got_total) = (found[0][c], found[1][c]);
        assert!(
            (got_dot - dot).abs() <= bound && (got_total - total).abs() <= bound,
            "{dtype} {p:?}, channel {c}: {got_dot} and {got_total}, expected {dot} and {total}"
        );
    }
    close("dx", dtype, &of_x, &read::<B, T>(backend, &dx)?, 40.0);
    close("dscale", dtype, &found[0], &read_wide(backend, dtype, &a)?, 4000.0);
    close("dshift", dtype, &found[1], &read_wide(backend, dtype, &b)?, 4000.0);
    Ok(())
}

/// Panics where values differ by more than sums in another order do.
fn close(what: &str, dtype: DType, found: &[f64], expected: &[f64], units: f64) {
    let largest = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let bound = (half_unit(dtype) + units * unit(dtype)) * (largest + 1.0);
    let at = found.iter().zip(expected).position(|(a, b)| (a - b).abs() > bound);
    assert!(
        at.is_none() && found.len() == expected.len(),
        "{dtype}: {what} differs at {at:?}"
    );
}

/// How the result of a norm is used.
#[derive(Clone, Copy, Debug)]
struct Uses {
    /// True if a residual is added to it.
    residual: bool,
    relu: bool,
    convolutions: usize,
    /// Sums that read it before the convolutions, and behind them.
    others: [usize; 2],
}

const USES: [Uses; 7] = [
    Uses {
        residual: false,
        relu: true,
        convolutions: 1,
        others: [0, 0],
    },
    Uses {
        residual: false,
        relu: false,
        convolutions: 1,
        others: [0, 0],
    },
    Uses {
        residual: true,
        relu: true,
        convolutions: 1,
        others: [0, 1],
    },
    Uses {
        residual: true,
        relu: false,
        convolutions: 1,
        others: [0, 1],
    },
    Uses {
        residual: true,
        relu: true,
        convolutions: 2,
        others: [0, 0],
    },
    Uses {
        residual: true,
        relu: true,
        convolutions: 1,
        others: [1, 0],
    },
    Uses {
        residual: true,
        relu: true,
        convolutions: 1,
        others: [0, 2],
    },
];

/// Gradients of a norm's inputs and parameters where the gradient of its result is wanted as well, and so is not that before the ReLU, and
/// where it is not.
fn layers<B: Backend>(
    backend: &B,
    dtype: DType,
    (x, outputs, kernel, stride, groups): Sizes,
    uses: Uses,
) -> Result<()> {
    let init = &mut Init::new(backend, 3).dtype(dtype);
    let builder = Conv2d::builder(x[3], outputs, kernel).groups(groups).bias(false);
    let convolutions = (0..uses.convolutions)
        .map(|_| builder.clone().stride(stride).build(init))
        .collect::<Result<Vec<_>>>()?;
    let norm = BatchNorm::new(&mut Init::new(backend, 0).dtype(dtype), x[3])?;
    let tensor = |k: f64| -> Result<Tensor<B>> {
        let values = values(x.iter().product(), k, 0.1);
        Ok(Tensor::from_f64(backend, &values, &x, dtype)?.requires_grad())
    };
    let (a, r) = (tensor(0.37)?, tensor(0.71)?);
    let run = |apart: bool| -> Result<Vec<Vec<f64>>> {
        let residual = uses.residual.then_some(&r);
        let y = match uses.relu {
            true => norm.forward_relu(&a, residual)?,
            false => match residual {
                Some(r) => norm.forward(&a)?.add(r)?,
                None => norm.forward(&a)?,
            },
        };
        let mut loss = Tensor::zeros(backend, &[], dtype)?;
        let add = |loss: Tensor<B>, t: &Tensor<B>, k: f64| -> Result<Tensor<B>> {
            let g = Tensor::from_f64(backend, &values(t.size(), k, 0.2), t.shape(), dtype)?;
            loss.add(&t.mul(&g)?.sum(&[], false)?)
        };
        for i in 0..uses.others[0] {
            loss = add(loss, &y, 0.9 + i as f64)?;
        }
        for (i, conv) in convolutions.iter().enumerate() {
            loss = add(loss, &conv.forward(&y)?, 0.53 + i as f64)?;
        }
        for i in 0..uses.others[1] {
            loss = add(loss, &y, 0.67 + i as f64)?;
        }
        let mut of: Vec<&Tensor<B>> = vec![&a];
        of.extend(residual);
        of.extend([&norm.weight, &norm.bias].into_iter().flatten().map(|p| &**p));
        of.extend(convolutions.iter().map(|conv| &*conv.weight));
        let wanted = of.len();
        of.extend(apart.then_some(&y));
        let found = grad(&loss, &of, None, false)?;
        found
            .iter()
            .take(wanted)
            .map(|g| g.as_ref().map_or(Ok(Vec::new()), Tensor::to_f64))
            .collect()
    };
    let (one, two) = (run(false)?, run(true)?);
    for (i, (one, two)) in one.iter().zip(&two).enumerate() {
        close(&format!("{x:?} {uses:?}: gradient {i}"), dtype, one, two, 400.0);
    }
    Ok(())
}
