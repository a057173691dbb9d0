//! Dense and grouped convolutions as products over gathered rows, a block of rows at a time so that the gathered
//! values stay in cache and the whole matrix never exists.

use super::Geometry;
use super::gather::{gather, scatter};
use super::shallow;
use crate::Cpu;
use crate::epilogue::finish_rows;
use crate::gemm::{BLOCK_WORK, gemm, matrix, matrix_mut, sum_parts};
use crate::parallel::try_chunks_mut;
use crate::scalar::{Scalar, vectorized};
use kiln_core::Result;
use kiln_core::ops::Activation;
use ndarray::s;

/// Gathered elements per block: a quarter of a common second-level cache in f32.
const BLOCK: usize = 1 << 16;

/// Rows of one block: enough to reuse the weight, few enough for the cache, and enough blocks to share out.
fn block_rows(rows: usize, depth: usize, work: usize) -> usize {
    let by_cache = rows.div_ceil((BLOCK / depth.max(1)).clamp(128, 1024));
    let by_work = (work / BLOCK_WORK).min(8);
    rows.div_ceil(by_cache.max(by_work).max(1))
        .next_multiple_of(8)
        .min(rows)
        .max(1)
}

/// `y = f(x ⋆ w + bias)`.
pub(crate) fn forward<A: Scalar>(
    cpu: &Cpu,
    g: &Geometry,
    x: &[A],
    w: &[A],
    bias: Option<&[A]>,
    f: Activation,
    y: &mut [A],
) -> Result<()> {
    let (depth, per, outputs) = (g.depth(), g.group_out(), g.outputs);
    let rows = block_rows(g.rows(), depth, g.work());
    // The weight of each group as [depth, outputs]: the product then reads it along its rows.
    let mut turned = cpu.scratch(A::DTYPE, w.len())?;
    transpose(w, g.groups, per, depth, turned.as_mut_slice());
    let turned = turned.as_slice::<A>();
    let shallow = g.groups == 1 && !g.pointwise() && depth <= shallow::DEPTH && outputs % shallow::WIDTH == 0;
    let parallel = g.work() > BLOCK_WORK;
    try_chunks_mut(y, rows * outputs, parallel, |at, y| {
        let (first, count) = (at / outputs, y.len() / outputs);
        let mut cols = cpu.scratch(A::DTYPE, if g.pointwise() { 0 } else { count * depth })?;
        let cols = cols.as_mut_slice::<A>();
        if shallow {
            gather(g, 0, first..first + count, x, cols);
            shallow::product(cols, turned, depth, outputs, y);
        } else {
            for group in 0..g.groups {
                let a = if g.pointwise() {
                    matrix(&x[first * depth..], count, depth, depth)
                } else {
                    gather(g, group, first..first + count, x, cols);
                    matrix(cols, count, depth, depth)
                };
                let b = matrix(&turned[group * per * depth..], depth, per, per);
                let mut y = matrix_mut(y, count, outputs, outputs);
                let y = y.slice_mut(s![.., group * per..(group + 1) * per]);
                gemm(A::of(1.0), a, b, A::default(), y);
            }
        }
        if bias.is_some() || f != Activation::None {
            finish_rows(y, outputs, bias, f);
        }
        Ok(())
    })
}

/// The gradient with respect to the input, image by image: columns = g·W, added back to where they came from.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<()> {
    let (depth, per, outputs) = (p.depth(), p.group_out(), p.outputs);
    if p.pointwise() {
        let rows = block_rows(p.rows(), outputs, p.work());
        return try_chunks_mut(dx, rows * depth, p.work() > BLOCK_WORK, |at, dx| {
            let count = dx.len() / depth;
            let g = matrix(&g[at / depth * outputs..], count, outputs, outputs);
            gemm(
                A::of(1.0),
                g,
                matrix(w, outputs, depth, depth),
                A::default(),
                matrix_mut(dx, count, depth, depth),
            );
            Ok(())
        });
    }
    let image = p.in_positions() * p.channels;
    let positions = p.out_positions();
    let rows = block_rows(positions, depth, 0);
    let together = (BLOCK_WORK / 4 * p.batch / p.work().max(1)).clamp(1, p.batch.max(1));
    try_chunks_mut(dx, together * image, p.work() > BLOCK_WORK, |at, dx| {
        dx.fill(A::default());
        let mut cols = cpu.scratch(A::DTYPE, rows * depth)?;
        let cols = cols.as_mut_slice::<A>();
        let first = at / image;
        for (i, dx) in dx.chunks_exact_mut(image).enumerate() {
            for from in (0..positions).step_by(rows) {
                let count = rows.min(positions - from);
                let start = (first + i) * positions + from;
                for group in 0..p.groups {
                    let g = matrix(&g[start * outputs + group * per..], count, per, outputs);
                    let w = matrix(&w[group * per * depth..], per, depth, depth);
                    gemm(
                        A::of(1.0),
                        g,
                        w,
                        A::default(),
                        matrix_mut(&mut cols[..count * depth], count, depth, depth),
                    );
                    // Within its image: positions count from its own start.
                    vectorized(
                        #[inline(always)]
                        || scatter(p, group, from..from + count, cols, dx),
                    );
                }
            }
        }
        Ok(())
    })
}

/// The gradient with respect to the weight: `gᵀ · columns` over fixed parts of the rows, the parts added in order.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<()> {
    let (depth, per, outputs, rows) = (p.depth(), p.group_out(), p.outputs, p.rows());
    let size = dw.len();
    let tasks = (p.work() / BLOCK_WORK).clamp(1, 16);
    // Parts cost memory and a sum, blocks of channels gather again: parts while the weight is small.
    let parts = tasks.min(((1 << 22) / size.max(1)).max(1)).min(rows.max(1));
    let mut split = tasks.div_ceil(parts).min(per.div_ceil(64)).max(1);
    while per % split != 0 {
        split -= 1;
    }
    let wide = per / split;
    let part = rows.div_ceil(parts);
    let step = (BLOCK / depth.max(1)).clamp(64, 512).min(part.max(1));
    let mut sums = cpu.scratch(A::DTYPE, parts * size)?;
    let sums = sums.as_mut_slice::<A>();
    // A task is a block of output channels of one group over one part of the rows; unsplit groups go together.
    let unit = if split == 1 { size } else { wide * depth };
    try_chunks_mut(sums, unit, p.work() > BLOCK_WORK, |at, dw| {
        let (number, from) = (at / size, at % size / depth);
        let (start, end) = ((number * part).min(rows), ((number + 1) * part).min(rows));
        let mut cols = cpu.scratch(A::DTYPE, if p.pointwise() { 0 } else { step * depth })?;
        let cols = cols.as_mut_slice::<A>();
        dw.fill(A::default());
        for (i, dw) in dw.chunks_exact_mut(wide * depth).enumerate() {
            let channel = from + i * wide;
            for row in (start..end).step_by(step) {
                let count = step.min(end - row);
                let b = if p.pointwise() {
                    matrix(&x[row * depth..], count, depth, depth)
                } else {
                    gather(p, channel / per, row..row + count, x, cols);
                    matrix(cols, count, depth, depth)
                };
                let a = matrix(&g[row * outputs + channel..], count, wide, outputs).reversed_axes();
                gemm(A::of(1.0), a, b, A::of(1.0), matrix_mut(dw, wide, depth, depth));
            }
        }
        Ok(())
    })?;
    sum_parts(sums, dw);
    Ok(())
}

/// Turns each of `count` matrices `rows × cols` over.
fn transpose<A: Copy>(from: &[A], count: usize, rows: usize, cols: usize, to: &mut [A]) {
    for m in 0..count {
        let from = &from[m * rows * cols..][..rows * cols];
        let to = &mut to[m * rows * cols..][..rows * cols];
        for (r, row) in from.chunks_exact(cols.max(1)).enumerate() {
            for (c, &v) in row.iter().enumerate() {
                to[c * rows + r] = v;
            }
        }
    }
}
