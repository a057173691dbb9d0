//! The gradient of attention. The softmax is recomputed from the log-sum-exps, a block of queries at a time.

use super::call::{Call, QUERIES, by_head};
use crate::Cpu;
use crate::gemm::{AOperand, CTile, Kernels, Segment, gemm_tn_segmented, matrix};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::row_reduce::{LANES, sums};
use kiln_core::Result;
use kiln_core::host::room;
use kiln_core::ops::AttentionParams;
use ndarray::{ArrayView2, ArrayViewMut2, s};
use std::ops::Range;

/// The operands of the gradient.
pub(super) struct Given<'a, A> {
    pub(super) qkv: &'a [A],
    pub(super) y: &'a [A],
    pub(super) lse: &'a [A],
    pub(super) g: &'a [A],
}

/// The number of keys in a block: whole blocks of queries and whole panels of every instruction set. The packed keys and values of
/// a block, their gradients, and the scores of some queries with theirs stay in an L2 cache of 1 MiB.
const KEYS: usize = 12 * QUERIES;
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
    let call = Call::new(cpu, kernels, p, KEYS);
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
            y: &given.y[joined..],
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
    y: &'a [A],
    g: &'a [A],
    lse: &'a [A],
}

impl<A: Scalar + Real> Head<'_, A> {
    fn gradient(&self, [dq, dk, dv]: &mut [ArrayViewMut2<'_, A>; 3]) -> Result<()> {
        let call = self.call;
        let [q, k, v] = self.parts;
        let block = (BLOCK / call.stride / QUERIES * QUERIES).clamp(QUERIES, MOST);
        let (scores, most) = (block * call.stride, call.positions.min(KEYS) * call.width);
        let mut scratch = call.cpu.scratch(A::DTYPE, 2 * (scores + most) + call.positions)?;
        let (p, rest) = scratch.as_mut_slice::<A>().split_at_mut(scores);
        let (ds, rest) = rest.split_at_mut(scores);
        let (sum_k, rest) = rest.split_at_mut(most);
        let (sum_v, means) = rest.split_at_mut(most);
        let means = self.means(means);
        for keys in call.blocks() {
            let (turned, lying) = (call.turned(k, call.packed, &keys)?, call.block(k, call.packed, &keys)?);
            let values = call.turned(v, call.packed, &keys)?;
            for from in (call.first(&keys)..call.positions).step_by(block) {
                let to = (from + block).min(call.positions);
                for first in (from..to).step_by(QUERIES) {
                    let end = (first + QUERIES).min(to);
                    let (count, seen) = (end - first, call.seen_of(&keys, end));
                    let at = (first - from) * call.stride;
                    let (p, ds) = (&mut p[at..], &mut ds[at..]);
                    let of_p = call.scores(p, count, seen);
                    call.product(&q[first * call.packed..], call.packed, &turned, of_p, false);
                    let of_ds = call.scores(ds, count, seen);
                    call.product(&self.g[first * call.joined..], call.joined, &values, of_ds, false);
                    self.softmax(first..end, &keys, means, p, ds);
                    let dq = dq.slice_mut(s![first..end, ..]);
                    call.product(ds, call.stride, &lying.up_to(seen), dq, keys.start > 0);
                }
                let g = AOperand {
                    data: &self.g[from * call.joined..],
                    step: call.joined,
                };
                self.sum_queries(from..to, &keys, p, g, sum_v);
                let q = AOperand {
                    data: &q[from * call.packed..],
                    step: call.packed,
                };
                self.sum_queries(from..to, &keys, ds, q, sum_k);
            }
            for (sum, to) in [(&*sum_k, &mut *dk), (&*sum_v, &mut *dv)] {
                let sum = ArrayView2::from_shape((keys.len(), call.width), &sum[..keys.len() * call.width]);
                to.slice_mut(s![keys.clone(), ..])
                    .assign(&sum.expect("rows of the block"));
            }
        }
        Ok(())
    }

    /// The means `Σ p·(g·vᵀ)` of all queries, which are `Σ g·y`; `None` if a block has all keys, whose weights give them.
    fn means<'m>(&self, to: &'m mut [A]) -> Option<&'m [A]> {
        let call = self.call;
        if call.positions <= KEYS {
            return None;
        }
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (to, (y, g)) in to
                    .iter_mut()
                    .zip(self.y.chunks(call.joined).zip(self.g.chunks(call.joined)))
                {
                    [*to] = sums(
                        [&y[..call.width], &g[..call.width]],
                        #[inline(always)]
                        |[y, g]| [y * g],
                    );
                }
            },
        );
        Some(to)
    }

    /// Computes, from the scores of queries and a block of keys and `g·vᵀ`, the softmax and the gradient of the unscaled scores.
    fn softmax(&self, queries: Range<usize>, keys: &Range<usize>, means: Option<&[A]>, p: &mut [A], ds: &mut [A]) {
        let call = self.call;
        let columns = call.seen_of(keys, queries.end).next_multiple_of(LANES);
        lanes::<A, _>(
            #[inline(always)]
            || {
                let rows = p.chunks_exact_mut(call.stride).zip(ds.chunks_exact_mut(call.stride));
                for (i, (p, ds)) in queries.zip(rows) {
                    slopes(
                        call.scale,
                        self.lse[i],
                        means.map(|means| means[i]),
                        &mut p[..columns],
                        &mut ds[..columns],
                        call.seen_of(keys, i + 1),
                    );
                }
            },
        );
    }

    /// Computes `c[j] (+)= Σ a[i, j]·b[i]` over a block of queries, whose first row is the first of `a` and of `b`, for every
    /// key of a block that one of them attends to. Keys that no earlier block attended to are written, the others added to.
    fn sum_queries(&self, queries: Range<usize>, keys: &Range<usize>, a: &[A], b: AOperand<'_, A>, c: &mut [A]) {
        let call = self.call;
        let mut sum = |seen: Range<usize>, skipped: usize, add: bool| {
            if seen.is_empty() {
                return;
            }
            let a = AOperand {
                data: &a[skipped * call.stride + (seen.start - keys.start)..],
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
            let c = &mut c[(seen.start - keys.start) * call.width..][..seen.len() * call.width];
            let c = CTile::new(matrix(c, seen.len(), call.width));
            gemm_tn_segmented(call.kernels, &[all], a, b, c, add);
        };
        if !call.causal {
            return sum(keys.clone(), 0, queries.start > 0);
        }
        let end = queries.end.min(keys.end);
        sum(keys.start..queries.start.min(keys.end), 0, true);
        for first in (queries.start..end).step_by(QUERIES) {
            sum(first..(first + QUERIES).min(end), first - queries.start, false);
        }
    }
}

/// Computes in place, from the first `seen` scores `s` of a row and `g·vᵀ`: `p = e^(s − lse)` and the gradient of the
/// unscaled scores, `scale·p·(g·vᵀ − mean)`; zeros for the others. Without a `mean` it is `Σ p·(g·vᵀ)`.
#[inline(always)]
pub(super) fn slopes<A: Real>(scale: A, lse: A, mean: Option<A>, p: &mut [A], ds: &mut [A], seen: usize) {
    let whole = seen.next_multiple_of(LANES);
    p[seen..whole].fill(A::NEG_INFINITY);
    p[whole..].fill(A::ZERO);
    ds[seen..].fill(A::ZERO);
    let (p, ds) = (&mut p[..whole], &mut ds[..whole]);
    for p in p.iter_mut() {
        *p = (*p * scale - lse).exp();
    }
    let mean = mean.unwrap_or_else(
        #[inline(always)]
        || {
            let [mean] = sums(
                [&*p, &*ds],
                #[inline(always)]
                |[p, ds]| [p * ds],
            );
            mean
        },
    );
    for (&mut p, ds) in p.iter_mut().zip(ds) {
        *ds = p * (*ds - mean) * scale;
    }
}
