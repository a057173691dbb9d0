//! All steps of a few sequences, from the last one back.

use super::call::{Call, matrix, row};
use super::gates::{self, Back};
use crate::gemm::{CTile, Epilogue, Panels, gemm_few_rows};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use kiln_core::Result;
use ndarray::ArrayViewMut3;

/// The arrays that the gradient reads.
pub(super) struct Given<'a, A> {
    pub(super) w: &'a [A],
    pub(super) kept: &'a [A],
    pub(super) y: &'a [A],
    pub(super) g: &'a [A],
}

/// The arrays that the gradient writes; `dr` and `dc0` are empty where the cell has none.
pub(super) struct Grads<'a, A> {
    pub(super) dx: &'a mut [A],
    pub(super) dr: &'a mut [A],
    pub(super) before: &'a mut [A],
    pub(super) dh0: &'a mut [A],
    pub(super) dc0: &'a mut [A],
}

/// A task's part of the results.
struct Task<'a, A> {
    dx: ArrayViewMut3<'a, A>,
    dr: Option<ArrayViewMut3<'a, A>>,
    before: ArrayViewMut3<'a, A>,
    dh0: &'a mut [A],
    dc0: &'a mut [A],
}

impl<A: Scalar> Call<'_, A> {
    pub(super) fn backward(&self, given: &Given<'_, A>, to: Grads<'_, A>) -> Result<()> {
        if self.batch == 0 {
            return Ok(());
        }
        let panels = self.panels(given.w, false)?;
        let (hidden, width) = (self.hidden, self.width());
        let mut dr = match to.dr.is_empty() {
            true => Vec::new(),
            false => self.tasks(to.dr, width),
        }
        .into_iter();
        let mut dc0 = to.dc0.chunks_mut(self.sequences() * hidden);
        let mut tasks = Vec::new();
        for ((dx, before), dh0) in self
            .tasks(to.dx, width)
            .into_iter()
            .zip(self.tasks(to.before, hidden))
            .zip(to.dh0.chunks_mut(self.sequences() * hidden))
        {
            tasks.push(Task {
                dx,
                dr: dr.next(),
                before,
                dh0,
                dc0: dc0.next().unwrap_or_default(),
            });
        }
        try_chunks_mut(&mut tasks, 1, self.parallel(), |i, task| {
            self.sequence_back(&panels, i * self.sequences(), given, &mut task[0])
        })
    }

    /// The steps of the sequences from `first` on. `dh0` and `dc0` hold the gradients of the states after each step on the way.
    fn sequence_back(&self, w: &Panels<'_, A>, first: usize, of: &Given<'_, A>, to: &mut Task<'_, A>) -> Result<()> {
        let (rows, width, hidden, kept) = (to.dx.dim().1, self.width(), self.hidden, self.kept());
        let apart = Self::apart(width);
        let mut dr = self.cpu.scratch(A::DTYPE, rows * apart)?;
        let dr = dr.as_mut_slice::<A>();
        let (dh, dc) = (&mut *to.dh0, &mut *to.dc0);
        dh.fill(A::ZERO);
        match self.last_cells {
            true => dc.copy_from_slice(&of.g[(self.steps * self.batch + first) * hidden..][..rows * hidden]),
            false => dc.fill(A::ZERO),
        }
        for i in (0..self.steps).rev() {
            let t = self.step(i);
            for n in 0..rows {
                let (dx, dr) = (row(&mut to.dx, t, n), &mut dr[n * apart..][..width]);
                let before = row(&mut to.before, t, n);
                let sequence = first + n;
                if t >= self.len(sequence) {
                    dx.fill(A::ZERO);
                    dr.fill(A::ZERO);
                    before.fill(A::ZERO);
                } else {
                    let at = |t: usize| t * self.batch + sequence;
                    let earlier = self.before(t, sequence);
                    before.copy_from_slice(match earlier {
                        Some(t) => self.row(of.y, at(t)),
                        None => self.row(self.h0, sequence),
                    });
                    let c = match earlier {
                        _ if self.c0.is_empty() => &[],
                        Some(t) => &of.kept[at(t) * kept + 4 * hidden..][..hidden],
                        None => self.row(self.c0, sequence),
                    };
                    let back = Back {
                        g: self.row(of.g, at(t)),
                        y: self.row(of.y, at(t)),
                        before,
                        kept: &of.kept[at(t) * kept..][..kept],
                        c,
                    };
                    let dh = &mut dh[n * hidden..][..hidden];
                    let dc = dc.get_mut(n * hidden..(n + 1) * hidden);
                    gates::backward(self.cell, &back, dh, dc, dx, dr);
                }
                if let Some(whole) = &mut to.dr {
                    row(whole, t, n).copy_from_slice(dr);
                }
            }
            let to = CTile::new(matrix(dh, hidden, hidden));
            gemm_few_rows(self.kernels, (dr, apart), w, to, Epilogue::NONE, true, i % 2 == 1);
        }
        Ok(())
    }
}
