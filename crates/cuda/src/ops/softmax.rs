//! Softmax and log-softmax: kernel variants for rows, and one for other axes.
//!
//! | axis                                  | kernel                  | where a row is                  |
//! |---------------------------------------|-------------------------|---------------------------------|
//! | last, up to 32                        | `softmax_rows1`         | a register of each lane         |
//! | last, up to 128                       | `softmax_rows4`         | 4 registers of each lane        |
//! | last, up to 1024                      | `softmax_rows32`        | 32 registers of each lane       |
//! | last, 33 to 1024, of whole 16 bytes   | `softmax_packs8`, `…32` | the same, moved by 16 bytes     |
//! | last, longer                          | `softmax_blocks`        | in memory, read twice           |
//! | any other                             | `softmax_columns`       | in memory, read twice           |
//!
//! [`Cuda::softmax_with`] takes a given variant, for benches and tests.

use super::instance;
use crate::launch::{THREADS, blocks, linear};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{SoftmaxOps, SoftmaxParams};
use kiln_core::{Buffer, DType, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{PerFloat, softmax as kernels};

/// The longest row that a warp can hold.
const WARP_ROW: u64 = 1024;

/// A kernel for the softmax of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A thread per row, which reads it three times.
    Naive,
    /// A thread per row or column, which reads it twice: the first pass finds both the largest element and the sum.
    Columns,
    /// A block per row, which reads it twice, by 16 bytes.
    Blocks,
    /// A warp per row of at most 1024, which reads it once.
    Warps,
}

impl Algorithm {
    /// All variants, from the plainest to the fastest.
    pub const ALL: [Algorithm; 4] = [
        Algorithm::Naive,
        Algorithm::Columns,
        Algorithm::Blocks,
        Algorithm::Warps,
    ];

    /// A name for benches: `naive`, `columns`, …
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Naive => "naive",
            Algorithm::Columns => "columns",
            Algorithm::Blocks => "blocks",
            Algorithm::Warps => "warps",
        }
    }

    /// True if this variant computes a softmax of this shape.
    pub fn computes(self, p: &SoftmaxParams) -> bool {
        match self {
            Algorithm::Columns => true,
            Algorithm::Naive | Algorithm::Blocks => p.inner == 1,
            Algorithm::Warps => p.inner == 1 && p.n <= WARP_ROW,
        }
    }

    /// The fastest variant that computes a softmax of this shape.
    fn choose(p: &SoftmaxParams) -> Self {
        let fits = |a: &Algorithm| a.computes(p);
        Self::ALL.into_iter().rev().find(fits).unwrap_or(Algorithm::Columns)
    }

    fn grid(self, p: &SoftmaxParams) -> Result<Geometry> {
        Ok(match self {
            Algorithm::Naive | Algorithm::Columns => linear(p.outer * p.inner, THREADS, u32::MAX),
            Algorithm::Blocks => blocks("softmax", p.outer)?,
            // Eight warps a block.
            Algorithm::Warps => blocks("softmax", p.outer.div_ceil(8))?,
        })
    }
}

impl Cuda {
    /// Softmax by `algorithm`, or by the fastest variant that computes this shape where `algorithm` does not.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, and those of a launch.
    pub fn softmax_with(
        &self,
        algorithm: Algorithm,
        p: &SoftmaxParams,
        x: &CudaBuffer,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::softmax(self, p, x, y)?;
        if x.len() == 0 {
            return Ok(());
        }
        let algorithm = match algorithm.computes(p) {
            true => algorithm,
            false => Algorithm::choose(p),
        };
        let packed = packed(p, x.dtype());
        let kernel: &PerFloat = match (algorithm, p.n) {
            (Algorithm::Naive, _) => &kernels::SOFTMAX_NAIVE,
            (Algorithm::Columns, _) => &kernels::SOFTMAX_COLUMNS,
            (Algorithm::Blocks, _) => &kernels::SOFTMAX_BLOCKS,
            (Algorithm::Warps, ..=256) if packed => &kernels::SOFTMAX_PACKS8,
            (Algorithm::Warps, _) if packed => &kernels::SOFTMAX_PACKS32,
            (Algorithm::Warps, 0..=32) => &kernels::SOFTMAX_ROWS1,
            (Algorithm::Warps, 33..=128) => &kernels::SOFTMAX_ROWS4,
            (Algorithm::Warps, _) => &kernels::SOFTMAX_ROWS32,
        };
        let args = [Arg::value(p), x.arg(), y.out()];
        self.launch(instance(kernel, x.dtype()), algorithm.grid(p)?, &args)
    }
}

/// True for rows that are longer than a warp and multiples of 16 bytes.
fn packed(p: &SoftmaxParams, dtype: DType) -> bool {
    p.n > 32 && (p.n * dtype.size() as u64).is_multiple_of(16)
}

impl SoftmaxOps for Cuda {
    fn softmax(&self, p: &SoftmaxParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::softmax(self, p, x, y)?;
        self.softmax_with(Algorithm::choose(p), p, x, y)
    }

    fn softmax_grad(&self, p: &SoftmaxParams, y: &CudaBuffer, g: &CudaBuffer, dx: &mut CudaBuffer) -> Result<()> {
        checks::softmax_grad(self, p, y, g, dx)?;
        if y.len() == 0 {
            return Ok(());
        }
        let algorithm = Algorithm::choose(p);
        let packed = packed(p, y.dtype());
        let kernel: &PerFloat = match (algorithm, p.n) {
            (Algorithm::Naive | Algorithm::Columns, _) => &kernels::SOFTMAX_GRAD_COLUMNS,
            (Algorithm::Blocks, _) => &kernels::SOFTMAX_GRAD_BLOCKS,
            (Algorithm::Warps, ..=256) if packed => &kernels::SOFTMAX_GRAD_PACKS8,
            (Algorithm::Warps, _) if packed => &kernels::SOFTMAX_GRAD_PACKS32,
            (Algorithm::Warps, 0..=32) => &kernels::SOFTMAX_GRAD_ROWS1,
            (Algorithm::Warps, 33..=128) => &kernels::SOFTMAX_GRAD_ROWS4,
            (Algorithm::Warps, _) => &kernels::SOFTMAX_GRAD_ROWS32,
        };
        let args = [Arg::value(p), y.arg(), g.arg(), dx.out()];
        self.launch(instance(kernel, y.dtype()), algorithm.grid(p)?, &args)
    }
}
