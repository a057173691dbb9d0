//! Reductions; arg-reductions, cumulative sums and top-k are in [`axis`].
//!
//! A reduction treats its input as blocks of `[count, c]`: `c` adjacent outputs (1 if the last dimension is reduced), each
//! the fold of `count` elements. Long folds are cut into segments of a size that depends on the shape alone; the results of
//! segments are joined pairwise in order.

mod axis;
mod folds;
pub(super) mod integer;

use crate::dispatch::float;
use crate::parallel::{GRAIN, chunks_mut, items_mut, rows_per_chunk, zip2_mut};
use crate::simd::column_tile::{Lanes, TILE, Tile};
use crate::simd::lanes::{exact, lanes, to_acc, widen};
use crate::simd::real::Real;
use crate::simd::row_reduce::fold;
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use folds::{Fold, Max, Min, Sum, SumSquares};
use half::bf16;
use kiln_core::ops::{AxisParams, Reduce, ReduceOps, ReduceParams};
use kiln_core::{Buffer, DType, Element, Float, Result, checks};
use std::ops::Range;

/// The kept or the reduced dimensions, with their sizes and strides, outermost first.
#[derive(Default)]
struct Walk {
    dims: [(usize, usize); kiln_core::MAX_RANK],
    rank: usize,
}

impl Walk {
    fn push(&mut self, size: usize, stride: usize) {
        self.dims[self.rank] = (size, stride);
        self.rank += 1;
    }

    /// The offset of position `index`, counted row-major.
    fn offset(&self, mut index: usize) -> usize {
        let mut offset = 0;
        for &(size, stride) in self.dims[..self.rank].iter().rev() {
            offset += index % size * stride;
            index /= size;
        }
        offset
    }
}

/// The order in which a reduction reads its input.
struct Plan {
    /// The number of adjacent outputs: the size of the trailing kept dimension, 1 if the last dimension is reduced.
    c: usize,
    /// The number of adjacent rows of `c` elements: the size of the last reduced dimension.
    run: usize,
    /// The number of elements folded into each output.
    count: usize,
    /// The number of outputs.
    outputs: usize,
    /// The kept dimensions before the trailing one.
    kept: Walk,
    /// The reduced dimensions before the last one.
    outer: Walk,
    /// The number of folded elements per segment.
    segment: usize,
}

impl Plan {
    fn new(p: &ReduceParams) -> Self {
        let rank = p.rank as usize;
        let dims: Vec<usize> = p.shape[..rank].iter().map(|&d| d as usize).collect();
        let reduced = |i: usize| (p.reduced >> i) & 1 == 1;
        let stride = |i: usize| dims[i + 1..].iter().product::<usize>();
        let c = if rank > 0 && !reduced(rank - 1) {
            dims[rank - 1]
        } else {
            1
        };
        let last = (0..rank).rev().find(|&i| reduced(i));
        let (mut kept, mut outer) = (Walk::default(), Walk::default());
        for (i, &d) in dims.iter().enumerate() {
            if reduced(i) && Some(i) != last {
                outer.push(d, stride(i));
            } else if !reduced(i) && i + 1 != rank {
                kept.push(d, stride(i));
            }
        }
        let (outputs, count) = (p.outputs as usize, p.count as usize);
        // Many blocks keep the threads busy by themselves; otherwise a block is cut into segments of one chunk.
        let segment = match () {
            () if outputs.saturating_mul(count) <= GRAIN => count,
            () if c == 1 => GRAIN,
            () if outputs / c.max(1) >= 16 => (GRAIN / c).max(4096),
            () => (GRAIN / c).max(32),
        };
        Plan {
            c,
            run: last.map_or(1, |i| dims[i]),
            count,
            outputs,
            kept,
            outer,
            segment: segment.max(1),
        }
    }

    /// Folds elements `range` of each of the outputs `columns` of block `block` into `out`.
    #[inline(always)]
    fn fold<F: Fold, T: Float<Acc: Real>>(
        &self,
        x: &[T],
        block: usize,
        range: Range<usize>,
        columns: Range<usize>,
        out: &mut [T::Acc],
    ) {
        let base = self.kept.offset(block);
        if self.c == 1 {
            // Runs are joined into `part` and parts into `total`, so that many short runs do not make one long chain of sums.
            let (mut total, mut part) = (F::unit::<T::Acc>(), F::unit::<T::Acc>());
            let mut runs = 0;
            self.runs(
                range,
                #[inline(always)]
                |at, rows| {
                    part = F::join(part, row::<F, T>(&x[base + at..base + at + rows]));
                    runs += 1;
                    if runs % 64 == 0 {
                        total = F::join(total, part);
                        part = F::unit();
                    }
                },
            );
            out[0] = F::join(total, part);
            return;
        }
        if columns.len() > TILE {
            return self.fold_wide::<F, T>(&x[base..], range, columns, out);
        }
        for tile in Tile::cover(self.c, columns.clone(), self.run) {
            let mut lanes = Lanes::filled(F::unit::<T::Acc>());
            self.runs(
                range.clone(),
                #[inline(always)]
                |at, rows| {
                    tile.rows(
                        base + at,
                        rows,
                        #[inline(always)]
                        |at| {
                            for (a, &x) in lanes.iter_mut().zip(&x[at]) {
                                *a = F::join(*a, F::load(widen(x)));
                            }
                        },
                    );
                },
            );
            let joined = tile.join(&mut lanes, F::join);
            let start = tile.columns.start - columns.start;
            out[start..start + joined.len()].copy_from_slice(joined);
        }
    }

    /// [`Plan::fold`] for more columns than lanes: row by row into `out`, so that memory is read sequentially.
    #[inline(always)]
    fn fold_wide<F: Fold, T: Float<Acc: Real>>(
        &self,
        x: &[T],
        range: Range<usize>,
        columns: Range<usize>,
        out: &mut [T::Acc],
    ) {
        out.fill(F::unit());
        self.runs(
            range,
            #[inline(always)]
            |at, rows| {
                for x in x[at..].chunks(self.c).take(rows) {
                    for (a, &x) in out.iter_mut().zip(&x[columns.clone()]) {
                        *a = F::join(*a, F::load(widen(x)));
                    }
                }
            },
        );
    }

    /// True if every output is the fold of a row of `count` elements, and the rows are adjacent.
    fn rows(&self) -> bool {
        let kept = &self.kept.dims[..self.kept.rank];
        self.c == 1 && self.outer.rank == 0 && matches!(kept, [] | [_]) && kept.iter().all(|k| k.1 == self.count)
    }

    /// Calls `f(offset, rows)` for the runs of consecutive rows that make up `range`.
    #[inline(always)]
    fn runs(&self, range: Range<usize>, mut f: impl FnMut(usize, usize)) {
        let mut i = range.start;
        while i < range.end {
            let (outer, j) = (i / self.run, i % self.run);
            let rows = (self.run - j).min(range.end - i);
            f(self.outer.offset(outer) + j * self.c, rows);
            i += rows;
        }
    }
}

/// The fold of a contiguous row of at most [`GRAIN`] elements: in lanes within blocks, then over the blocks in order.
#[inline(always)]
fn row<F: Fold, T: Float<Acc: Real>>(x: &[T]) -> T::Acc {
    const BLOCK: usize = 4096;
    let mut total = F::unit::<T::Acc>();
    for block in x.chunks(BLOCK) {
        let mut wide = [T::Acc::default(); BLOCK];
        let block: &[T::Acc] = if exact::<T>() {
            bytemuck::cast_slice(block)
        } else {
            to_acc(block, &mut wide[..block.len()]);
            &wide[..block.len()]
        };
        let block = fold(
            block,
            F::unit(),
            #[inline(always)]
            |x| F::load(x),
            #[inline(always)]
            |a, b| F::join(a, b),
        );
        total = F::join(total, block);
    }
    total
}

fn reduce<F: Fold, T: Float<Acc: Real>>(cpu: &Cpu, p: &ReduceParams, x: &[T], y: &mut [T::Acc]) -> Result<()> {
    let plan = Plan::new(p);
    let divisor = T::Acc::of(if p.op() == Reduce::Mean { p.count as f64 } else { 1.0 });
    let finish = |a: T::Acc| if p.op() == Reduce::Mean { a / divisor } else { a };
    let (c, count) = (plan.c, plan.count);
    if count == 0 {
        y.fill(finish(F::unit()));
        return Ok(());
    }
    let segments = count.div_ceil(plan.segment);
    if segments == 1 {
        if plan.rows() {
            chunks_mut(y, 1, count, |first, y| {
                lanes::<T::Acc, _>(
                    #[inline(always)]
                    || {
                        for (y, x) in y.iter_mut().zip(x[first * count..].chunks_exact(count)) {
                            *y = finish(row::<F, T>(x));
                        }
                    },
                );
            });
            return Ok(());
        }
        // Blocks stay whole unless they are large; then a chunk has some of the columns.
        let unit = if c.saturating_mul(count) <= 16 * GRAIN {
            c
        } else {
            64.min(c)
        };
        chunks_mut(y, unit, count, |first, y| {
            lanes::<T::Acc, _>(
                #[inline(always)]
                || {
                    let mut partial = [T::Acc::default(); TILE];
                    let mut i = 0;
                    while i < y.len() {
                        let (block, column) = ((first + i) / c, (first + i) % c);
                        let n = (c - column).min(y.len() - i).min(TILE);
                        plan.fold::<F, T>(x, block, 0..count, column..column + n, &mut partial[..n]);
                        for (y, &a) in y[i..].iter_mut().zip(&partial[..n]) {
                            *y = finish(a);
                        }
                        i += n;
                    }
                },
            );
        });
        return Ok(());
    }
    // The layout is partial[block][segment][c].
    let mut partial = cpu.scratch(T::Acc::DTYPE, plan.outputs * segments)?;
    let partial = partial.as_mut_slice::<T::Acc>();
    items_mut(partial, c, x.len(), |i, out| {
        let (block, s) = (i / segments, i % segments);
        let range = s * plan.segment..((s + 1) * plan.segment).min(count);
        lanes::<T::Acc, _>(
            #[inline(always)]
            || plan.fold::<F, T>(x, block, range, 0..c, out),
        );
    });
    let blocks = rows_per_chunk(plan.outputs / c, segments * c, 1);
    let (partial, y) = ((partial, blocks * segments * c), (y, blocks * c));
    zip2_mut(partial, y, |_, partial, y| {
        for (partial, y) in partial.chunks_exact_mut(segments * c).zip(y.chunks_exact_mut(c)) {
            lanes::<T::Acc, _>(
                #[inline(always)]
                || pairwise::<F, T::Acc>(partial, c),
            );
            for (y, &a) in y.iter_mut().zip(&*partial) {
                *y = finish(a);
            }
        }
    });
    Ok(())
}

/// Folds rows of `c` values into the first of them, pairwise.
fn pairwise<F: Fold, A: Real>(x: &mut [A], c: usize) {
    let rows = x.len() / c;
    if rows < 2 {
        return;
    }
    let (low, high) = x.split_at_mut(rows / 2 * c);
    pairwise::<F, A>(low, c);
    pairwise::<F, A>(high, c);
    for (a, &b) in low[..c].iter_mut().zip(&high[..c]) {
        *a = F::join(*a, b);
    }
}

/// [`reduce`] by the fold of the op.
fn reduce_by<T: Float<Acc: Real>>(cpu: &Cpu, p: &ReduceParams, x: &[T], y: &mut [T::Acc]) -> Result<()> {
    match p.op() {
        Reduce::Sum | Reduce::Mean => reduce::<Sum, T>(cpu, p, x, y),
        Reduce::Max => reduce::<Max, T>(cpu, p, x, y),
        Reduce::Min => reduce::<Min, T>(cpu, p, x, y),
        Reduce::SumSquares => reduce::<SumSquares, T>(cpu, p, x, y),
    }
}

impl ReduceOps for Cpu {
    fn reduce(&self, p: &ReduceParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::reduce(self, p, x, y)?;
        debug_assert_eq!(y.len() as u64, p.outputs);
        // Elements of bf16 are widened in registers, which for f16 would take a call each.
        if x.dtype() == DType::BF16 {
            let x = x.as_slice::<bf16>();
            return write_upcast::<bf16>(self, y, |y| reduce_by(self, p, x, y));
        }
        float!(x.dtype(), T => {
            let x = Upcast::new::<T>(self, x)?;
            write_upcast::<T>(self, y, |y| reduce_by(self, p, x.slice(), y))
        })
    }

    fn arg_reduce(&self, p: &AxisParams, x: &CpuBuffer, index: &mut CpuBuffer) -> Result<()> {
        checks::arg_reduce(self, p, x, index)?;
        debug_assert_eq!(index.len() as u64, p.outer * p.inner);
        float!(x.dtype(), T => axis::arg_reduce(p, Upcast::new::<T>(self, x)?.slice(), index.as_mut_slice()));
        Ok(())
    }

    fn add_correct(
        &self,
        p: &AxisParams,
        x: &CpuBuffer,
        labels: &CpuBuffer,
        weight: f64,
        sum: &mut CpuBuffer,
    ) -> Result<()> {
        checks::add_correct(self, p, x, labels, weight, sum)?;
        let mut index = self.scratch(DType::I32, labels.len())?;
        self.arg_reduce(p, x, &mut index)?;
        let pairs = index.as_slice::<i32>().iter().zip(labels.as_slice::<i32>());
        let correct = pairs.filter(|(index, label)| index == label).count();
        sum.as_mut_slice::<f32>()[0] += correct as f32 * weight as f32;
        Ok(())
    }

    fn cumsum(&self, p: &AxisParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::cumsum(self, p, x, y)?;
        debug_assert_eq!(x.len(), y.len());
        if !y.is_empty() {
            float!(x.dtype(), T => axis::cumsum::<T>(p, x.as_slice(), y.as_mut_slice()));
        }
        Ok(())
    }

    fn top_k(&self, p: &AxisParams, x: &CpuBuffer, values: &mut CpuBuffer, index: &mut CpuBuffer) -> Result<()> {
        checks::top_k(self, p, x, values, index)?;
        debug_assert_eq!(
            (values.len() as u64, values.len()),
            (p.outer * p.k * p.inner, index.len())
        );
        float!(x.dtype(), T => axis::top_k::<T>(self, p, x.as_slice(), values.as_mut_slice(), index.as_mut_slice()))
    }
}
