//! Random numbers and dropout. The only memory traffic of a random op is the write of each number.

use crate::measure::{Bench, Cost, random};
use kiln_core::ops::{Distribution, RandomOps, RandomParams};
use kiln_core::{DType, Result, Runtime};
use kiln_cuda::Cuda;

/// Numbers drawn, as in benches/peers/torch_cuda.py.
const N: usize = 1 << 24;

pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<()> {
    for dtype in [DType::F32, DType::BF16] {
        for (name, distribution, bounds) in [
            ("uniform", Distribution::Uniform, (0.0, 1.0)),
            ("normal", Distribution::Normal, (0.0, 1.0)),
            ("bernoulli", Distribution::Bernoulli, (0.5, 0.0)),
        ] {
            let id = format!("random-{name}/{dtype}/{N}");
            if !bench.wants(&id, moved(dtype, 1)) {
                continue;
            }
            let p = RandomParams::new("random", distribution, N, bounds, 0, 0)?;
            let (step, mut y) = (cuda.upload(&[0i32])?, cuda.alloc(dtype, N)?);
            bench.measure(cuda, &id, "auto", moved(dtype, 1), || {
                RandomOps::random(cuda, &p, &step, &mut y)
            })?;
        }
        let id = format!("dropout/{dtype}/{N}");
        if bench.wants(&id, moved(dtype, 2)) {
            let p = RandomParams::new("dropout", Distribution::Bernoulli, N, (0.5, 0.0), 0, 0)?;
            let (step, x, mut y) = (cuda.upload(&[0i32])?, random(cuda, 1, dtype, N)?, cuda.alloc(dtype, N)?);
            bench.measure(cuda, &id, "auto", moved(dtype, 2), || {
                cuda.dropout(&p, &step, &x, &mut y)
            })?;
        }
    }
    Ok(())
}

/// The cost of moving `tensors` tensors of [`N`] elements of `dtype`.
fn moved(dtype: DType, tensors: usize) -> Cost {
    Cost {
        bytes: (tensors * N * dtype.size()) as u64,
        ..Cost::default()
    }
}
