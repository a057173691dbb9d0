//! The gradient of attention. The softmax is recomputed from the log-sum-exps, a block of queries at a time.

use super::call::{Call, QUERIES, by_head};
use crate::Cpu;
use crate::gemm::{AOperand, CTile, Kernels, Segment, gemm_tn_segmented};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::row_reduce::{LANES, sums};
use kiln_core::Result;
use kiln_core::host::room;
use kiln_core::ops::AttentionParams;
use ndarray::{ArrayViewMut2, s};
use std::ops::Range;

/// The operands of the gradient.
pub(super) struct Given<'a, A> {
    pub(super) qkv: &'a [A],
    pub(super) lse: &'a [A],
    pub(super) g: &'a [A],
}

/// The approximate number of scores of a block of queries; with their gradients they stay in an L2 cache.
const BLOCK: usize = 96 * 256;
/// The largest number of queries in a block; the gradients of keys and values are summed over so many at once.
const MOST: usize = 4 * QUERIES;

pub(super) fn run<A: Scalar + Real>(
    cpu: &Cpu,
    kernels: &'static Kernels<A>,
    p: &AttentionParams,
    given: &Given<'_, A>,
    dqkv: &mut [A],
) -> Result<()> {
    if dqkv.is_empty() {
        return Ok(());
    }
    let call = Call::new(cpu, kernels, p);
    let (batch, heads) = (p.batch as usize, p.heads as usize);
    // The parts of a sequence are the heads of the queries, then of the keys, then of the values.
    let mut parts = by_head(dqkv, [batch, call.positions, 3 * heads, call.width])?.into_iter();
    let mut tasks = room(batch.saturating_mul(heads))?;
    for _ in 0..batch {
        let [q, k, v] = [0; 3].map(|_| parts.by_ref().take(heads).collect::<Vec<_>>());
        tasks.extend(q.into_iter().zip(k).zip(v).map(|((q, k), v)| [q, k, v]));
    }
    try_chunks_mut(&mut tasks, 1, call.parallel, |i, task| {
        let (sequence, head) = (i / heads * call.positions, i % heads);
        let joined = sequence * call.joined + head * call.width;
        let of = Head {
            call: &call,
            parts: [0, 1, 2].map(|part| call.part(&given.qkv[sequence * call.packed..], head, part)),
            g: &given.g[joined..],
            lse: &given.lse[i * call.positions..][..call.positions],
        };
        of.gradient(&mut task[0])
    })
}

/// The operands of one head of a sequence.
struct Head<'a, A: 'static> {
    call: &'a Call<'a, A>,
    /// The queries, keys and values.
    parts: [&'a [A]; 3],
    g: &'a [A],
    lse: &'a [A],
}

impl<A: Scalar + Real> Head<'_, A> {
    fn gradient(&self, [dq, dk, dv]: &mut [ArrayViewMut2<'_, A>; 3]) -> Result<()> {
        let call = self.call;
        let [q, k, v] = self.parts;
        let (keys, values) = (call.turned(k, call.packed)?, call.turned(v, call.packed)?);
        let block = (BLOCK / call.stride / QUERIES * QUERIES).clamp(QUERIES, MOST);
        let mut scratch = call.cpu.scratch(A::DTYPE, 2 * block * call.stride)?;
        let (p, ds) = scratch.as_mut_slice::<A>().split_at_mut(block * call.stride);
        for from in (0..call.positions).step_by(block) {
            let to = (from + block).min(call.positions);
            for first in (from..to).step_by(QUERIES) {
                let end = (first + QUERIES).min(to);
                let (count, seen) = (end - first, call.seen(end));
                let at = (first - from) * call.stride;
                let (p, ds) = (&mut p[at..], &mut ds[at..]);
                call.product(
                    &q[first * call.packed..],
                    call.packed,
                    &keys,
                    call.scores(p, count, seen),
                );
                call.product(
                    &self.g[first * call.joined..],
                    call.joined,
                    &values,
                    call.scores(ds, count, seen),
                );
                self.softmax(first, end, p, ds);
                let dq = dq.slice_mut(s![first..end, ..]);
                call.product(ds, call.stride, &call.lying(k, call.packed, seen), dq);
            }
            let g = AOperand {
                data: &self.g[from * call.joined..],
                step: call.joined,
            };
            self.sum_queries(from..to, p, g, dv);
            let q = AOperand {
                data: &q[from * call.packed..],
                step: call.packed,
            };
            self.sum_queries(from..to, ds, q, dk);
        }
        Ok(())
    }

    /// Computes, from the scores of queries `first..end` and `g·vᵀ`, the softmax and the gradient of the unscaled scores.
    fn softmax(&self, first: usize, end: usize, p: &mut [A], ds: &mut [A]) {
        let call = self.call;
        let columns = call.seen(end).next_multiple_of(LANES);
        lanes::<A, _>(
            #[inline(always)]
            || {
                let rows = p.chunks_exact_mut(call.stride).zip(ds.chunks_exact_mut(call.stride));
                for (i, (p, ds)) in (first..end).zip(rows) {
                    slopes(
                        call.scale,
                        self.lse[i],
                        &mut p[..columns],
                        &mut ds[..columns],
                        call.seen(i + 1),
                    );
                }
            },
        );
    }

    /// Computes `c[j] (+)= Σ a[i, j]·b[i]` over a block of queries, whose first row is the first of `a` and of `b`, for every
    /// key that one of them attends to. Keys that no earlier block attended to are written, the others added to.
    fn sum_queries(&self, queries: Range<usize>, a: &[A], b: AOperand<'_, A>, c: &mut ArrayViewMut2<'_, A>) {
        let call = self.call;
        let mut sum = |keys: Range<usize>, skipped: usize, add: bool| {
            if keys.is_empty() {
                return;
            }
            let a = AOperand {
                data: &a[skipped * call.stride + keys.start..],
                step: call.stride,
            };
            let b = AOperand {
                data: &b.data[skipped * b.step..],
                step: b.step,
            };
            let all = Segment {
                a: 0,
                b: 0,
                len: queries.len() - skipped,
            };
            let c = CTile::new(c.slice_mut(s![keys, ..]));
            gemm_tn_segmented(call.kernels, &[all], a, b, c, add);
        };
        if !call.causal {
            return sum(0..call.positions, 0, queries.start > 0);
        }
        sum(0..queries.start, 0, true);
        for first in queries.clone().step_by(QUERIES) {
            sum(first..(first + QUERIES).min(queries.end), first - queries.start, false);
        }
    }
}

/// Computes in place, from the first `seen` scores `s` of a row and `g·vᵀ`: `p = e^(s − lse)` and the gradient of the
/// unscaled scores, `scale·p·(g·vᵀ − Σ p·(g·vᵀ))`; zeros for the others.
#[inline(always)]
pub(super) fn slopes<A: Real>(scale: A, lse: A, p: &mut [A], ds: &mut [A], seen: usize) {
    let whole = seen.next_multiple_of(LANES);
    p[seen..whole].fill(A::NEG_INFINITY);
    p[whole..].fill(A::ZERO);
    ds[seen..].fill(A::ZERO);
    let (p, ds) = (&mut p[..whole], &mut ds[..whole]);
    for p in p.iter_mut() {
        *p = (*p * scale - lse).exp();
    }
    let [mean] = sums(
        [&*p, &*ds],
        #[inline(always)]
        |[p, ds]| [p * ds],
    );
    for (&mut p, ds) in p.iter_mut().zip(ds) {
        *ds = p * (*ds - mean) * scale;
    }
}
