//! Reductions, arg-reductions, cumulative sums and top-k.
//!
//! A reduction sees its input as blocks of `[count, c]`: `c` neighbouring outputs (1 when the last dimension is
//! reduced), each the fold of `count` elements. Long folds are cut into segments of a size that depends on the shape
//! alone; segment results are joined pairwise in order.

use crate::dispatch::float;
use crate::parallel::{GRAIN, chunks_mut, items_mut, rows_per_chunk, zip3_mut};
use crate::real::Real;
use crate::tile::{TILE, Tile};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{AxisParams, Reduce, ReduceOps, ReduceParams};
use kiln_core::{Buffer, Float, Result};
use std::cmp::Ordering;
use std::ops::Range;

/// An associative join with its unit and what is done to an element first.
trait Fold {
    fn unit<A: Real>() -> A;
    fn load<A: Real>(x: A) -> A;
    fn join<A: Real>(a: A, b: A) -> A;
}

struct Sum;
struct SumSquares;
struct Max;
struct Min;

impl Fold for Sum {
    #[inline(always)]
    fn unit<A: Real>() -> A {
        A::default()
    }
    #[inline(always)]
    fn load<A: Real>(x: A) -> A {
        x
    }
    #[inline(always)]
    fn join<A: Real>(a: A, b: A) -> A {
        a + b
    }
}

impl Fold for SumSquares {
    #[inline(always)]
    fn unit<A: Real>() -> A {
        A::default()
    }
    #[inline(always)]
    fn load<A: Real>(x: A) -> A {
        x * x
    }
    #[inline(always)]
    fn join<A: Real>(a: A, b: A) -> A {
        a + b
    }
}

impl Fold for Max {
    #[inline(always)]
    fn unit<A: Real>() -> A {
        A::NEG_INFINITY
    }
    #[inline(always)]
    fn load<A: Real>(x: A) -> A {
        x
    }
    // A NaN in `a` stays because no comparison with it holds; one in `b` is taken.
    #[inline(always)]
    fn join<A: Real>(a: A, b: A) -> A {
        if b > a || b.is_nan() { b } else { a }
    }
}

impl Fold for Min {
    #[inline(always)]
    fn unit<A: Real>() -> A {
        A::INFINITY
    }
    #[inline(always)]
    fn load<A: Real>(x: A) -> A {
        x
    }
    #[inline(always)]
    fn join<A: Real>(a: A, b: A) -> A {
        if b < a || b.is_nan() { b } else { a }
    }
}

/// Dimensions of one kind with their strides, outermost first.
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

    /// Where position `index` (counted row-major) begins.
    fn offset(&self, mut index: usize) -> usize {
        let mut offset = 0;
        for &(size, stride) in self.dims[..self.rank].iter().rev() {
            offset += index % size * stride;
            index /= size;
        }
        offset
    }
}

/// How a reduction walks its input.
struct Plan {
    /// Neighbouring outputs: the trailing kept dimension, 1 when the last dimension is reduced.
    c: usize,
    /// Rows of `c` elements that lie one after the other: the last reduced dimension.
    run: usize,
    /// Elements folded into each output.
    count: usize,
    /// Outputs.
    outputs: usize,
    /// Kept dimensions before the trailing one.
    kept: Walk,
    /// Reduced dimensions before the last one.
    outer: Walk,
    /// Folded elements per segment.
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
        // Enough blocks keep the threads busy by themselves; otherwise each is cut so that a segment is one chunk.
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
    fn fold<F: Fold, T: Float>(
        &self,
        x: &[T],
        block: usize,
        range: Range<usize>,
        columns: Range<usize>,
        out: &mut [T::Acc],
    ) where
        T::Acc: Real,
    {
        let base = self.kept.offset(block);
        if self.c == 1 {
            // Runs join into `part` and parts into `total`, so that many short runs do not lengthen one chain.
            let (mut total, mut part) = (F::unit::<T::Acc>(), F::unit::<T::Acc>());
            let mut runs = 0;
            self.runs(range, |at, rows| {
                part = F::join(part, row::<F, T>(&x[base + at..base + at + rows]));
                runs += 1;
                if runs % 64 == 0 {
                    total = F::join(total, part);
                    part = F::unit();
                }
            });
            out[0] = F::join(total, part);
            return;
        }
        for tile in Tile::cover(self.c, columns.clone(), self.run) {
            let mut lanes = [F::unit::<T::Acc>(); TILE];
            self.runs(range.clone(), |at, rows| {
                tile.rows(base + at, rows, |at| {
                    for (a, &x) in lanes.iter_mut().zip(&x[at]) {
                        *a = F::join(*a, F::load(x.wide()));
                    }
                });
            });
            let joined = tile.join(&mut lanes, F::join);
            let start = tile.columns.start - columns.start;
            out[start..start + joined.len()].copy_from_slice(joined);
        }
    }

    /// Calls `f(offset, rows)` for the stretches of consecutive rows that make up `range`.
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

/// The fold of a contiguous row: pairwise above a block, sixteen lanes within.
fn row<F: Fold, T: Float>(x: &[T]) -> T::Acc
where
    T::Acc: Real,
{
    const LANES: usize = 16;
    if x.len() > 2048 {
        let (a, b) = x.split_at((x.len() / 2).next_multiple_of(LANES));
        return F::join(row::<F, T>(a), row::<F, T>(b));
    }
    let mut lanes = [F::unit::<T::Acc>(); LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        for (a, &x) in lanes.iter_mut().zip(block) {
            *a = F::join(*a, F::load(x.wide()));
        }
    }
    for (a, &x) in lanes.iter_mut().zip(rest) {
        *a = F::join(*a, F::load(x.wide()));
    }
    pairwise::<F, T::Acc>(&lanes)
}

/// The fold of a few values, pairwise.
fn pairwise<F: Fold, A: Real>(x: &[A]) -> A {
    match x {
        [] => F::unit(),
        [one] => *one,
        _ => {
            let (a, b) = x.split_at(x.len() / 2);
            F::join(pairwise::<F, A>(a), pairwise::<F, A>(b))
        }
    }
}

fn reduce<F: Fold, T: Float>(cpu: &Cpu, p: &ReduceParams, x: &[T], y: &mut [T]) -> Result<()>
where
    T::Acc: Real,
{
    let plan = Plan::new(p);
    let divisor = T::Acc::of(if p.op() == Reduce::Mean { p.count as f64 } else { 1.0 });
    let finish = |a: T::Acc| T::narrow(if p.op() == Reduce::Mean { a / divisor } else { a });
    let (c, count) = (plan.c, plan.count);
    if count == 0 {
        y.fill(finish(F::unit()));
        return Ok(());
    }
    let segments = count.div_ceil(plan.segment);
    if segments == 1 {
        // Whole blocks stay together unless they are large: a chunk then takes some of the columns.
        let unit = if c.saturating_mul(count) <= 16 * GRAIN {
            c
        } else {
            64.min(c)
        };
        chunks_mut(y, unit, count, |first, y| {
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
        });
        return Ok(());
    }
    // partial[block][segment][c]
    let mut partial = cpu.scratch(<T::Acc as kiln_core::Element>::DTYPE, plan.outputs * segments)?;
    let partial = partial.as_mut_slice::<T::Acc>();
    items_mut(partial, c, x.len(), |i, out| {
        let (block, s) = (i / segments, i % segments);
        let range = s * plan.segment..((s + 1) * plan.segment).min(count);
        plan.fold::<F, T>(x, block, range, 0..c, out);
    });
    let partial = &*partial;
    chunks_mut(y, 1, segments, |first, y| {
        for (i, y) in (first..).zip(y) {
            let (block, column) = (i / c, i % c);
            let from = &partial[block * segments * c + column..(block + 1) * segments * c];
            *y = finish(pairwise_strided::<F, T::Acc>(from, c, segments));
        }
    });
    Ok(())
}

/// The fold of `n` values that lie `stride` apart, pairwise.
fn pairwise_strided<F: Fold, A: Real>(x: &[A], stride: usize, n: usize) -> A {
    if n == 1 {
        return x[0];
    }
    let half = n / 2;
    F::join(
        pairwise_strided::<F, A>(x, stride, half),
        pairwise_strided::<F, A>(&x[half * stride..], stride, n - half),
    )
}

/// Whether `a` comes before `b`: the larger (the smaller with `reverse`), NaN counting as `nan_first` says.
#[inline(always)]
fn before<A: Real>(a: A, b: A, reverse: bool, nan_first: bool) -> bool {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => {
            if reverse {
                a < b
            } else {
                a > b
            }
        }
        (true, false) => nan_first,
        (false, true) => !nan_first,
        (true, true) => false,
    }
}

fn arg_reduce<T: Float>(p: &AxisParams, x: &[T], index: &mut [i32])
where
    T::Acc: Real,
{
    let (n, inner, reverse) = (p.n as usize, p.inner as usize, p.reverse == 1);
    chunks_mut(index, 1, n, |first, index| {
        let mut best = [T::Acc::default(); TILE];
        let mut i = 0;
        while i < index.len() {
            let (o, column) = ((first + i) / inner, (first + i) % inner);
            let width = (inner - column).min(index.len() - i).min(TILE);
            let index = &mut index[i..i + width];
            index.fill(0);
            for j in 0..n {
                let at = (o * n + j) * inner + column;
                for ((best, index), &x) in best.iter_mut().zip(&mut *index).zip(&x[at..at + width]) {
                    let x = x.wide();
                    if j == 0 || before(x, *best, reverse, true) {
                        (*best, *index) = (x, j as i32);
                    }
                }
            }
            i += width;
        }
    });
}

fn cumsum<T: Float>(p: &AxisParams, x: &[T], y: &mut [T])
where
    T::Acc: Real,
{
    /// Elements summed from zero before they join the running total: shortens the chain of roundings.
    const BLOCK: usize = 64;
    let (n, inner) = (p.n as usize, p.inner as usize);
    chunks_mut(y, n * inner, 4, |first, y| {
        for (o, y) in y.chunks_exact_mut(n * inner).enumerate() {
            let x = &x[first + o * n * inner..][..n * inner];
            for column in (0..inner).step_by(TILE) {
                let width = (inner - column).min(TILE);
                let (mut total, mut part) = ([T::Acc::default(); TILE], [T::Acc::default(); TILE]);
                for step in 0..n {
                    let j = if p.reverse == 1 { n - 1 - step } else { step };
                    let at = j * inner + column..j * inner + column + width;
                    let lanes = part.iter_mut().zip(&total);
                    for ((y, &x), (part, &total)) in y[at.clone()].iter_mut().zip(&x[at]).zip(lanes) {
                        *part += x.wide();
                        *y = T::narrow(total + *part);
                    }
                    if step % BLOCK == BLOCK - 1 {
                        for (total, part) in total[..width].iter_mut().zip(&mut part) {
                            *total += std::mem::take(part);
                        }
                    }
                }
            }
        }
    });
}

fn top_k<T: Float>(cpu: &Cpu, p: &AxisParams, x: &[T], values: &mut [T], index: &mut [i32]) -> Result<()>
where
    T::Acc: Real,
{
    let (outer, n, inner, k) = (p.outer as usize, p.n as usize, p.inner as usize, p.k as usize);
    if values.is_empty() {
        return Ok(());
    }
    let reverse = p.reverse == 1;
    let mut order = cpu.scratch(kiln_core::DType::I32, outer * n)?;
    let rows = rows_per_chunk(n * inner, 8);
    let chunks = (
        (values, rows * k * inner),
        (index, rows * k * inner),
        (order.as_mut_slice::<i32>(), rows * n),
    );
    zip3_mut(chunks.0, chunks.1, chunks.2, |chunk, values, index, order| {
        let rows_of = values
            .chunks_exact_mut(k * inner)
            .zip(index.chunks_exact_mut(k * inner))
            .zip(order.chunks_exact_mut(n));
        for (o, ((values, index), order)) in rows_of.enumerate() {
            let x = &x[(chunk * rows + o) * n * inner..][..n * inner];
            for i in 0..inner {
                let at = |j: i32| x[j as usize * inner + i].wide();
                // No two entries are equal in this order, so unstable sorting gives one result.
                let compare = |&a: &i32, &b: &i32| match (at(a), at(b)) {
                    (u, v) if before(u, v, reverse, !reverse) => Ordering::Less,
                    (u, v) if before(v, u, reverse, !reverse) => Ordering::Greater,
                    _ => a.cmp(&b),
                };
                for (j, slot) in order.iter_mut().enumerate() {
                    *slot = j as i32;
                }
                if k < n {
                    order.select_nth_unstable_by(k - 1, compare);
                }
                order[..k].sort_unstable_by(compare);
                for (j, &from) in order[..k].iter().enumerate() {
                    values[j * inner + i] = x[from as usize * inner + i];
                    index[j * inner + i] = from;
                }
            }
        }
    });
    Ok(())
}

impl ReduceOps for Cpu {
    fn reduce(&self, p: &ReduceParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        debug_assert_eq!(y.len() as u64, p.outputs);
        float!(x.dtype(), T => {
            let (x, y) = (x.as_slice::<T>(), y.as_mut_slice::<T>());
            match p.op() {
                Reduce::Sum | Reduce::Mean => reduce::<Sum, T>(self, p, x, y),
                Reduce::Max => reduce::<Max, T>(self, p, x, y),
                Reduce::Min => reduce::<Min, T>(self, p, x, y),
                Reduce::SumSquares => reduce::<SumSquares, T>(self, p, x, y),
            }
        })
    }

    fn arg_reduce(&self, p: &AxisParams, x: &CpuBuffer, index: &mut CpuBuffer) -> Result<()> {
        debug_assert_eq!(index.len() as u64, p.outer * p.inner);
        float!(x.dtype(), T => arg_reduce::<T>(p, x.as_slice(), index.as_mut_slice()));
        Ok(())
    }

    fn cumsum(&self, p: &AxisParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        debug_assert_eq!(x.len(), y.len());
        if !y.is_empty() {
            float!(x.dtype(), T => cumsum::<T>(p, x.as_slice(), y.as_mut_slice()));
        }
        Ok(())
    }

    fn top_k(&self, p: &AxisParams, x: &CpuBuffer, values: &mut CpuBuffer, index: &mut CpuBuffer) -> Result<()> {
        debug_assert_eq!(
            (values.len() as u64, values.len()),
            (p.outer * p.k * p.inner, index.len())
        );
        float!(x.dtype(), T => top_k::<T>(self, p, x.as_slice(), values.as_mut_slice(), index.as_mut_slice()))
    }
}
