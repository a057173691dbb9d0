//! The sizes and operands of a recurrent layer's call, and the part of it that is a task.

use crate::Cpu;
use crate::gemm::{BOperand, Kernels, Panels, SERIAL_THRESHOLD};
use crate::scalar::Scalar;
use kiln_core::Result;
use kiln_core::ops::RecurrentCell;
use ndarray::{ArrayViewMut2, ArrayViewMut3, Axis, s};

/// The most sequences of a task: two tiles of AVX-512, which read the weight once.
const MOST: usize = 24;

/// The sequences whose products take as long as reading the weight from a third-level cache: fewer in a task save no time.
const FEW: usize = 4;

/// The sizes of a call and its operands but for the weight.
pub(super) struct Call<'a, A: 'static> {
    pub(super) cpu: &'a Cpu,
    pub(super) kernels: &'static Kernels<A>,
    pub(super) cell: RecurrentCell,
    pub(super) steps: usize,
    pub(super) batch: usize,
    pub(super) hidden: usize,
    pub(super) reverse: bool,
    pub(super) last_cells: bool,
    pub(super) bias: Option<&'a [A]>,
    pub(super) h0: &'a [A],
    pub(super) c0: &'a [A],
    pub(super) lengths: Option<&'a [i32]>,
}

impl<'a, A: Scalar> Call<'a, A> {
    /// The elements of the products of a step of one sequence.
    pub(super) fn width(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// The elements that a step of one sequence keeps.
    pub(super) fn kept(&self) -> usize {
        self.cell.kept() * self.hidden
    }

    /// The number of steps of sequence `n`.
    pub(super) fn len(&self, n: usize) -> usize {
        match self.lengths {
            Some(lengths) => usize::try_from(lengths[n]).unwrap_or(0).min(self.steps),
            None => self.steps,
        }
    }

    /// The step that is made in place `i`.
    pub(super) fn step(&self, i: usize) -> usize {
        if self.reverse { self.steps - 1 - i } else { i }
    }

    /// The step before step `t` of sequence `n`, if it is not the first.
    pub(super) fn before(&self, t: usize, n: usize) -> Option<usize> {
        match self.reverse {
            true => (t + 1 < self.len(n)).then_some(t + 1),
            false => t.checked_sub(1),
        }
    }

    /// Sequence `n` of `x`, a row for each.
    pub(super) fn row<'x>(&self, x: &'x [A], n: usize) -> &'x [A] {
        &x[n * self.hidden..][..self.hidden]
    }

    /// The sequences of a task: as many as leave every thread one. Those of a task read the weight together, and that is all they have
    /// in common, so that results do not depend on the number of threads.
    pub(super) fn sequences(&self) -> usize {
        let threads = if self.parallel() {
            rayon::current_num_threads()
        } else {
            1
        };
        let tasks = threads.min(self.batch.div_ceil(FEW)).max(self.batch.div_ceil(MOST));
        self.batch.div_ceil(tasks.max(1)).max(1)
    }

    /// The distance of rows of `columns` elements that products read or write: a cache line more than they need, because rows that are
    /// a multiple of 4 KiB apart share a set of a cache.
    pub(super) fn apart(columns: usize) -> usize {
        columns.next_multiple_of(16) + 16
    }

    /// True if tasks are worth other threads.
    pub(super) fn parallel(&self) -> bool {
        let products = self.width().saturating_mul(self.hidden);
        self.steps.saturating_mul(self.batch).saturating_mul(products) > SERIAL_THRESHOLD
    }

    /// The panels of the weight as the right operand of the products of states (`turned`), or of the gradients of those.
    pub(super) fn panels(&self, w: &[A], turned: bool) -> Result<Panels<'static, A>> {
        let (width, hidden) = (self.width(), self.hidden);
        let of_states = BOperand {
            data: w,
            taps: &[0],
            steps: hidden,
            columns: width,
            k_step: 1,
            n_step: hidden,
        };
        let of_gradients = BOperand {
            steps: width,
            columns: hidden,
            k_step: hidden,
            n_step: 1,
            ..of_states
        };
        Panels::packed(self.cpu, self.kernels, if turned { of_states } else { of_gradients })
    }

    /// The parts of `x`, `[rows, batch, width]`, that each task has: its sequences of all rows.
    pub(super) fn tasks<'x>(&self, x: &'x mut [A], width: usize) -> Vec<ArrayViewMut3<'x, A>> {
        let rows = x.len() / (self.batch * width).max(1);
        let all = ArrayViewMut3::from_shape((rows, self.batch, width), x).expect("rows of all sequences");
        split(all, self.sequences())
    }
}

/// Cuts an array along its second axis into parts of `size`.
fn split<A>(mut rest: ArrayViewMut3<'_, A>, size: usize) -> Vec<ArrayViewMut3<'_, A>> {
    let mut parts = Vec::new();
    while rest.len_of(Axis(1)) > size {
        let (part, after) = rest.split_at(Axis(1), size);
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// Row `n` of step `t` of a task's part of an array.
pub(super) fn row<'x, A>(x: &'x mut ArrayViewMut3<'_, A>, t: usize, n: usize) -> &'x mut [A] {
    let row = x.index_axis_mut(Axis(0), t).index_axis_move(Axis(0), n);
    row.into_slice().expect("rows are contiguous")
}

/// A view of the first `columns` of rows that are `step` apart.
pub(super) fn matrix<A>(c: &mut [A], step: usize, columns: usize) -> ArrayViewMut2<'_, A> {
    crate::gemm::matrix(c, c.len() / step.max(1), step).slice_move(s![.., ..columns])
}
