//! The values that all heads of an attention share, and their operands.

use crate::Cpu;
use crate::gemm::{BLOCK_WORK, BOperand, CTile, Epilogue, Kernels, Panels, gemm_nn};
use crate::scalar::Scalar;
use crate::simd::real::Real;
use crate::simd::row_reduce::LANES;
use kiln_core::Result;
use kiln_core::host::room;
use kiln_core::ops::AttentionParams;
use ndarray::{ArrayViewMut2, ArrayViewMut4, Axis, s};

/// Queries that are looked at together: whole tiles of every instruction set, and few, because a block of causal scores is
/// computed up to the last one's position. Twelve took as long on a Zen 4: less is computed in vain, in more calls.
pub(super) const QUERIES: usize = 24;

/// The values that all heads share.
pub(super) struct Call<'a, A: 'static> {
    pub(super) cpu: &'a Cpu,
    pub(super) kernels: &'static Kernels<A>,
    pub(super) positions: usize,
    pub(super) width: usize,
    /// Entries of a position: of the result, and of queries, keys and values together.
    pub(super) joined: usize,
    pub(super) packed: usize,
    pub(super) causal: bool,
    pub(super) scale: A,
    /// Elements from one row of scores to the next: whole lanes, and a line more, so that rows do not share sets of a cache.
    pub(super) stride: usize,
    /// True when the work is worth threads.
    pub(super) parallel: bool,
}

impl<'a, A: Scalar + Real> Call<'a, A> {
    pub(super) fn new(cpu: &'a Cpu, kernels: &'static Kernels<A>, p: &AttentionParams) -> Self {
        let [positions, heads, width] = [p.positions, p.heads, p.width].map(|d| d as usize);
        debug_assert!(p.scale > 0.0, "masked scores are −∞ after scaling");
        Call {
            cpu,
            kernels,
            positions,
            width,
            joined: heads * width,
            packed: 3 * heads * width,
            causal: p.causal == 1,
            scale: A::of(p.scale),
            stride: positions.next_multiple_of(LANES) + 16,
            parallel: p.flops() > 2 * BLOCK_WORK as u64,
        }
    }

    /// Positions that some of the queries before `end` see.
    pub(super) fn seen(&self, end: usize) -> usize {
        if self.causal { end } else { self.positions }
    }

    /// Part number `part` of a head, from its first element on, in what is packed for its sequence.
    pub(super) fn part<'x>(&self, sequence: &'x [A], head: usize, part: usize) -> &'x [A] {
        &sequence[part * self.joined + head * self.width..]
    }

    /// The transpose of a head's vectors, `step` apart, as right operand.
    pub(super) fn turned(&self, x: &[A], step: usize) -> Result<Panels<'static, A>> {
        let source = BOperand {
            data: x,
            taps: &[0],
            steps: self.width,
            columns: self.positions,
            k_step: 1,
            n_step: step,
        };
        Panels::packed(self.cpu, self.kernels, source)
    }

    /// The first `count` of a head's vectors, `step` apart, as right operand, where they lie.
    pub(super) fn lying<'x>(&self, x: &'x [A], step: usize, count: usize) -> Panels<'x, A> {
        let source = BOperand {
            data: x,
            taps: &[0],
            steps: count,
            columns: self.width,
            k_step: step,
            n_step: 1,
        };
        Panels::direct(self.kernels, source).expect("rows are contiguous and there are some")
    }

    /// `c = a·b` for as many rows of `a`, `step` apart, as `c` has.
    pub(super) fn product(&self, a: &[A], step: usize, b: &Panels<'_, A>, c: ArrayViewMut2<'_, A>) {
        gemm_nn(self.kernels, (a, step), b, 0, CTile::new(c), Epilogue::NONE, false);
    }

    /// The first `columns` of some rows of scores.
    pub(super) fn scores<'s>(&self, scores: &'s mut [A], rows: usize, columns: usize) -> ArrayViewMut2<'s, A> {
        let all = ArrayViewMut2::from_shape((rows, self.stride), &mut scores[..rows * self.stride]);
        all.expect("rows of scores").slice_move(s![.., ..columns])
    }
}

/// The columns of every head, sequence by sequence: `[positions, width]` of `x [batch, positions, heads, width]`.
pub(super) fn by_head<A>(
    x: &mut [A],
    [batch, positions, heads, width]: [usize; 4],
) -> Result<Vec<ArrayViewMut2<'_, A>>> {
    let mut rest = ArrayViewMut4::from_shape((batch, positions, heads, width), x).expect("as many elements");
    let mut out = room(batch.saturating_mul(heads))?;
    for _ in 0..batch {
        let (sequence, after) = rest.split_at(Axis(0), 1);
        rest = after;
        let mut sequence = sequence.index_axis_move(Axis(0), 0);
        for _ in 0..heads {
            let (head, after) = sequence.split_at(Axis(1), 1);
            sequence = after;
            out.push(head.index_axis_move(Axis(1), 0));
        }
    }
    Ok(out)
}
