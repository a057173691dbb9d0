//! Softmax and log-softmax.
//!
//! | axis                     | kernel            | where a row is               |
//! |--------------------------|-------------------|------------------------------|
//! | last, up to 32           | `softmax_rows1`   | a register for each lane     |
//! | last, up to 128          | `softmax_rows4`   | 4 registers for each lane    |
//! | last, up to 1024         | `softmax_rows32`  | 32 registers for each lane   |
//! | last, longer             | `softmax_blocks`  | read twice by a block        |
//! | any other                | `softmax_columns` | read twice by a thread       |

use super::instance;
use crate::launch::{THREADS, blocks, linear};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{SoftmaxOps, SoftmaxParams};
use kiln_core::{Buffer, Result};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{PerFloat, softmax as kernels};

/// The kernel, its gradient, and their grid.
fn choice(p: &SoftmaxParams) -> Result<(&'static PerFloat, &'static PerFloat, Geometry)> {
    // Eight warps a block.
    let warps = || blocks("softmax", p.outer.div_ceil(8));
    Ok(match (p.inner, p.n) {
        (1, 0..=32) => (&kernels::SOFTMAX_ROWS1, &kernels::SOFTMAX_GRAD_ROWS1, warps()?),
        (1, 33..=128) => (&kernels::SOFTMAX_ROWS4, &kernels::SOFTMAX_GRAD_ROWS4, warps()?),
        (1, 129..=1024) => (&kernels::SOFTMAX_ROWS32, &kernels::SOFTMAX_GRAD_ROWS32, warps()?),
        (1, _) => (
            &kernels::SOFTMAX_BLOCKS,
            &kernels::SOFTMAX_GRAD_BLOCKS,
            blocks("softmax", p.outer)?,
        ),
        _ => (
            &kernels::SOFTMAX_COLUMNS,
            &kernels::SOFTMAX_GRAD_COLUMNS,
            linear(p.outer * p.inner, THREADS, u32::MAX),
        ),
    })
}

impl SoftmaxOps for Cuda {
    fn softmax(&self, p: &SoftmaxParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        if x.len() == 0 {
            return Ok(());
        }
        let (kernel, _, geometry) = choice(p)?;
        let args = [Arg::value(p), x.arg(), y.out()];
        self.launch(instance(kernel, x.dtype()), geometry, &args)
    }

    fn softmax_grad(&self, p: &SoftmaxParams, y: &CudaBuffer, g: &CudaBuffer, dx: &mut CudaBuffer) -> Result<()> {
        if y.len() == 0 {
            return Ok(());
        }
        let (_, kernel, geometry) = choice(p)?;
        let args = [Arg::value(p), y.arg(), g.arg(), dx.out()];
        self.launch(instance(kernel, y.dtype()), geometry, &args)
    }
}
