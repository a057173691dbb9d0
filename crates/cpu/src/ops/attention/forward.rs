//! The forward pass of attention: `y = softmax(scale·q·kᵀ)·v`, and the log-sum-exp of each row of scores.

use super::call::{Call, QUERIES, by_head};
use crate::Cpu;
use crate::gemm::Kernels;
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::row_reduce::{LANES, fold, sum};
use kiln_core::Result;
use kiln_core::host::room;
use kiln_core::ops::AttentionParams;
use ndarray::{ArrayViewMut2, s};

/// The results of a head: `[positions, width]`, and the log-sum-exp of every position.
type Head<'a, A> = (ArrayViewMut2<'a, A>, &'a mut [A]);

pub(super) fn run<A: Scalar + Real>(
    cpu: &Cpu,
    kernels: &'static Kernels<A>,
    p: &AttentionParams,
    qkv: &[A],
    y: &mut [A],
    lse: &mut [A],
) -> Result<()> {
    if y.is_empty() {
        return Ok(());
    }
    let call = Call::new(cpu, kernels, p, p.positions as usize);
    let (batch, heads) = (p.batch as usize, p.heads as usize);
    let y = by_head(y, [batch, call.positions, heads, call.width])?;
    let mut results: Vec<Head<'_, A>> = room(y.len())?;
    results.extend(y.into_iter().zip(lse.chunks_exact_mut(call.positions)));
    try_chunks_mut(&mut results, 1, call.parallel, |i, head| {
        let sequence = &qkv[i / heads * call.positions * call.packed..];
        call.forward(sequence, i % heads, &mut head[0])
    })
}

impl<A: Scalar + Real> Call<'_, A> {
    /// Computes one head of a sequence.
    fn forward(&self, sequence: &[A], head: usize, (y, lse): &mut Head<'_, A>) -> Result<()> {
        let [q, k, v] = [0, 1, 2].map(|part| self.part(sequence, head, part));
        let keys = self.turned(k, self.packed, &(0..self.positions))?;
        let mut scores = self.cpu.scratch(A::DTYPE, QUERIES * self.stride)?;
        let scores = scores.as_mut_slice::<A>();
        for first in (0..self.positions).step_by(QUERIES) {
            let end = (first + QUERIES).min(self.positions);
            let (count, seen) = (end - first, self.seen(end));
            self.product(
                &q[first * self.packed..],
                self.packed,
                &keys,
                self.scores(scores, count, seen),
                false,
            );
            let mut sums = [A::default(); QUERIES];
            lanes::<A, _>(
                #[inline(always)]
                || {
                    let rows = scores.chunks_exact_mut(self.stride).zip(lse[first..end].iter_mut());
                    for (i, (row, lse)) in rows.enumerate() {
                        let row = &mut row[..seen.next_multiple_of(LANES)];
                        (*lse, sums[i]) = exponentials(self.scale, row, self.seen(first + i + 1));
                    }
                },
            );
            let mut y = y.slice_mut(s![first..end, ..]);
            self.product(
                scores,
                self.stride,
                &self.lying(v, self.packed, seen),
                y.view_mut(),
                false,
            );
            for (mut y, &sum) in y.outer_iter_mut().zip(&sums) {
                let divided = A::ONE / sum;
                y.map_inplace(|y| *y = *y * divided);
            }
        }
        Ok(())
    }
}

/// Computes `e^(s − max s)` of the first `seen` scores of a row, 0 for the others; returns `max s + ln l` and their sum `l`.
#[inline(always)]
pub(super) fn exponentials<A: Real>(scale: A, row: &mut [A], seen: usize) -> (A, A) {
    let (row, rest) = row.split_at_mut(seen.next_multiple_of(LANES));
    row[seen..].fill(A::NEG_INFINITY);
    rest.fill(A::ZERO);
    // The maximum skips a NaN, but the sum does not.
    let most = scale
        * fold(
            row,
            A::NEG_INFINITY,
            #[inline(always)]
            |x| x,
            #[inline(always)]
            |a, b| if b > a { b } else { a },
        );
    for x in row.iter_mut() {
        *x = (*x * scale - most).exp();
    }
    let sum = sum(
        row,
        #[inline(always)]
        |x| x,
    );
    (most + sum.ln(), sum)
}
