//! A block of C: sums in f32 over all blocks of k, then the epilogue and the one rounding.

use crate::epilogue::{Epilogue, finish_rows};
use crate::gemm::halves::{Half, HalfKernels, HalfPanels, Source, pack_rows};
use crate::gemm::pack::Panels;
use crate::gemm::{CTile, RowMap, gemm_nn, matrix};
use crate::simd::lanes::from_acc;
use crate::simd::tiles::{SIDE, TileProduct, Tiles};
use crate::{Cpu, CpuBuffer};
use kiln_core::{DType, Result};
use ndarray::s;
use std::ops::Range;

/// The sums of a block of C while they are computed, and the packed rows of A of one block of k.
pub(crate) struct Block {
    kernels: HalfKernels,
    rows: usize,
    columns: usize,
    /// The distance in words between rows of the sums, and of A.
    sum_step: usize,
    step: usize,
    /// The sums, then the rows of A.
    memory: CpuBuffer,
}

impl Block {
    /// Memory for a block of C, and for its rows of A in blocks of at most `steps` steps of k.
    pub(crate) fn new(cpu: &Cpu, kernels: HalfKernels, [rows, columns]: [usize; 2], steps: usize) -> Result<Self> {
        // A cache line more, so that rows do not share a set of a cache.
        let [sum_step, step] = [columns.next_multiple_of(kernels.lanes()), kernels.words(steps)].map(|n| n + 16);
        let padded = rows.next_multiple_of(SIDE);
        Ok(Block {
            kernels,
            rows,
            columns,
            sum_step,
            step,
            memory: cpu.scratch(DType::F32, padded * (sum_step + step))?,
        })
    }

    /// Adds to the sums, or overwrites them with, the products of the rows `rows` of `a` and of block `i` of the panels from
    /// column `first` on.
    pub(crate) fn add<T: Half>(
        &mut self,
        a: &dyn Source<T>,
        rows: Range<usize>,
        b: &HalfPanels,
        i: usize,
        first: usize,
        add: bool,
    ) {
        debug_assert_eq!(rows.len(), self.rows);
        let steps = b.blocks[i].clone();
        let padded = self.rows.next_multiple_of(SIDE);
        let (sums, words) = self.memory.as_mut_slice::<f32>().split_at_mut(padded * self.sum_step);
        pack_rows(self.kernels, a, rows, steps.clone(), words, self.step);
        let size = [self.rows, self.columns, self.kernels.words(steps.len())];
        multiply(
            self.kernels,
            size,
            (words, self.step),
            (b.from(i, first), b.apart(i)),
            (sums, self.sum_step),
            add,
        );
    }

    /// Computes the product of the rows `rows` of `a` and of the panels from column `first` on.
    pub(crate) fn product<T: Half>(&mut self, a: &dyn Source<T>, rows: Range<usize>, b: &HalfPanels, first: usize) {
        if b.blocks.is_empty() {
            self.memory.as_mut_slice::<f32>().fill(0.0);
        }
        for i in 0..b.blocks.len() {
            self.add(a, rows.clone(), b, i, first, i > 0);
        }
    }

    /// Applies the epilogue, whose bias begins with the block's first column, and rounds the sums to rows of `c`.
    pub(crate) fn finish<T: Half>(&mut self, mut c: CTile<'_, T>, places: RowMap<'_>, e: Epilogue<'_, f32>) {
        let (rows, columns, step) = (self.rows, self.columns, self.sum_step);
        let bias = e.bias.map(|bias| &bias[..columns]);
        let sums = self.memory.as_mut_slice::<f32>();
        for (i, sums) in sums.chunks_exact_mut(step).take(rows).enumerate() {
            finish(&mut sums[..columns], bias, e, c.slice(places.get(i)));
        }
    }

    /// The sums, `[rows, columns]` with rows as far apart as the second result says.
    pub(crate) fn sums(&self) -> (&[f32], usize) {
        (self.memory.as_slice(), self.sum_step)
    }
}

/// Applies the epilogue to a row of sums and rounds it.
pub(crate) fn finish<T: Half>(sums: &mut [f32], bias: Option<&[f32]>, e: Epilogue<'_, f32>, to: &mut [T]) {
    finish_rows(sums, sums.len(), bias, e.activation);
    from_acc(sums, to);
}

/// Computes `C (+)= A·B` for `[m, n, words]`: the rows of A and of C lie as far apart as their steps say, those of A and C
/// past the last one up to the next multiple of 16 are there too. B is in panels, which begin `apart` after one another; `n` are
/// all of their columns, or those of the first panels.
pub(crate) fn multiply(
    kernels: HalfKernels,
    [m, n, words]: [usize; 3],
    (a, a_step): (&[f32], usize),
    (b, apart): (&[f32], usize),
    (c, c_step): (&mut [f32], usize),
    add: bool,
) {
    if m == 0 || n == 0 {
        return;
    }
    let width = kernels.panel();
    if let Some(vectors) = kernels.vectors() {
        let panels = Panels::lent(vectors, b, apart, [words, n], words.max(1));
        let c = matrix(&mut c[..m * c_step], m, c_step).slice_move(s![.., ..n]);
        gemm_nn(vectors, (a, a_step), &panels, 0, CTile::new(c), Epilogue::NONE, add);
        return;
    }
    let (rows, columns) = (m.next_multiple_of(SIDE), n.next_multiple_of(SIDE));
    assert!(words > 0 && words.is_multiple_of(SIDE), "whole tiles");
    assert!((rows - 1) * a_step + words <= a.len(), "rows of A");
    assert!(
        (rows - 1) * c_step + columns <= c.len() && columns <= c_step,
        "rows of C"
    );
    let last = (columns - 1) / width;
    assert!(
        last * apart + words * (columns - last * width) <= b.len(),
        "panels of B"
    );
    let tiles = Tiles::configure();
    for row in (0..rows).step_by(2 * SIDE) {
        for column in (0..columns).step_by(width) {
            let t = TileProduct {
                a: a[row * a_step..].as_ptr(),
                a_step,
                b: b[column / width * apart..].as_ptr(),
                words,
                c: c[row * c_step + column..].as_mut_ptr(),
                c_step,
                rows: (rows - row).div_ceil(SIDE).min(2),
                columns: (columns - column).div_ceil(SIDE).min(2),
                add,
            };
            // SAFETY: the operands were compared with the sizes above; C is exclusively borrowed.
            unsafe { tiles.multiply(&t) };
        }
    }
}
