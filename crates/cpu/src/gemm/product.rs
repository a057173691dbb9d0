//! Matrix products, by each of the algorithms of [`plan`](crate::gemm::plan).

#[cfg(test)]
mod tests;

use crate::Cpu;
use crate::epilogue::finish_rows;
use crate::gemm::blocking::Blocking;
use crate::gemm::pack::{KBlock, units};
use crate::gemm::plan::Algorithm;
use crate::gemm::shape::GemmShape;
use crate::gemm::{
    AOperand, BOperand, CTile, Epilogue, Gemm, Kernels, Panels, blocks, gemm_nn, gemm_nt_small, gemm_tn, matrix,
    streamed_blocks, sum_parts, transpose_tile,
};
use crate::parallel::try_chunks_mut;
use kiln_core::Result;
use ndarray::ArrayViewMut2;
use std::ops::Range;

/// A product of two matrices: its sizes and its operands.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a, A: 'static> {
    pub(crate) shape: GemmShape,
    a: &'a [A],
    b: &'a [A],
    /// The distance in elements from one stored row to the next, of A and of B.
    a_step: usize,
    b_step: usize,
    kernels: &'a Kernels<A>,
}

/// The micro-kernels for `n` columns: those with the shortest vectors that hold them.
fn kernels<A: Gemm>(n: usize) -> &'static Kernels<A> {
    let all = A::all_kernels();
    // The last set is the portable one, which is slower than any vector set of the machine.
    let narrow = all[..all.len() - 1].iter().rev().find(|k| n <= k.lanes);
    narrow.unwrap_or(&all[0])
}

impl<'a, A: Gemm> Product<'a, A> {
    /// The product of the matrices at the start of `a` and `b`, whose rows are adjacent.
    pub(crate) fn new(shape: GemmShape, a: &'a [A], b: &'a [A]) -> Self {
        let GemmShape { m, n, k, .. } = shape;
        Product {
            shape,
            a,
            b,
            a_step: if shape.trans_a { m } else { k },
            b_step: if shape.trans_b { k } else { n },
            kernels: kernels(n),
        }
    }

    /// The same product, restricted to the steps `from..to` of k.
    fn part(self, from: usize, to: usize) -> Self {
        let GemmShape { trans_a, trans_b, .. } = self.shape;
        Product {
            a: &self.a[from * if trans_a { self.a_step } else { 1 }..],
            b: &self.b[from * if trans_b { 1 } else { self.b_step }..],
            shape: GemmShape {
                k: to - from,
                ..self.shape
            },
            ..self
        }
    }

    /// `Bᵀ·Aᵀ`, which is `Cᵀ`.
    fn transposed(self) -> Self {
        Product {
            shape: self.shape.transposed(),
            a: self.b,
            b: self.a,
            a_step: self.b_step,
            b_step: self.a_step,
            kernels: kernels(self.shape.m),
        }
    }

    /// The columns `columns` of B, in place.
    fn source(&self, columns: Range<usize>) -> BOperand<'a, A> {
        let (k_step, n_step) = if self.shape.trans_b {
            (1, self.b_step)
        } else {
            (self.b_step, 1)
        };
        BOperand {
            data: &self.b[(columns.start * n_step).min(self.b.len())..],
            taps: &[0],
            steps: self.shape.k,
            columns: columns.len(),
            k_step,
            n_step,
        }
    }

    /// The columns `columns` of B, packed on this thread.
    fn panels(&self, cpu: &Cpu, columns: Range<usize>) -> Result<Panels<'a, A>> {
        Panels::packed_here(cpu, self.kernels, self.source(columns))
    }

    /// Computes a block of C, with its origin at row `row` and column `column` of the product; `add` adds to C.
    fn block(
        &self,
        b: &Panels<'_, A>,
        [row, column]: [usize; 2],
        mut c: ArrayViewMut2<'_, A>,
        e: Epilogue<'_, A>,
        add: bool,
    ) {
        if self.shape.trans_a {
            let a = AOperand {
                data: &self.a[row..],
                step: self.a_step,
            };
            gemm_tn(self.kernels, a, b, column, CTile::new(c.view_mut()), add);
            CTile::new(c).finish(column, e);
            return;
        }
        let a = (&self.a[row * self.a_step..], self.a_step);
        gemm_nn(self.kernels, a, b, column, CTile::new(c), e, add);
    }

    /// Computes the product by `algorithm`, which must support its shape.
    pub(crate) fn run(
        self,
        cpu: &Cpu,
        algorithm: Algorithm,
        blocking: &Blocking,
        c: &mut [A],
        e: Epilogue<'_, A>,
    ) -> Result<()> {
        let GemmShape { m, n, .. } = self.shape;
        let c = matrix(c, m, n);
        match algorithm {
            Algorithm::Packed => self.packed(cpu, blocking, c, e),
            Algorithm::PackedByTask => self.packed_by_task(cpu, blocking, c, e),
            Algorithm::Unpacked => self.unpacked(blocking, c, e),
            Algorithm::SmallM => self.small_m(c, e),
            Algorithm::InducedTranspose => self.induced_transpose(cpu, blocking, c, e),
            Algorithm::SplitK(parts) => self.split_k(cpu, parts, c, e),
            Algorithm::Words(_) => unreachable!("only halves are packed as words"),
        }
    }

    /// [`Algorithm::Packed`]
    fn packed(self, cpu: &Cpu, blocking: &Blocking, mut c: ArrayViewMut2<'_, A>, e: Epilogue<'_, A>) -> Result<()> {
        let GemmShape { n, k, .. } = self.shape;
        let all = units(1, k);
        let groups: Vec<&[KBlock]> = match k {
            0 => vec![&[]],
            _ => all.chunks(blocking.units_at_once(&self.shape)).collect(),
        };
        for group in groups {
            let from = group.first().map_or(0, |unit| unit.steps.start);
            let to = group.last().map_or(0, |unit| unit.steps.end);
            // Blocks of the whole product, so that its sums are rounded where those of other algorithms are.
            let inside = |unit: &KBlock| KBlock {
                taps: unit.taps.clone(),
                steps: unit.steps.start - from..unit.steps.end - from,
            };
            let part = self.part(from, to);
            let units = group.iter().map(inside).collect();
            let panels = Panels::packed_in(cpu, self.kernels, part.source(0..n), units)?;
            let e = if to == k { e } else { Epilogue::NONE };
            let size = blocking.shared(&part.shape, self.kernels);
            blocks(c.view_mut(), size, self.kernels.tile(), [0; 2], &|origin, c| {
                part.block(&panels, origin, c, e, from > 0);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// [`Algorithm::PackedByTask`]
    fn packed_by_task(self, cpu: &Cpu, blocking: &Blocking, c: ArrayViewMut2<'_, A>, e: Epilogue<'_, A>) -> Result<()> {
        let size = blocking.own(&self.shape, self.kernels);
        blocks(c, size, self.kernels.tile(), [0; 2], &|[row, column], c| {
            let panels = self.panels(cpu, column..column + c.ncols())?;
            let e = Epilogue {
                bias: e.bias.map(|bias| &bias[column..]),
                ..e
            };
            let own = Product {
                a: &self.a[row * if self.shape.trans_a { 1 } else { self.a_step }..],
                ..self
            };
            own.block(&panels, [0; 2], c, e, false);
            Ok(())
        })
    }

    /// [`Algorithm::Unpacked`]
    fn unpacked(self, blocking: &Blocking, c: ArrayViewMut2<'_, A>, e: Epilogue<'_, A>) -> Result<()> {
        let panels = Panels::direct(self.kernels, self.source(0..self.shape.n)).expect("rows of B are contiguous");
        let size = blocking.thin(&self.shape, self.kernels);
        blocks(c, size, self.kernels.tile(), [0; 2], &|origin, c| {
            self.block(&panels, origin, c, e, false);
            Ok(())
        })
    }

    /// [`Algorithm::SmallM`]
    fn small_m(self, c: ArrayViewMut2<'_, A>, e: Epilogue<'_, A>) -> Result<()> {
        let size = streamed_blocks(&self.shape, size_of::<A>());
        blocks(c, size, 1, [0; 2], &|[_, column], c| {
            let (a, b) = ((self.a, self.a_step), (self.b, self.b_step));
            gemm_nt_small(&A::kernels().dots, a, b, column, self.shape.k, CTile::new(c), e);
            Ok(())
        })
    }

    /// [`Algorithm::InducedTranspose`]
    fn induced_transpose(
        self,
        cpu: &Cpu,
        blocking: &Blocking,
        c: ArrayViewMut2<'_, A>,
        e: Epilogue<'_, A>,
    ) -> Result<()> {
        let swapped = self.transposed();
        let m = self.shape.m;
        let panels = Panels::packed(cpu, swapped.kernels, swapped.source(0..m))?;
        let columns = blocking.transposed(&self.shape, swapped.kernels);
        blocks(c, [m, columns], 1, [0; 2], &|[_, column], mut c| {
            let columns = c.ncols();
            let mut block = cpu.scratch(A::DTYPE, columns * m)?;
            let block = block.as_mut_slice::<A>();
            swapped.block(&panels, [column, 0], matrix(block, columns, m), Epilogue::NONE, false);
            transpose_tile(block, m, CTile::new(c.view_mut()));
            CTile::new(c).finish(column, e);
            Ok(())
        })
    }

    /// [`Algorithm::SplitK`]
    fn split_k(self, cpu: &Cpu, parts: usize, mut c: ArrayViewMut2<'_, A>, e: Epilogue<'_, A>) -> Result<()> {
        let GemmShape { m, n, k, .. } = self.shape;
        let part = k.div_ceil(parts);
        let mut sums = cpu.scratch(A::DTYPE, m * n * parts)?;
        let sums = sums.as_mut_slice::<A>();
        try_chunks_mut(sums, m * n, true, |at, c| {
            let i = at / (m * n);
            let one = self.part((i * part).min(k), ((i + 1) * part).min(k));
            let panels = one.panels(cpu, 0..n)?;
            one.block(&panels, [0; 2], matrix(c, m, n), Epilogue::NONE, false);
            Ok(())
        })?;
        let c = c.as_slice_mut().expect("C is one slice");
        sum_parts(sums, c);
        if !e.is_none() {
            finish_rows(c, n, e.bias, e.activation);
        }
        Ok(())
    }
}
