//! Matrix products, cut into blocks of C whose borders depend on the shape alone.

#[cfg(test)]
mod tests;

use crate::epilogue::finish_rows;
use crate::gemm::{BLOCK_WORK, blocks, gemm, matrix, matrix_mut, sum_parts};
use crate::scalar::{Scalar, Stored};
use crate::wide::{Wide, write_wide};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{MatmulOps, MatmulParams, Strides};
use kiln_core::{Buffer, Result};
use ndarray::{ArrayView2, ArrayViewMut3, s};
use rayon::prelude::*;

impl MatmulOps for Cpu {
    fn matmul(&self, p: &MatmulParams, a: &CpuBuffer, b: &CpuBuffer, c: &mut CpuBuffer) -> Result<()> {
        crate::dispatch::float!(c.dtype(), T => run::<T>(self, p, a, b, None, c))
    }

    fn linear(
        &self,
        p: &MatmulParams,
        x: &CpuBuffer,
        w: &CpuBuffer,
        bias: Option<&CpuBuffer>,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        crate::dispatch::float!(y.dtype(), T => run::<T>(self, p, x, w, bias, y))
    }
}

fn run<T: Stored>(
    cpu: &Cpu,
    p: &MatmulParams,
    a: &CpuBuffer,
    b: &CpuBuffer,
    bias: Option<&CpuBuffer>,
    c: &mut CpuBuffer,
) -> Result<()> {
    let (a, b) = (Wide::new::<T>(cpu, a)?, Wide::new::<T>(cpu, b)?);
    let bias = bias.map(|bias| Wide::new::<T>(cpu, bias)).transpose()?;
    let bias = bias.as_ref().map(Wide::slice);
    write_wide::<T>(cpu, c, |c| product(cpu, p, a.slice(), b.slice(), bias, c))
}

/// Where the operand of product number `batch` starts.
fn offset(p: &MatmulParams, strides: &Strides, mut batch: usize) -> usize {
    let mut at = 0;
    for i in (0..p.batch_rank as usize).rev() {
        let size = p.batch[i] as usize;
        at += (batch % size) * strides[i] as usize;
        batch /= size;
    }
    at
}

fn operand<A>(data: &[A], at: usize, rows: usize, cols: usize, transposed: bool) -> ArrayView2<'_, A> {
    if transposed {
        matrix(&data[at..], cols, rows, rows).reversed_axes()
    } else {
        matrix(&data[at..], rows, cols, cols)
    }
}

/// The block of C that one task computes: several small products, or a part of a large one.
fn block_size(batches: usize, m: usize, n: usize, k: usize) -> [usize; 3] {
    let work = m.saturating_mul(n).saturating_mul(k).max(1);
    if work.saturating_mul(batches) <= BLOCK_WORK {
        return [batches, m, n];
    }
    if work <= 2 * BLOCK_WORK {
        return [(BLOCK_WORK / work).max(1), m, n];
    }
    // Square-ish blocks reuse both operands best; a block is never so small that packing its operands dominates.
    let cut = |size: usize, target: usize| size.div_ceil(size.div_ceil(target)).next_multiple_of(16).min(size);
    let mut rows = cut(m, 256);
    let mut cols = cut(n, 256);
    if m <= 64 {
        cols = cut(n, (2 * BLOCK_WORK / (m * k).max(1)).clamp(32, 512));
    } else if n <= 64 {
        rows = cut(m, (2 * BLOCK_WORK / (n * k).max(1)).clamp(32, 512));
    }
    [1, rows, cols]
}

fn product<A: Scalar>(cpu: &Cpu, p: &MatmulParams, a: &[A], b: &[A], bias: Option<&[A]>, c: &mut [A]) -> Result<()> {
    let (batches, m, n, k) = (p.batches(), p.m as usize, p.n as usize, p.k as usize);
    if c.is_empty() {
        return Ok(());
    }
    let size = block_size(batches, m, n, k);
    let count = batches.div_ceil(size[0]) * m.div_ceil(size[1]) * n.div_ceil(size[2]);
    let splits = (k / 1024).min(16);
    if count < 4 && splits > 1 && m * n * k > 4 * BLOCK_WORK {
        return (0..batches).try_for_each(|i| {
            let a = operand(a, offset(p, &p.a_batch, i), m, k, p.trans_a == 1);
            let b = operand(b, offset(p, &p.b_batch, i), k, n, p.trans_b == 1);
            let c = &mut c[i * m * n..][..m * n];
            split_product(cpu, a, b, splits, c)?;
            epilogue(p, bias, c, n);
            Ok(())
        });
    }
    let view = ArrayViewMut3::from_shape((batches, m, n), c).expect("C has batch·m·n elements");
    blocks(view, size, [0; 3], &|[first, row, col], mut block| {
        let (_, rows, cols) = block.dim();
        for (i, mut c) in block.outer_iter_mut().enumerate() {
            let a = operand(a, offset(p, &p.a_batch, first + i), m, k, p.trans_a == 1);
            let b = operand(b, offset(p, &p.b_batch, first + i), k, n, p.trans_b == 1);
            gemm(
                A::of(1.0),
                a.slice(s![row..row + rows, ..]),
                b.slice(s![.., col..col + cols]),
                A::default(),
                c.view_mut(),
            );
            if bias.is_some() || p.activation != 0 {
                for mut row in c.outer_iter_mut() {
                    let row = row.as_slice_mut().expect("rows of C are contiguous");
                    finish_rows(row, cols, bias.map(|bias| &bias[col..col + cols]), p.activation());
                }
            }
        }
        Ok(())
    })
}

fn epilogue<A: Scalar>(p: &MatmulParams, bias: Option<&[A]>, c: &mut [A], n: usize) {
    if bias.is_some() || p.activation != 0 {
        finish_rows(c, n, bias, p.activation());
    }
}

/// A small C with a long inner dimension: products of fixed parts of it in parallel, added in order.
fn split_product<A: Scalar>(
    cpu: &Cpu,
    a: ArrayView2<'_, A>,
    b: ArrayView2<'_, A>,
    splits: usize,
    c: &mut [A],
) -> Result<()> {
    let ((m, k), n) = (a.dim(), b.dim().1);
    let part = k.div_ceil(splits);
    let mut parts = cpu.scratch(A::DTYPE, m * n * splits)?;
    let parts = parts.as_mut_slice::<A>();
    parts.par_chunks_mut(m * n).enumerate().for_each(|(i, c)| {
        let (from, to) = ((i * part).min(k), ((i + 1) * part).min(k));
        let (a, b) = (a.slice(s![.., from..to]), b.slice(s![from..to, ..]));
        gemm(A::of(1.0), a, b, A::default(), matrix_mut(c, m, n, n));
    });
    sum_parts(parts, c);
    Ok(())
}
