//! Reductions, arg-reductions, running sums and top-k. [`Cuda::sum_with`] computes a sum by a given kernel, for benches and
//! tests.

use super::instance;
use crate::launch::{THREADS, blocks, linear};
use crate::{Cuda, CudaBuffer};
use bytemuck::Zeroable;
use kiln_core::ops::{AxisParams, ElementwiseOps, Reduce, ReduceOps, ReduceParams};
use kiln_core::{Buffer, DType, Result, Shape, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{PerFloat, reduce as kernels, reduce_axis as axis, reduce_top_k as top};

/// Blocks that a reduction aims at: enough for any device to hide latency.
const BLOCKS: u64 = 1024;
/// The fewest elements that each thread of a block folds before a fold is cut.
const VISITS: u64 = 16;
/// A warp folds rows of up to `WARP_ROW` elements, or `LONG_WARP_ROW` where there are at least `MANY_ROWS` rows.
const WARP_ROW: u64 = 512;
const LONG_WARP_ROW: u64 = 4096;
const MANY_ROWS: u64 = 4096;

/// A kernel for the sum of a whole tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One thread adds everything.
    Naive,
    /// One block of 256 threads, which read 16 bytes at a time and join their sums by shuffles.
    Block,
    /// Many blocks, and a second pass over their sums.
    Segments,
}

impl Algorithm {
    /// All variants, the plainest first.
    pub const ALL: [Algorithm; 3] = [Algorithm::Naive, Algorithm::Block, Algorithm::Segments];

    /// A name for benches: `naive`, `block`, `segments`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Naive => "naive",
            Algorithm::Block => "block",
            Algorithm::Segments => "segments",
        }
    }
}

/// The kernel that folds, and the number of segments. Sizes alone decide, so that the same call adds in the same order on
/// every device.
///
/// | last dimension | kernel           | segments                                                |
/// |----------------|------------------|---------------------------------------------------------|
/// | reduced, short | `reduce_warps`   | 1                                                       |
/// | reduced        | `reduce_blocks`  | as many as make 1024 blocks, of 4096 elements at least  |
/// | kept           | `reduce_columns` | as many as make 1024 blocks, of 16 visits at least      |
struct Plan {
    kernel: &'static PerFloat,
    segment: u64,
    segments: u64,
    blocks: u64,
}

impl Plan {
    fn new(p: &ReduceParams, cut: bool) -> Self {
        let last = p.rank.checked_sub(1);
        let kept = last.filter(|&i| (p.reduced >> i) & 1 == 0);
        let segments = |blocks: u64, least: u64| match cut {
            true => (BLOCKS / blocks.max(1)).clamp(1, p.count.div_ceil(least)),
            false => 1,
        };
        let (kernel, base, wanted) = match kept {
            None if p.count <= WARP_ROW || (p.count <= LONG_WARP_ROW && p.outputs >= MANY_ROWS) => {
                (&kernels::REDUCE_WARPS, p.outputs.div_ceil(8), 1)
            }
            None => {
                let least = VISITS * u64::from(THREADS);
                (&kernels::REDUCE_BLOCKS, p.outputs, segments(p.outputs, least))
            }
            Some(i) => {
                let c = p.shape[i as usize];
                let width = c.next_power_of_two().min(32);
                let base = c.div_ceil(width) * (p.outputs / c);
                let height = u64::from(THREADS) / width;
                (&kernels::REDUCE_COLUMNS, base, segments(base, VISITS * height))
            }
        };
        // Segments begin at whole packs.
        let segment = p.count.div_ceil(wanted).next_multiple_of(8);
        let segments = if wanted == 1 { 1 } else { p.count.div_ceil(segment) };
        Plan {
            kernel,
            segment: if segments == 1 { p.count } else { segment },
            segments,
            blocks: base * segments,
        }
    }
}

/// The reduction of a second pass, over the results of the first.
fn second(p: &ReduceParams, segments: u64) -> ReduceParams {
    let mut q = ReduceParams::zeroed();
    q.op = match p.op() {
        Reduce::Max => Reduce::Max,
        Reduce::Min => Reduce::Min,
        Reduce::Sum | Reduce::Mean | Reduce::SumSquares => Reduce::Sum,
    } as u32;
    q.shape = [1; 8];
    q.shape[0] = segments;
    q.shape[1] = p.outputs;
    (q.reduced, q.rank) = (1, if p.outputs == 1 { 1 } else { 2 });
    (q.outputs, q.count) = (p.outputs, segments);
    q
}

impl Cuda {
    fn fold(&self, p: &ReduceParams, plan: &Plan, x: &CudaBuffer, y: &mut CudaBuffer, divisor: f32) -> Result<()> {
        let dtype: u32 = match y.dtype() {
            DType::BF16 => 1,
            DType::F16 => 2,
            _ => 0,
        };
        let args = [
            Arg::value(p),
            x.arg(),
            y.out(),
            Arg::value(&plan.segment),
            Arg::value(&divisor),
            Arg::value(&dtype),
        ];
        self.launch(instance(plan.kernel, x.dtype()), blocks("reduce", plan.blocks)?, &args)
    }
}

impl Cuda {
    /// `y[0] = Σ x` by `algorithm`.
    ///
    /// # Errors
    /// Those of a launch, and no memory for partial sums.
    pub fn sum_with(&self, algorithm: Algorithm, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        let n = x.len() as u64;
        let (p, _) = ReduceParams::new("sum", Reduce::Sum, &Shape::new(&[x.len()])?, &[], false)?;
        checks::reduce(self, &p, x, y)?;
        match algorithm {
            Algorithm::Naive => {
                let one = Geometry {
                    grid: [1, 1, 1],
                    block: [1, 1, 1],
                    shared: 0,
                };
                let kernel = instance(&kernels::SUM_NAIVE, x.dtype());
                self.launch(kernel, one, &[Arg::value(&n), x.arg(), y.out()])
            }
            Algorithm::Block if n > 0 => {
                let plan = Plan {
                    kernel: &kernels::REDUCE_BLOCKS,
                    segment: n,
                    segments: 1,
                    blocks: 1,
                };
                self.fold(&p, &plan, x, y, 1.0)
            }
            Algorithm::Block | Algorithm::Segments => self.reduce(&p, x, y),
        }
    }
}

impl ReduceOps for Cuda {
    fn reduce(&self, p: &ReduceParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::reduce(self, p, x, y)?;
        if p.outputs == 0 {
            return Ok(());
        }
        if p.count == 0 {
            return self.fill(if p.op() == Reduce::Mean { f64::NAN } else { 0.0 }, y);
        }
        let divisor = if p.op() == Reduce::Mean { p.count as f32 } else { 1.0 };
        let plan = Plan::new(p, true);
        if plan.segments == 1 {
            return self.fold(p, &plan, x, y, divisor);
        }
        let mut partial = self.scratch(DType::F32, (plan.segments * p.outputs) as usize)?;
        self.fold(p, &plan, x, &mut partial, 1.0)?;
        let q = second(p, plan.segments);
        self.fold(&q, &Plan::new(&q, false), &partial, y, divisor)
    }

    fn arg_reduce(&self, p: &AxisParams, x: &CudaBuffer, index: &mut CudaBuffer) -> Result<()> {
        checks::arg_reduce(self, p, x, index)?;
        let (kernel, geometry) = along(
            p,
            [&axis::ARG_WARPS, &axis::ARG_BLOCKS, &axis::ARG_COLUMNS],
            "arg_reduce",
        )?;
        let args = [Arg::value(p), x.arg(), index.out()];
        self.launch(instance(kernel, x.dtype()), geometry, &args)
    }

    fn add_correct(
        &self,
        p: &AxisParams,
        x: &CudaBuffer,
        labels: &CudaBuffer,
        weight: f64,
        sum: &mut CudaBuffer,
    ) -> Result<()> {
        checks::add_correct(self, p, x, labels, weight, sum)?;
        let (kernel, rows) = match p.n <= WARP_ROW {
            true => (&axis::CORRECT_WARPS, 8),
            false => (&axis::CORRECT_BLOCKS, 1),
        };
        let geometry = blocks("add_correct", p.outer.div_ceil(rows).max(1))?;
        let counts = self.scratch(DType::I32, geometry.grid[0] as usize)?;
        let weight = weight as f32;
        let args = [
            Arg::value(p),
            x.arg(),
            labels.arg(),
            counts.arg(),
            Arg::value(&weight),
            sum.out(),
        ];
        self.launch(instance(kernel, x.dtype()), geometry, &args)
    }

    fn cumsum(&self, p: &AxisParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::cumsum(self, p, x, y)?;
        if x.len() == 0 {
            return Ok(());
        }
        let (kernel, geometry) = match p.inner {
            1 => (&axis::CUMSUM_BLOCKS, blocks("cumsum", p.outer)?),
            _ => (&axis::CUMSUM_COLUMNS, linear(p.outer * p.inner, THREADS, u32::MAX)),
        };
        let args = [Arg::value(p), x.arg(), y.out()];
        self.launch(instance(kernel, x.dtype()), geometry, &args)
    }

    fn top_k(&self, p: &AxisParams, x: &CudaBuffer, values: &mut CudaBuffer, index: &mut CudaBuffer) -> Result<()> {
        checks::top_k(self, p, x, values, index)?;
        if values.len() == 0 {
            return Ok(());
        }
        let rows = p.outer * p.inner;
        // Shared memory holds 2048 keys: all, or twice the best so far.
        if p.k <= 1024 || p.n <= 2048 {
            let args = [Arg::value(p), x.arg(), values.out(), index.out()];
            return self.launch(instance(&top::TOP_K_SELECT, x.dtype()), blocks("top_k", rows)?, &args);
        }
        let size = p.n.next_power_of_two();
        let sorted = rows.min(2 * u64::from(self.multiprocessors()));
        // Keys are of 64 bits.
        let scratch = self.scratch(DType::I32, (2 * sorted * size) as usize)?;
        let args = [
            Arg::value(p),
            x.arg(),
            values.out(),
            index.out(),
            scratch.arg(),
            Arg::value(&size),
        ];
        self.launch(instance(&top::TOP_K_SORT, x.dtype()), blocks("top_k", sorted)?, &args)
    }
}

/// A warp for each short row, a block for each long one, a thread for each column.
fn along(
    p: &AxisParams,
    [warps, rows, columns]: [&'static PerFloat; 3],
    op: &'static str,
) -> Result<(&'static PerFloat, Geometry)> {
    Ok(match p.inner {
        1 if p.n <= WARP_ROW => (warps, blocks(op, p.outer.div_ceil(8))?),
        1 => (rows, blocks(op, p.outer)?),
        _ => (columns, linear(p.outer * p.inner, THREADS, u32::MAX)),
    })
}
