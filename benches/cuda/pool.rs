//! Poolings of 2×2 with stride 2, channels-last. The index of a window's largest element takes four bytes.

use crate::measure::{Bench, Cost, random};
use kiln_core::ops::{PoolOps, PoolParams, Window};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cuda::Cuda;

/// Batch, size and channels, as in benches/peers/torch_cuda.py.
const SIZES: [[usize; 3]; 4] = [[4, 11, 64], [128, 26, 32], [128, 32, 64], [32, 112, 64]];

pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<()> {
    for dtype in [DType::F32, DType::BF16] {
        for size in SIZES {
            one(bench, cuda, dtype, size)?;
        }
    }
    Ok(())
}

fn one(bench: &Bench, cuda: &Cuda, dtype: DType, [batch, side, channels]: [usize; 3]) -> Result<()> {
    let shape = Shape::new(&[batch, side, side, channels])?;
    let id = |what: &str| format!("{what}/{dtype}/{batch}x{side}x{side}x{channels}");
    // One comparison or addition for each element; at least, each element is read.
    let work = Cost {
        flops: shape.size() as u64,
        bytes: (shape.size() * dtype.size()) as u64,
        ..Cost::default()
    };
    if !["max_pool", "max_pool_grad", "avg_pool"]
        .iter()
        .any(|what| bench.wants(&id(what), work))
    {
        return Ok(());
    }
    let (p, out) = PoolParams::new("pool", &shape, &Window::new([2; 2]).stride([2; 2]), false, true)?;
    let x = random(cuda, 1, dtype, shape.size())?;
    let g = random(cuda, 2, dtype, out.size())?;
    let mut y = cuda.alloc(dtype, out.size())?;
    let mut dx = cuda.alloc(dtype, shape.size())?;
    let mut index = cuda.alloc(DType::I32, out.size())?;
    // The gradient needs the indices even if the pooling itself is not measured.
    cuda.max_pool(&p, &x, &mut y, &mut index)?;
    let values = ((shape.size() + out.size()) * dtype.size()) as u64;
    let average = Cost {
        bytes: values,
        ..Cost::default()
    };
    let largest = Cost {
        bytes: values + 4 * out.size() as u64,
        ..Cost::default()
    };
    bench.measure(cuda, &id("max_pool"), "auto", largest, || {
        cuda.max_pool(&p, &x, &mut y, &mut index)
    })?;
    bench.measure(cuda, &id("max_pool_grad"), "auto", largest, || {
        cuda.max_pool_grad(&p, &g, None, &index, &mut dx)
    })?;
    bench.measure(cuda, &id("avg_pool"), "auto", average, || cuda.avg_pool(&p, &x, &mut y))
}
