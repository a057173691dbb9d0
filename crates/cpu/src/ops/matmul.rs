//! Matrix products, cut into blocks of C whose borders depend on the shape alone.

#[cfg(test)]
mod tests;

use crate::epilogue::finish_rows;
use crate::gemm::{
    AOperand, BLOCK_WORK, BOperand, CTile, Epilogue, Kernels, Panels, SERIAL_THRESHOLD, UNIT, blocks, gemm_nn,
    gemm_nt_small, gemm_tn, matrix, rows_alias, sum_parts,
};
use crate::parallel::try_chunks_mut;
use crate::scalar::{Scalar, Stored};
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{Activation, MatmulOps, MatmulParams, Strides};
use kiln_core::{Buffer, Result, checks};
use ndarray::ArrayViewMut2;
use std::ops::Range;

impl MatmulOps for Cpu {
    fn matmul(&self, p: &MatmulParams, a: &CpuBuffer, b: &CpuBuffer, c: &mut CpuBuffer) -> Result<()> {
        checks::matmul(self, p, a, b, c)?;
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
        checks::linear(self, p, x, w, bias, y)?;
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
    let (a, b) = (Upcast::new::<T>(cpu, a)?, Upcast::new::<T>(cpu, b)?);
    let bias = bias.map(|bias| Upcast::new::<T>(cpu, bias)).transpose()?;
    let bias = bias.as_ref().map(Upcast::slice);
    write_upcast::<T>(cpu, c, |c| product(cpu, p, a.slice(), b.slice(), bias, c))
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

/// One product of a batch: where its operands start, and their sizes.
#[derive(Clone, Copy)]
struct GemmProblem<'a, A: 'static> {
    a: &'a [A],
    b: &'a [A],
    m: usize,
    n: usize,
    k: usize,
    /// Elements from one stored row of each operand to the next.
    a_step: usize,
    b_step: usize,
    trans_a: bool,
    trans_b: bool,
    kernels: &'a Kernels<A>,
}

/// The micro-kernels for `n` columns: those of the shortest vectors that hold them.
fn kernels<A: Scalar>(n: usize) -> &'static Kernels<A> {
    let all = A::all_kernels();
    // The last set is portable, and no match for one of this machine's.
    let narrow = all[..all.len() - 1].iter().rev().find(|k| n <= k.lanes);
    narrow.unwrap_or(&all[0])
}

/// Rows up to which a B with contiguous rows is read where it lies: a copy would be used too few times.
const FEW_ROWS: usize = 32;

impl<'a, A: Scalar> GemmProblem<'a, A> {
    fn new(p: &MatmulParams, a: &'a [A], b: &'a [A], batch: usize) -> Self {
        let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
        let (trans_a, trans_b) = (p.trans_a == 1, p.trans_b == 1);
        GemmProblem {
            a: &a[offset(p, &p.a_batch, batch)..],
            b: &b[offset(p, &p.b_batch, batch)..],
            m,
            n,
            k,
            a_step: if trans_a { m } else { k },
            b_step: if trans_b { k } else { n },
            trans_a,
            trans_b,
            kernels: kernels(n),
        }
    }

    /// The same product over the steps `from..to` of k alone.
    fn part(self, from: usize, to: usize) -> Self {
        GemmProblem {
            a: &self.a[from * if self.trans_a { self.a_step } else { 1 }..],
            b: &self.b[from * if self.trans_b { 1 } else { self.b_step }..],
            k: to - from,
            ..self
        }
    }

    /// B's columns `columns`.
    fn panels(&self, cpu: &Cpu, columns: Range<usize>) -> Result<Panels<'a, A>> {
        let (k_step, n_step) = if self.trans_b {
            (1, self.b_step)
        } else {
            (self.b_step, 1)
        };
        let source = BOperand {
            data: &self.b[(columns.start * n_step).min(self.b.len())..],
            taps: &[0],
            steps: self.k,
            columns: columns.len(),
            k_step,
            n_step,
        };
        if self.m <= FEW_ROWS
            && let Some(panels) = Panels::direct(self.kernels, source)
        {
            return Ok(panels);
        }
        Panels::packed(cpu, self.kernels, source)
    }

    /// Rows `row…` of the product with the columns `column…` of `b`, as many as the target has; `add` keeps what it holds.
    fn block(
        &self,
        b: &Panels<'_, A>,
        [row, column]: [usize; 2],
        mut c: ArrayViewMut2<'_, A>,
        e: Epilogue<'_, A>,
        add: bool,
    ) {
        let columns = c.ncols();
        if self.trans_a {
            assert!(!add, "a transposed A has all of k at once");
            let a = AOperand {
                data: &self.a[row..],
                step: self.a_step,
            };
            gemm_tn(self.kernels, a, b, column, CTile::new(c.view_mut()));
            if e.bias.is_some() || e.activation != Activation::None {
                for mut row in c.outer_iter_mut() {
                    let row = row.as_slice_mut().expect("rows of C are contiguous");
                    finish_rows(
                        row,
                        columns,
                        e.bias.map(|bias| &bias[column..column + columns]),
                        e.activation,
                    );
                }
            }
            return;
        }
        let a = (&self.a[row * self.a_step..], self.a_step);
        gemm_nn(self.kernels, a, b, column, CTile::new(c), e, add);
    }
}

/// Rows up to which a transposed B is read where it lies.
const DOT_ROWS: usize = 16;

/// Multiply-adds of a product whose tasks share nothing but A.
const SMALL: usize = 16 * BLOCK_WORK;

/// Blocks of a large product, about: enough to share.
const TASKS: usize = 64;
/// Rows of a block, about, beyond which B's part of it is read often enough; thin ones have more, for as many elements of A and C.
const ROWS: usize = 192;
const THIN: usize = 1 << 17;

/// Rows and columns of the blocks of C that tasks compute.
fn block_size<A: Scalar>(one: &GemmProblem<'_, A>) -> [usize; 2] {
    let &GemmProblem { m, n, k, .. } = one;
    let work = m.saturating_mul(n).saturating_mul(k);
    if work <= SERIAL_THRESHOLD {
        return [m, n];
    }
    let (panel, tile) = (one.kernels.panel(), one.kernels.tile());
    let even = |size: usize, most: usize, unit: usize| size.div_ceil(size.div_ceil(most)).next_multiple_of(unit);
    if m <= 48 {
        return [m, even(n, (BLOCK_WORK / (m * k).max(1)).clamp(panel, 256), panel)];
    }
    // Columns in whole panels, few enough that a unit of them stays in cache; but some A are copied for every block.
    let most = match one.trans_a {
        true => 768,
        false if rows_alias::<A>(one.a_step) => 512,
        false => 256,
    };
    let columns = even(n, most, panel);
    let task = (work / TASKS).clamp(4 * BLOCK_WORK, 128 * BLOCK_WORK);
    let most = ROWS.max(THIN / (columns + k));
    let rows = (task / (columns * k).max(1)).clamp(2 * tile, most);
    [even(m, rows, tile), columns]
}

/// Elements of B that are laid out at once where C is small, and what that is: B's copy is then no more than what a
/// third-level cache keeps beside the operands, and C is seldom read again.
const LAID_OUT: usize = 1 << 20;
const SMALL_C: usize = 1 << 19;

/// Steps of k that a large product takes at once.
fn stretch(one: &GemmProblem<'_, impl Scalar>) -> usize {
    let &GemmProblem { m, n, k, .. } = one;
    if one.trans_a || m * n > SMALL_C || k * n <= LAID_OUT {
        return k.max(1);
    }
    let parts = k.div_ceil((LAID_OUT / n).max(UNIT));
    k.div_ceil(parts).next_multiple_of(UNIT)
}

fn product<A: Scalar>(cpu: &Cpu, p: &MatmulParams, a: &[A], b: &[A], bias: Option<&[A]>, c: &mut [A]) -> Result<()> {
    let (batches, m, n, k) = (p.batches(), p.m as usize, p.n as usize, p.k as usize);
    if c.is_empty() {
        return Ok(());
    }
    let e = Epilogue {
        bias,
        activation: p.activation(),
    };
    let work = m.saturating_mul(n).saturating_mul(k).max(1);
    if batches > 1 && work <= 16 * BLOCK_WORK {
        let together = (BLOCK_WORK / work).clamp(1, batches);
        let parallel = work.saturating_mul(batches) > SERIAL_THRESHOLD;
        return try_chunks_mut(c, together * m * n, parallel, |at, c| {
            let first = at / (m * n);
            for (i, c) in c.chunks_exact_mut(m * n).enumerate() {
                let one = GemmProblem::new(p, a, b, first + i);
                one.block(&one.panels(cpu, 0..n)?, [0; 2], matrix(c, m, n), e, false);
            }
            Ok(())
        });
    }
    for (batch, c) in c.chunks_exact_mut(m * n).enumerate() {
        let one = GemmProblem::new(p, a, b, batch);
        let [rows, columns] = block_size(&one);
        if one.trans_b && !one.trans_a && m <= DOT_ROWS {
            blocks(matrix(c, m, n), [m, columns], 1, [0; 2], &|[_, column], c| {
                let (a, b) = ((one.a, one.a_step), (one.b, one.b_step));
                gemm_nt_small(A::kernels(), a, b, column, k, CTile::new(c), e);
                Ok(())
            })?;
            continue;
        }
        let splits = (k / 1024).min(16);
        if m.div_ceil(rows) * n.div_ceil(columns) < 4 && splits > 1 && work > 4 * BLOCK_WORK {
            split_product(cpu, one, splits, c)?;
            if bias.is_some() || e.activation != Activation::None {
                finish_rows(c, n, bias, e.activation);
            }
            continue;
        }
        if (SERIAL_THRESHOLD + 1..=SMALL).contains(&work) && n >= 2 * one.kernels.panel() {
            // A region for B's panels would cost what it saves: every task makes its own.
            let size = n
                .div_ceil((work / SERIAL_THRESHOLD).clamp(2, 4))
                .next_multiple_of(one.kernels.panel());
            blocks(matrix(c, m, n), [m, size], 1, [0; 2], &|[_, column], c| {
                let panels = one.panels(cpu, column..column + c.ncols())?;
                let e = Epilogue {
                    bias: e.bias.map(|bias| &bias[column..]),
                    ..e
                };
                one.block(&panels, [0; 2], c, e, false);
                Ok(())
            })?;
            continue;
        }
        let step = stretch(&one);
        for from in (0..k.max(1)).step_by(step) {
            let to = k.min(from + step);
            let part = one.part(from, to);
            let panels = part.panels(cpu, 0..n)?;
            let e = if to == k { e } else { Epilogue::NONE };
            blocks(
                matrix(c, m, n),
                block_size(&part),
                one.kernels.tile(),
                [0; 2],
                &|origin, c| {
                    part.block(&panels, origin, c, e, from > 0);
                    Ok(())
                },
            )?;
        }
    }
    Ok(())
}

/// A small C with a long inner dimension: products of fixed parts of it in parallel, added in order.
fn split_product<A: Scalar>(cpu: &Cpu, one: GemmProblem<'_, A>, splits: usize, c: &mut [A]) -> Result<()> {
    let part = one.k.div_ceil(splits);
    let mut parts = cpu.scratch(A::DTYPE, c.len() * splits)?;
    let parts = parts.as_mut_slice::<A>();
    try_chunks_mut(parts, c.len(), true, |at, c| {
        let i = at / c.len();
        let one = one.part((i * part).min(one.k), ((i + 1) * part).min(one.k));
        one.block(
            &one.panels(cpu, 0..one.n)?,
            [0; 2],
            matrix(c, one.m, one.n),
            Epilogue::NONE,
            false,
        );
        Ok(())
    })?;
    sum_parts(parts, c);
    Ok(())
}
