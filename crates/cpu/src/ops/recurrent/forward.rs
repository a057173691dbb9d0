//! All steps of a few sequences.

use super::call::{Call, matrix, row};
use super::gates::{self, Step};
use crate::gemm::{CTile, Epilogue, Panels, gemm_few_rows};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use kiln_core::Result;
use kiln_core::ops::Activation;
use ndarray::ArrayViewMut3;

/// The results of a task: its part of the states and of what is kept.
type Task<'a, A> = (ArrayViewMut3<'a, A>, Option<ArrayViewMut3<'a, A>>);

impl<A: Scalar> Call<'_, A> {
    pub(super) fn forward(&self, x: &[A], w: &[A], kept: Option<&mut [A]>, y: &mut [A]) -> Result<()> {
        if self.batch == 0 {
            return Ok(());
        }
        let panels = self.panels(w, true)?;
        let mut kept = kept
            .filter(|_| self.kept() > 0)
            .map(|kept| self.tasks(kept, self.kept()).into_iter());
        let mut tasks: Vec<Task<'_, A>> = Vec::new();
        for y in self.tasks(y, self.hidden) {
            tasks.push((y, kept.as_mut().and_then(Iterator::next)));
        }
        try_chunks_mut(&mut tasks, 1, self.parallel(), |i, task| {
            let (y, kept) = &mut task[0];
            self.sequence(&panels, i * self.sequences(), x, y, kept.as_mut())
        })
    }

    /// The steps of the sequences from `first` on.
    fn sequence(
        &self,
        w: &Panels<'_, A>,
        first: usize,
        x: &[A],
        y: &mut ArrayViewMut3<'_, A>,
        mut kept: Option<&mut ArrayViewMut3<'_, A>>,
    ) -> Result<()> {
        let (rows, width, hidden) = (y.dim().1, self.width(), self.hidden);
        let lasting = if self.c0.is_empty() { 0 } else { rows * hidden };
        let (apart, h_apart) = (Self::apart(width), Self::apart(hidden));
        let (mut products, mut h) = (
            self.cpu.scratch(A::DTYPE, rows * apart)?,
            self.cpu.scratch(A::DTYPE, rows * h_apart)?,
        );
        let mut c = self.cpu.scratch(A::DTYPE, lasting)?;
        let (products, h, c) = (
            products.as_mut_slice::<A>(),
            h.as_mut_slice::<A>(),
            c.as_mut_slice::<A>(),
        );
        for (n, h) in h.chunks_exact_mut(h_apart).enumerate() {
            h[..hidden].copy_from_slice(self.row(self.h0, first + n));
        }
        if lasting > 0 {
            c.copy_from_slice(&self.c0[first * hidden..][..lasting]);
        }
        let e = Epilogue {
            bias: self.bias,
            activation: Activation::None,
        };
        for i in 0..self.steps {
            let t = self.step(i);
            let to = CTile::new(matrix(products, apart, width));
            gemm_few_rows(self.kernels, (h, h_apart), w, to, e, false, i % 2 == 1);
            for n in 0..rows {
                let y = row(y, t, n);
                if t >= self.len(first + n) {
                    y.fill(A::ZERO);
                    continue;
                }
                let step = Step {
                    x: &x[(t * self.batch + first + n) * width..][..width],
                    products: &products[n * apart..][..width],
                };
                let h = &mut h[n * h_apart..][..hidden];
                let c = c.get_mut(n * hidden..(n + 1) * hidden);
                let kept = kept.as_deref_mut().map(|kept| row(kept, t, n));
                gates::forward(self.cell, &step, h, c, kept);
                y.copy_from_slice(h);
            }
        }
        if self.last_cells {
            for (n, c) in c.chunks_exact(hidden).enumerate() {
                row(y, self.steps, n).copy_from_slice(c);
            }
        }
        Ok(())
    }
}
