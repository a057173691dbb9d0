//! The parameters that all heads of an attention share, and views of their operands.

use crate::Cpu;
use crate::gemm::{BLOCK_WORK, BOperand, CTile, Epilogue, Kernels, Panels, gemm_nn};
use crate::scalar::Scalar;
use crate::simd::real::Real;
use crate::simd::row_reduce::LANES;
use kiln_core::Result;
use kiln_core::host::room;
use kiln_core::ops::AttentionParams;
use ndarray::{ArrayViewMut2, ArrayViewMut4, Axis, s};
use std::ops::Range;

/// The number of queries in a block: whole tiles of every instruction set, and few, because the causal scores of a block are
/// computed up to the last query's position. On a Zen 4 twelve took as long: fewer wasted scores, but more calls.
pub(super) const QUERIES: usize = 24;

/// The parameters that all heads share.
pub(super) struct Call<'a, A: 'static> {
    pub(super) cpu: &'a Cpu,
    pub(super) kernels: &'static Kernels<A>,
    pub(super) positions: usize,
    pub(super) width: usize,
    /// The number of entries of a position: of the result, and below of queries, keys and values together.
    pub(super) joined: usize,
    pub(super) packed: usize,
    /// The most keys of a block.
    pub(super) keys: usize,
    pub(super) causal: bool,
    pub(super) scale: A,
    /// The distance between rows of scores: whole lanes and one more cache line, so that rows do not share sets of a cache.
    pub(super) stride: usize,
    /// True if the work is worth starting threads.
    pub(super) parallel: bool,
}

impl<'a, A: Scalar + Real> Call<'a, A> {
    /// Those of blocks of at most `keys` keys.
    pub(super) fn new(cpu: &'a Cpu, kernels: &'static Kernels<A>, p: &AttentionParams, keys: usize) -> Self {
        let [positions, heads, width] = [p.positions, p.heads, p.width].map(|d| d as usize);
        debug_assert!(p.scale > 0.0, "masked scores are −∞ after scaling");
        Call {
            cpu,
            kernels,
            positions,
            width,
            joined: heads * width,
            packed: 3 * heads * width,
            keys,
            causal: p.causal == 1,
            scale: A::of(p.scale),
            stride: positions.min(keys).next_multiple_of(LANES) + 16,
            parallel: p.flops() > 2 * BLOCK_WORK as u64,
        }
    }

    /// The blocks of keys.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<usize>> {
        let (positions, keys) = (self.positions, self.keys);
        (0..positions)
            .step_by(keys)
            .map(move |from| from..(from + keys).min(positions))
    }

    /// The first query that attends to a key of a block.
    pub(super) fn first(&self, keys: &Range<usize>) -> usize {
        if self.causal { keys.start } else { 0 }
    }

    /// The end of the positions that any of the queries before `end` attends to.
    pub(super) fn seen(&self, end: usize) -> usize {
        if self.causal { end } else { self.positions }
    }

    /// The number of keys of a block that any of the queries before `end` attends to.
    pub(super) fn seen_of(&self, keys: &Range<usize>, end: usize) -> usize {
        self.seen(end).min(keys.end) - keys.start
    }

    /// Part `part` (query, key or value) of a head, from its first element on, in the packed input of its sequence.
    pub(super) fn part<'x>(&self, sequence: &'x [A], head: usize, part: usize) -> &'x [A] {
        &sequence[part * self.joined + head * self.width..]
    }

    /// Packs the transpose of a block of a head's vectors, `step` apart, as the right operand of a product.
    pub(super) fn turned(&self, x: &[A], step: usize, keys: &Range<usize>) -> Result<Panels<'static, A>> {
        let source = BOperand {
            data: &x[keys.start * step..],
            taps: &[0],
            steps: self.width,
            columns: keys.len(),
            k_step: 1,
            n_step: step,
        };
        Panels::packed_here(self.cpu, self.kernels, source)
    }

    /// The first `count` of a head's vectors, `step` apart, as the right operand of a product, read in place.
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

    /// Packs a block of a head's vectors, `step` apart, as the right operand of a product.
    pub(super) fn block(&self, x: &[A], step: usize, keys: &Range<usize>) -> Result<Panels<'static, A>> {
        let source = BOperand {
            data: &x[keys.start * step..],
            taps: &[0],
            steps: keys.len(),
            columns: self.width,
            k_step: step,
            n_step: 1,
        };
        Panels::packed_here(self.cpu, self.kernels, source)
    }

    /// Computes `c = a·b` for as many rows of `a`, `step` apart, as `c` has; with `add` the product is added to `c`.
    pub(super) fn product(&self, a: &[A], step: usize, b: &Panels<'_, A>, c: ArrayViewMut2<'_, A>, add: bool) {
        gemm_nn(self.kernels, (a, step), b, 0, CTile::new(c), Epilogue::NONE, add);
    }

    /// The first `columns` columns of `rows` rows of scores.
    pub(super) fn scores<'s>(&self, scores: &'s mut [A], rows: usize, columns: usize) -> ArrayViewMut2<'s, A> {
        let all = ArrayViewMut2::from_shape((rows, self.stride), &mut scores[..rows * self.stride]);
        all.expect("rows of scores").slice_move(s![.., ..columns])
    }
}

/// Splits `x [batch, positions, heads, width]` into a view `[positions, width]` for each head, sequence by sequence.
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
