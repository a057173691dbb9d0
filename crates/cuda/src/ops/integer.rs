//! Ops on integers.

use crate::launch::{THREADS, blocks, linear};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{AxisParams, BroadcastParams, ElementwiseOps, IndexParams, IntegerFold, IntegerOps, ReduceParams};
use kiln_core::{Buffer, DType, Result, checks};
use kiln_device::Arg;
use kiln_kernels::{integer as kernels, reduce_axis as axis};

/// Threads that a reduction of columns aims at, and the fewest elements that one of them folds.
const COLUMNS: u64 = 1 << 16;
const LEAST: u64 = 16;
/// Blocks that a reduction of rows aims at, and the fewest elements that one of them folds.
const ROWS: u64 = 1024;
const OF_BLOCK: u64 = 4096;

impl IntegerOps for Cuda {
    fn integer_binary(&self, p: &BroadcastParams, a: &CudaBuffer, b: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::integer_binary(self, p, a, b, y)?;
        let kernel = match y.dtype() {
            DType::U8 => &kernels::INTEGER_BINARY_U8,
            _ => &kernels::INTEGER_BINARY_I32,
        };
        let args = [Arg::value(p), a.arg(), b.arg(), y.out()];
        self.launch(kernel, self.broadcast(p, a.dtype()), &args)
    }

    fn integer_reduce(&self, f: IntegerFold, p: &ReduceParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::integer_reduce(self, f, p, x, y)?;
        if p.outputs == 0 {
            return Ok(());
        }
        self.fill(f.identity().into(), y)?;
        if p.count == 0 {
            return Ok(());
        }
        let kept = p.rank > 0 && (p.reduced >> (p.rank - 1)) & 1 == 0;
        let (wanted, least) = if kept { (COLUMNS, LEAST) } else { (ROWS, OF_BLOCK) };
        let wanted = (wanted / p.outputs).clamp(1, p.count.div_ceil(least));
        let segment = p.count.div_ceil(wanted);
        let parts = p.outputs * p.count.div_ceil(segment);
        let (kernel, geometry) = match kept {
            true => (&kernels::INTEGER_REDUCE_COLUMNS, linear(parts, THREADS, u32::MAX)),
            false => (&kernels::INTEGER_REDUCE_ROWS, blocks("integer_reduce", parts)?),
        };
        let fold = f as u32;
        let args = [Arg::value(p), x.arg(), y.out(), Arg::value(&segment), Arg::value(&fold)];
        self.launch(kernel, geometry, &args)
    }

    fn integer_cumsum(&self, p: &AxisParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::integer_cumsum(self, p, x, y)?;
        if x.len() == 0 {
            return Ok(());
        }
        let (kernel, geometry) = match p.inner {
            1 => (&axis::CUMSUM_BLOCKS_I32, blocks("integer_cumsum", p.outer)?),
            _ => (&axis::CUMSUM_COLUMNS_I32, linear(p.outer * p.inner, THREADS, u32::MAX)),
        };
        self.launch(kernel, geometry, &[Arg::value(p), x.arg(), y.out()])
    }

    fn integer_scatter(
        &self,
        f: IntegerFold,
        p: &IndexParams,
        x: &CudaBuffer,
        index: &CudaBuffer,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::integer_scatter(self, p, x, index, y)?;
        let fold = f as u32;
        let args = [
            Arg::value(p),
            x.arg(),
            index.arg(),
            y.out(),
            Arg::value(&fold),
            self.fault(),
        ];
        self.launch(&kernels::INTEGER_SCATTER, self.striding(x.len() as u64, 1), &args)
    }
}
