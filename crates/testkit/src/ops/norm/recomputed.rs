//! Residual blocks whose batch norms are computed again in the backward pass.

use half::{bf16, f16};
use kiln_core::ops::{BatchNormTrainParams, Op, RunningStats};
use kiln_core::{Backend, DType, Float, Result, Shape};
use kiln_nn::autograd::recompute_activations;
use kiln_nn::layers::{BatchNorm, Conv2d, MaxPool2d};
use kiln_nn::{Gradients, Init, Layer, Module, Tensor, autocast};

/// Two convolutions with batch norm, and a shortcut around them, which may be a convolution with batch norm of its own.
#[derive(Module)]
struct Block<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    shortcut: Option<Shortcut<B>>,
}

#[derive(Module)]
struct Shortcut<B: Backend> {
    conv: Conv2d<B>,
    bn: BatchNorm<B>,
}

impl<B: Backend> Block<B> {
    fn new(init: &mut Init<B>, inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        let conv = |init: &mut Init<B>, inputs, kernel, stride| {
            let builder = Conv2d::builder(inputs, outputs, kernel).bias(false);
            builder.stride(stride).padding(kernel / 2).build(init)
        };
        let shortcut = |init: &mut Init<B>| -> Result<Shortcut<B>> {
            let (conv, bn) = (conv(init, inputs, 1, stride)?, BatchNorm::new(init, outputs)?);
            Ok(Shortcut { conv, bn })
        };
        Ok(Block {
            conv1: conv(init, inputs, 3, stride)?,
            bn1: BatchNorm::new(init, outputs)?,
            conv2: conv(init, outputs, 3, 1)?,
            bn2: BatchNorm::new(init, outputs)?,
            shortcut: (inputs != outputs).then(|| shortcut(init)).transpose()?,
        })
    }
}

impl<B: Backend> Layer<B> for Block<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.conv1.forward_norm_relu(&self.bn1, x, None)?;
        let shortcut = self.shortcut.as_ref().map(|s| s.conv.forward_norm(&s.bn, x));
        let shortcut = shortcut.transpose()?;
        let residual = shortcut.as_ref().unwrap_or(x);
        self.conv2.forward_norm_relu(&self.bn2, &y, Some(residual))
    }
}

/// A stem with a pooling, and two stages of residual blocks.
#[derive(Module)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    bn: BatchNorm<B>,
    pool: MaxPool2d,
    blocks: Vec<Block<B>>,
}

impl<B: Backend> Net<B> {
    fn new(init: &mut Init<B>, [a, b, c]: [usize; 3]) -> Result<Self> {
        let conv = Conv2d::builder(3, a, 3).bias(false).padding(1).build(init)?;
        let bn = BatchNorm::new(init, a)?;
        let (pool, sizes) = (
            MaxPool2d::new(2),
            [(a, b, 1), (b, b, 1), (b, c, 2), (c, c, 1), (c, c, 1)],
        );
        let blocks = sizes
            .iter()
            .map(|&(inputs, outputs, stride)| Block::new(init, inputs, outputs, stride));
        let blocks = blocks.collect::<Result<_>>()?;
        Ok(Net { conv, bn, pool, blocks })
    }
}

impl<B: Backend> Layer<B> for Net<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.pool.forward(&self.conv.forward_norm_relu(&self.bn, x, None)?)?;
        self.blocks.iter().try_fold(x, |x, block| block.forward(&x))
    }
}

/// The result of a batch norm computed again has its bits; and so have the gradients of residual blocks where it is, in a pass that frees
/// the graph and in two that do not, with moments of convolutions and without.
///
/// # Panics
/// Where a value differs, or an op returns an error.
pub fn recomputed_batch_norm<B: Backend>(backend: &B) {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        if !backend.supports_dtype(dtype) {
            continue;
        }
        if backend.supports(Op::BatchNorm, dtype) {
            for shape in [[2, 1], [7, 5], [64, 8], [700, 24], [1100, 33]] {
                for case in 0..8 {
                    let run: fn(&B, [usize; 2], usize) -> Result<()> = match dtype {
                        DType::F32 => apply::<B, f32>,
                        DType::F64 => apply::<B, f64>,
                        DType::BF16 => apply::<B, bf16>,
                        _ => apply::<B, f16>,
                    };
                    run(backend, shape, case).unwrap_or_else(|e| panic!("{dtype} {shape:?} {case}: {e}"));
                }
            }
        }
        for channels in [[4, 8, 16], [3, 5, 6]] {
            same(backend, dtype, channels, None).unwrap_or_else(|e| panic!("{dtype} {channels:?}: {e}"));
        }
    }
    if backend.supports_dtype(DType::BF16) {
        same(backend, DType::F32, [8, 16, 24], Some(DType::BF16)).unwrap_or_else(|e| panic!("autocast: {e}"));
    }
}

fn values(n: usize, k: f64) -> Vec<f64> {
    (0..n).map(|i| ((i + 1) as f64 * k).sin() + 0.2).collect()
}

/// The op, with and without ReLU, residual, and scale and shift.
fn apply<B: Backend, T: Float>(backend: &B, shape: [usize; 2], case: usize) -> Result<()> {
    let [rows, channels] = shape;
    let buffer = |n: usize, k: f64| backend.upload(&values(n, k).into_iter().map(T::of).collect::<Vec<T>>());
    let (x, r) = (buffer(rows * channels, 0.37)?, buffer(rows * channels, 0.91)?);
    let (scale, shift) = (buffer(channels, 0.53)?, buffer(channels, 1.7)?);
    let (residual, affine) = ((case & 1 == 1).then_some(&r), case & 2 == 2);
    let (scale, shift) = (affine.then_some(&scale), affine.then_some(&shift));
    let mut p = BatchNormTrainParams::new("batch_norm", &Shape::new(&shape)?, 1e-5, 0.1)?;
    p.relu = u32::from(case & 4 == 4);
    let statistic = || match T::DTYPE {
        DType::F64 => backend.upload(&vec![0f64; channels]),
        _ => backend.upload(&vec![0f32; channels]),
    };
    let (mut mean, mut rstd, mut running, mut var) = (statistic()?, statistic()?, statistic()?, statistic()?);
    let mut batches = backend.upload(&[0i32])?;
    let moved = RunningStats {
        mean: &mut running,
        var: &mut var,
        batches: &mut batches,
    };
    let (mut y, mut again) = (buffer(rows * channels, 0.0)?, buffer(rows * channels, 0.0)?);
    backend.batch_norm(
        &p, &x, None, residual, scale, shift, &mut y, &mut mean, &mut rstd, moved,
    )?;
    backend.batch_norm_apply(&p.batch_norm(), &x, residual, scale, shift, &mean, &rstd, &mut again)?;
    let read = |buffer: &B::Buffer| -> Result<Vec<f64>> {
        Ok(backend.download::<T>(buffer)?.into_iter().map(|v| v.f64()).collect())
    };
    assert_eq!(read(&again)?, read(&y)?, "{} {shape:?} {case}", T::DTYPE);
    Ok(())
}

/// Gradients of parameters and of the image, and the running statistics, with everything kept and computed again.
fn same<B: Backend>(backend: &B, dtype: DType, channels: [usize; 3], cast: Option<DType>) -> Result<()> {
    let shape = [3, 8, 6, 3];
    let x = Tensor::from_f64(backend, &values(shape.iter().product(), 0.61), &shape, dtype)?;
    let run = |again: bool, retain: bool| -> Result<Vec<Vec<f64>>> {
        let net = Net::new(&mut Init::new(backend, 3).dtype(dtype), channels)?;
        let x = x.requires_grad();
        let loss = || {
            let y = net.forward(&x)?;
            let g = Tensor::from_f64(backend, &values(y.size(), 0.29), y.shape(), y.dtype())?;
            y.mul(&g)?.sum(&[], false)
        };
        let loss = || if again { recompute_activations(loss) } else { loss() };
        let loss = match cast {
            Some(low) => autocast(low, loss)?,
            None => loss()?,
        };
        let mut found = Vec::new();
        let mut put = |grads: &Gradients<B>| -> Result<()> {
            found.extend(grads.get(&x).map(Tensor::to_f64).transpose()?);
            for p in net.parameters() {
                found.extend(grads.get(p.tensor()).map(Tensor::to_f64).transpose()?);
            }
            Ok(())
        };
        if retain {
            put(&loss.backward_retain()?)?;
        }
        put(&loss.backward()?)?;
        for block in &net.blocks {
            found.extend(block.bn2.running().map(|(mean, _)| mean.to_f64()).transpose()?);
        }
        Ok(found)
    };
    let kept = run(false, false)?;
    assert!(kept.len() > 20);
    assert_eq!(run(true, false)?, kept, "{dtype} {channels:?} {cast:?}");
    assert_eq!(run(true, true)?, run(false, true)?, "{dtype} {channels:?} {cast:?}");
    Ok(())
}
