//! Layer norm by every variant, batch norm, and their gradients. Bytes are those that must be read and written once. Batch
//! norm needs the mean before its result, so it reads x twice if x is larger than the cache.

use crate::measure::{Bench, Cost, random};
use kiln_core::ops::{GroupNormParams, NormOps};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cuda::{Cuda, norm};

const EPS: f64 = 1e-5;
/// Rows and their width, as in benches/peers/torch_cuda.py.
const ROWS: [(usize, usize); 4] = [(512, 256), (8192, 768), (8192, 4096), (2048, 16384)];
/// Batch times positions, and channels.
const CHANNELS: [(usize, usize); 4] = [
    (32 * 7 * 7, 64),
    (128 * 32 * 32, 64),
    (64 * 14 * 14, 1024),
    (32 * 56 * 56, 256),
];

pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<()> {
    for dtype in [DType::F32, DType::BF16] {
        for (rows, width) in ROWS {
            layer(bench, cuda, dtype, rows, width)?;
        }
        for (rows, channels) in CHANNELS {
            batch(bench, cuda, dtype, rows, channels)?;
        }
    }
    Ok(())
}

/// The cost of moving `tensors` tensors of `n` elements.
fn moved(dtype: DType, tensors: usize, n: usize) -> Cost {
    Cost {
        bytes: (tensors * n * dtype.size()) as u64,
        ..Cost::default()
    }
}

/// True if the filters include one of the ids; a norm has about eight operations per element.
fn wants(bench: &Bench, dtype: DType, ids: &[&String], n: usize) -> bool {
    let cost = Cost {
        flops: 8 * n as u64,
        ..moved(dtype, 2, n)
    };
    ids.iter().any(|id| bench.wants(id, cost))
}

fn layer(bench: &Bench, cuda: &Cuda, dtype: DType, rows: usize, width: usize) -> Result<()> {
    let n = rows * width;
    let forward = format!("layer_norm/{dtype}/{rows}x{width}");
    let gradient = format!("layer_norm_grad/{dtype}/{rows}x{width}");
    // The variants differ in dx alone; the sums over columns are the same in each.
    let rows_gradient = format!("layer_norm_dx/{dtype}/{rows}x{width}");
    if !wants(bench, dtype, &[&forward, &gradient, &rows_gradient], n) {
        return Ok(());
    }
    let p = GroupNormParams::layer(
        "layer_norm",
        &Shape::new(&[rows, width])?,
        &Shape::new(&[width])?,
        EPS,
        false,
    )?;
    let (x, g) = (random(cuda, 1, dtype, n)?, random(cuda, 2, dtype, n)?);
    let (scale, shift) = (random(cuda, 3, dtype, width)?, random(cuda, 4, dtype, width)?);
    let (mut y, mut dx) = (cuda.alloc(dtype, n)?, cuda.alloc(dtype, n)?);
    let (mut dscale, mut dshift) = (cuda.alloc(dtype, width)?, cuda.alloc(dtype, width)?);
    let (mut mean, mut rstd) = (cuda.alloc(DType::F32, rows)?, cuda.alloc(DType::F32, rows)?);
    // The gradients need the statistics even if the norm itself is not measured.
    cuda.group_norm(&p, &x, Some(&scale), Some(&shift), &mut y, &mut mean, &mut rstd)?;
    let cost = moved(dtype, 2, n);
    bench.measure(cuda, &forward, "auto", cost, || {
        cuda.group_norm(&p, &x, Some(&scale), Some(&shift), &mut y, &mut mean, &mut rstd)
    })?;
    let variants = || {
        norm::Algorithm::ALL
            .into_iter()
            .filter(|variant| p.width <= variant.widest())
    };
    for variant in variants() {
        let affine = (Some(&scale), Some(&shift));
        bench.measure(cuda, &forward, variant.name(), cost, || {
            cuda.norm_rows_with(variant, &p, &x, affine, &mut y, &mut mean, &mut rstd)
        })?;
    }
    let cost = moved(dtype, 3, n);
    bench.measure(cuda, &gradient, "auto", cost, || {
        let (dscale, dshift) = (&mut dscale, &mut dshift);
        cuda.group_norm_grad(&p, &x, Some(&scale), &mean, &rstd, &g, &mut dx, dscale, dshift)
    })?;
    for variant in variants() {
        bench.measure(cuda, &rows_gradient, variant.name(), cost, || {
            cuda.norm_rows_grad_with(variant, &p, &x, Some(&scale), (&mean, &rstd), &g, &mut dx)
        })?;
    }
    Ok(())
}

fn batch(bench: &Bench, cuda: &Cuda, dtype: DType, rows: usize, channels: usize) -> Result<()> {
    let n = rows * channels;
    let forward = format!("batch_norm/{dtype}/{rows}x{channels}");
    let gradient = format!("batch_norm_grad/{dtype}/{rows}x{channels}");
    if !wants(bench, dtype, &[&forward, &gradient], n) {
        return Ok(());
    }
    let p = GroupNormParams::batch("batch_norm", &Shape::new(&[rows, channels])?, EPS)?;
    let (x, g) = (random(cuda, 1, dtype, n)?, random(cuda, 2, dtype, n)?);
    let (scale, shift) = (random(cuda, 3, dtype, channels)?, random(cuda, 4, dtype, channels)?);
    let (mut y, mut dx) = (cuda.alloc(dtype, n)?, cuda.alloc(dtype, n)?);
    let (mut dscale, mut dshift) = (cuda.alloc(dtype, channels)?, cuda.alloc(dtype, channels)?);
    let (mut mean, mut rstd) = (cuda.alloc(DType::F32, channels)?, cuda.alloc(DType::F32, channels)?);
    cuda.group_norm(&p, &x, Some(&scale), Some(&shift), &mut y, &mut mean, &mut rstd)?;
    bench.measure(cuda, &forward, "auto", moved(dtype, 2, n), || {
        cuda.group_norm(&p, &x, Some(&scale), Some(&shift), &mut y, &mut mean, &mut rstd)
    })?;
    bench.measure(cuda, &gradient, "auto", moved(dtype, 3, n), || {
        let (dscale, dshift) = (&mut dscale, &mut dshift);
        cuda.group_norm_grad(&p, &x, Some(&scale), &mean, &rstd, &g, &mut dx, dscale, dshift)
    })
}
