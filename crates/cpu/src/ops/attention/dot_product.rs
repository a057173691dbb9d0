//! Attention of queries to keys and values that lie apart, with masks: a head of the queries at a time, and for the gradient a head
//! of the keys with all heads of the queries that share it.

use super::backward::slopes;
use super::call::{QUERIES, by_head};
use super::forward::exponentials;
use crate::gemm::microkernel::DOTS;
use crate::gemm::{
    AOperand, BLOCK_WORK, BOperand, CTile, Epilogue, Kernels, Panels, Segment, gemm_nn, gemm_nt_small,
    gemm_tn_segmented,
};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::row_reduce::LANES;
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use kiln_core::host::room;
use kiln_core::ops::{AttentionMasks, AttentionParams, DotProductAttentionParams};
use kiln_core::philox::{Key, drop_below, halves};
use ndarray::{ArrayViewMut2, s};

/// The operands.
#[derive(Clone, Copy)]
pub(super) struct Given<'a, A> {
    pub(super) q: &'a [A],
    pub(super) k: &'a [A],
    pub(super) v: &'a [A],
    pub(super) masks: Masks<'a, A>,
    /// True if queries, keys and values are parts of one array `[batch, positions, 3, heads, width]`, each from its first element on.
    pub(super) packed: bool,
}

impl<'a, A: Scalar> Given<'a, A> {
    /// Those of packed queries, keys and values.
    pub(super) fn packed(p: &AttentionParams, qkv: &'a [A], masks: AttentionMasks<'a, CpuBuffer>) -> Self {
        let joined = (p.heads * p.width) as usize;
        let from = |part: usize| &qkv[(part * joined).min(qkv.len())..];
        Given {
            q: from(0),
            k: from(1),
            v: from(2),
            masks: Masks::new(masks),
            packed: true,
        }
    }
}

/// The mask and the bias of the scores, and the step of dropout.
#[derive(Clone, Copy)]
pub(super) struct Masks<'a, A> {
    mask: Option<&'a [u8]>,
    bias: Option<&'a [A]>,
    step: Option<u32>,
}

impl<'a, A: Scalar> Masks<'a, A> {
    pub(super) fn new(of: AttentionMasks<'a, CpuBuffer>) -> Self {
        Masks {
            mask: of.mask.map(CpuBuffer::as_slice),
            bias: of.bias.map(CpuBuffer::as_slice),
            step: of.step.map(|step| step.as_slice::<i32>()[0] as u32),
        }
    }
}

/// The other operands of the gradient.
#[derive(Clone, Copy)]
pub(super) struct Slopes<'a, A> {
    pub(super) lse: &'a [A],
    pub(super) g: &'a [A],
}

/// The vectors of a head, from the first one on, and the distance between two of them.
#[derive(Clone, Copy)]
struct Vectors<'a, A> {
    data: &'a [A],
    step: usize,
}

impl<'a, A> Vectors<'a, A> {
    /// Those from number `first` on, as the left operand of a product.
    fn from(self, first: usize) -> AOperand<'a, A> {
        AOperand {
            data: &self.data[first * self.step..],
            step: self.step,
        }
    }
}

/// The parameters that all heads share.
struct Call<'a, A: 'static> {
    cpu: &'a Cpu,
    kernels: &'static Kernels<A>,
    p: &'a DotProductAttentionParams,
    given: Given<'a, A>,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    scale: A,
    /// The factor of a bias before the scores are scaled.
    unscale: A,
    /// The distance between rows of scores.
    stride: usize,
    parallel: bool,
    /// The key and the probability of dropout, and the factor of the weights that it keeps.
    dropout: Option<(Key, u32, A)>,
}

impl<'a, A: Scalar + Real> Call<'a, A> {
    fn new(cpu: &'a Cpu, kernels: &'static Kernels<A>, p: &'a DotProductAttentionParams, given: Given<'a, A>) -> Self {
        let [heads, kv_heads, queries, keys, width] =
            [p.heads, p.kv_heads, p.queries, p.keys, p.width].map(|d| d as usize);
        Call {
            cpu,
            kernels,
            p,
            given,
            heads,
            kv_heads,
            queries,
            keys,
            width,
            scale: A::of(p.scale),
            unscale: A::of(1.0 / p.scale),
            stride: keys.next_multiple_of(LANES) + 16,
            parallel: p.flops() > 2 * BLOCK_WORK as u64,
            dropout: given
                .masks
                .step
                .filter(|_| p.drop > 0.0)
                .map(|step| (Key::new(p.seed, p.stream, step), drop_below(p.drop), A::of(p.kept()))),
        }
    }

    /// The number of keys that any of the queries before `end` may attend to.
    fn seen(&self, end: usize) -> usize {
        match self.p.causal {
            1 => end.min(self.keys),
            _ => self.keys,
        }
    }

    /// Head `head` of sequence `n` of an operand with `heads` heads of `positions` vectors.
    fn head<'x>(&self, x: &'x [A], [heads, positions]: [usize; 2], [n, head]: [usize; 2]) -> Vectors<'x, A> {
        let sequence = &x[n * heads * positions * self.width..];
        match self.p.heads_first {
            1 => Vectors {
                data: &sequence[head * positions * self.width..],
                step: self.width,
            },
            _ => Vectors {
                data: &sequence[head * self.width..],
                step: heads * self.width,
            },
        }
    }

    fn query_head<'x>(&self, x: &'x [A], n: usize, head: usize) -> Vectors<'x, A> {
        self.head(x, [self.heads, self.queries], [n, head])
    }

    /// A head of packed queries, keys or values, which begin with `x`.
    fn packed_head<'x>(&self, x: &'x [A], [n, head]: [usize; 2]) -> Vectors<'x, A> {
        let step = 3 * self.heads * self.width;
        Vectors {
            data: &x[n * self.queries * step + head * self.width..],
            step,
        }
    }

    /// Head `head` of the queries.
    fn own_queries(&self, n: usize, head: usize) -> Vectors<'a, A> {
        match self.given.packed {
            true => self.packed_head(self.given.q, [n, head]),
            false => self.query_head(self.given.q, n, head),
        }
    }

    /// Head `head` of keys or values.
    fn own_keys(&self, x: &'a [A], n: usize, head: usize) -> Vectors<'a, A> {
        match self.given.packed {
            true => self.packed_head(x, [n, head]),
            false => self.key_head(x, n, head),
        }
    }

    /// The factors of the weights of a query by dropout, of the first keys.
    fn draw(&self, [n, head, query]: [usize; 3], factors: &mut [A]) {
        let Some((key, below, kept)) = self.dropout else {
            return;
        };
        let first = (((n * self.heads + head) * self.queries + query) * self.keys) as u64;
        let (mut block, mut drawn) = (first / 8, halves(key.block(first / 8)));
        for (at, factor) in (first..).zip(factors) {
            if at / 8 != block {
                (block, drawn) = (at / 8, halves(key.block(at / 8)));
            }
            *factor = if drawn[(at % 8) as usize] < below {
                A::ZERO
            } else {
                kept
            };
        }
    }

    fn key_head<'x>(&self, x: &'x [A], n: usize, head: usize) -> Vectors<'x, A> {
        self.head(x, [self.kv_heads, self.p.room as usize], [n, head])
    }

    /// The views of all heads of a result, sequence by sequence.
    fn views<'x>(&self, x: &'x mut [A], heads: usize, positions: usize) -> Result<Vec<ArrayViewMut2<'x, A>>> {
        let batch = self.p.batch as usize;
        if self.p.heads_first == 0 {
            return by_head(x, [batch, positions, heads, self.width]);
        }
        let mut views = room(batch.saturating_mul(heads))?;
        let shape = (positions, self.width);
        let heads = x.chunks_exact_mut((positions * self.width).max(1));
        views.extend(heads.map(|head| ArrayViewMut2::from_shape(shape, head).expect("as many elements")));
        Ok(views)
    }

    /// The transpose of a head's vectors as the right operand of a product.
    fn turned(&self, x: Vectors<'_, A>) -> Result<Panels<'static, A>> {
        let source = BOperand {
            data: x.data,
            taps: &[0],
            steps: self.width,
            columns: self.keys,
            k_step: 1,
            n_step: x.step,
        };
        Panels::packed(self.cpu, self.kernels, source)
    }

    /// The first `count` of a head's vectors as the right operand of a product.
    fn lying<'x>(&self, x: Vectors<'x, A>, count: usize) -> Panels<'x, A> {
        let source = BOperand {
            data: x.data,
            taps: &[0],
            steps: count,
            columns: self.width,
            k_step: x.step,
            n_step: 1,
        };
        Panels::direct(self.kernels, source).expect("rows are contiguous and there are some")
    }

    fn product(&self, a: AOperand<'_, A>, b: &Panels<'_, A>, c: ArrayViewMut2<'_, A>) {
        let c = CTile::new(c);
        gemm_nn(self.kernels, (a.data, a.step), b, 0, c, Epilogue::NONE, false);
    }

    /// The first `columns` columns of `rows` rows of scores.
    fn scores<'s>(&self, scores: &'s mut [A], rows: usize, columns: usize) -> ArrayViewMut2<'s, A> {
        let all = ArrayViewMut2::from_shape((rows, self.stride), &mut scores[..rows * self.stride]);
        all.expect("rows of scores").slice_move(s![.., ..columns])
    }

    /// Adds the bias to the unscaled scores of a query and takes those of masked keys away. False if none is left.
    fn mask(&self, [n, head, query]: [usize; 3], row: &mut [A]) -> bool {
        let at = |strides: &[u64; 4]| {
            let [a, b, c, _] = strides.map(|s| s as usize);
            n * a + head * b + query * c
        };
        let Masks { mask, bias, .. } = self.given.masks;
        if let Some(bias) = bias {
            let (at, step) = (at(&self.p.bias), self.p.bias[3] as usize);
            for (j, s) in row.iter_mut().enumerate() {
                *s += bias[at + j * step] * self.unscale;
            }
        }
        if let Some(mask) = mask {
            let (at, step) = (at(&self.p.mask), self.p.mask[3] as usize);
            for (j, s) in row.iter_mut().enumerate() {
                if mask[at + j * step] == 0 {
                    *s = A::NEG_INFINITY;
                }
            }
        }
        (mask.is_none() && bias.is_none()) || row.iter().any(|&s| !(s == A::NEG_INFINITY))
    }

    /// Computes one head of a sequence.
    fn forward(&self, n: usize, head: usize, y: &mut ArrayViewMut2<'_, A>, lse: &mut [A]) -> Result<()> {
        let shared = head / (self.heads / self.kv_heads);
        let q = self.own_queries(n, head);
        let keys = self.own_keys(self.given.k, n, shared);
        // A few queries, as of a text that is continued, do not pay for turning all keys.
        let turned = (self.queries > DOTS).then(|| self.turned(keys)).transpose()?;
        let values = self.own_keys(self.given.v, n, shared);
        let mut scores = self.cpu.scratch(A::DTYPE, (QUERIES + 1) * self.stride)?;
        let (scores, factors) = scores.as_mut_slice::<A>().split_at_mut(QUERIES * self.stride);
        for first in (0..self.queries).step_by(QUERIES) {
            let end = (first + QUERIES).min(self.queries);
            let (count, seen) = (end - first, self.seen(end));
            let (q, c) = (q.from(first), self.scores(scores, count, seen));
            match &turned {
                Some(keys) => self.product(q, keys, c),
                None => {
                    let (q, keys) = ((q.data, q.step), (keys.data, keys.step));
                    gemm_nt_small(
                        &self.kernels.dots,
                        q,
                        keys,
                        0,
                        self.width,
                        CTile::new(c),
                        Epilogue::NONE,
                    );
                }
            }
            let mut sums = [A::ONE; QUERIES];
            for (i, row) in scores.chunks_exact_mut(self.stride).take(count).enumerate() {
                let row = &mut row[..seen.next_multiple_of(LANES)];
                let own = self.seen(first + i + 1);
                if !self.mask([n, head, first + i], &mut row[..own]) {
                    row.fill(A::ZERO);
                    lse[first + i] = A::ZERO;
                    continue;
                }
                (lse[first + i], sums[i]) = lanes::<A, _>(
                    #[inline(always)]
                    || exponentials(self.scale, row, own),
                );
                if self.dropout.is_some() {
                    self.draw([n, head, first + i], &mut factors[..own]);
                    drop_from(row, factors, own);
                }
            }
            let mut y = y.slice_mut(s![first..end, ..]);
            let weights = AOperand {
                data: &*scores,
                step: self.stride,
            };
            self.product(weights, &self.lying(values, seen), y.view_mut());
            for (mut y, &sum) in y.outer_iter_mut().zip(&sums) {
                let divided = A::ONE / sum;
                y.map_inplace(|y| *y = *y * divided);
            }
        }
        Ok(())
    }

    /// Computes the gradients of head `shared` of keys and values, and of the heads of the queries that share it.
    fn backward(&self, of: &Slopes<'_, A>, n: usize, shared: usize, task: &mut Task<'_, A>) -> Result<()> {
        let (k, v) = (
            self.own_keys(self.given.k, n, shared),
            self.own_keys(self.given.v, n, shared),
        );
        let (keys, values) = (self.turned(k)?, self.turned(v)?);
        let mut scratch = self.cpu.scratch(A::DTYPE, (2 * QUERIES + 1) * self.stride)?;
        let (p, rest) = scratch.as_mut_slice::<A>().split_at_mut(QUERIES * self.stride);
        let (ds, factors) = rest.split_at_mut(QUERIES * self.stride);
        task.dk.fill(A::ZERO);
        task.dv.fill(A::ZERO);
        for (member, dq) in task.dq.iter_mut().enumerate() {
            let head = shared * (self.heads / self.kv_heads) + member;
            let (q, g) = (self.own_queries(n, head), self.query_head(of.g, n, head));
            let lse = &of.lse[(n * self.heads + head) * self.queries..];
            for first in (0..self.queries).step_by(QUERIES) {
                let end = (first + QUERIES).min(self.queries);
                let (count, seen) = (end - first, self.seen(end));
                self.product(q.from(first), &keys, self.scores(p, count, seen));
                self.product(g.from(first), &values, self.scores(ds, count, seen));
                let rows = p.chunks_exact_mut(self.stride).zip(ds.chunks_exact_mut(self.stride));
                for (i, (p, ds)) in (first..end).zip(rows) {
                    let (own, whole) = (self.seen(i + 1), seen.next_multiple_of(LANES));
                    self.mask([n, head, i], &mut p[..own]);
                    if self.dropout.is_some() {
                        self.draw([n, head, i], &mut factors[..own]);
                        drop_from(ds, factors, own);
                    }
                    lanes::<A, _>(
                        #[inline(always)]
                        || slopes(self.scale, lse[i], None, &mut p[..whole], &mut ds[..whole], own),
                    );
                    if self.dropout.is_some() {
                        drop_from(p, factors, own);
                    }
                }
                let slopes = AOperand {
                    data: &*ds,
                    step: self.stride,
                };
                self.product(slopes, &self.lying(k, seen), dq.slice_mut(s![first..end, ..]));
                let all = [Segment { a: 0, b: 0, len: count }];
                let sum = |a: &[A], b, c: &mut ArrayViewMut2<'_, A>| {
                    let a = AOperand {
                        data: a,
                        step: self.stride,
                    };
                    let c = CTile::new(c.slice_mut(s![..seen, ..]));
                    gemm_tn_segmented(self.kernels, &all, a, b, c, true);
                };
                sum(p, g.from(first), &mut task.dv);
                sum(ds, q.from(first), &mut task.dk);
            }
        }
        Ok(())
    }
}

/// Multiplies the first `count` numbers by their factors; what is dropped is 0 in any case.
fn drop_from<A: Scalar + Real>(x: &mut [A], factors: &[A], count: usize) {
    for (x, &factor) in x[..count].iter_mut().zip(factors) {
        *x = if factor == A::ZERO { A::ZERO } else { *x * factor };
    }
}

/// The gradients that are computed together: of a head of keys and values, and of the heads of the queries that share it.
struct Task<'a, A> {
    dq: Vec<ArrayViewMut2<'a, A>>,
    dk: ArrayViewMut2<'a, A>,
    dv: ArrayViewMut2<'a, A>,
}

pub(super) fn forward<A: Scalar + Real>(
    cpu: &Cpu,
    kernels: &'static Kernels<A>,
    p: &DotProductAttentionParams,
    given: Given<'_, A>,
    y: &mut [A],
    lse: &mut [A],
) -> Result<()> {
    if y.is_empty() || p.keys == 0 {
        y.fill(A::ZERO);
        return Ok(());
    }
    let call = Call::new(cpu, kernels, p, given);
    let views = call.views(y, call.heads, call.queries)?;
    let mut results = room(views.len())?;
    results.extend(views.into_iter().zip(lse.chunks_exact_mut(call.queries)));
    try_chunks_mut(&mut results, 1, call.parallel, |i, head| {
        let (y, lse) = &mut head[0];
        call.forward(i / call.heads, i % call.heads, y, lse)
    })
}

/// `gradients` are those of queries, keys and values.
pub(super) fn backward<A: Scalar + Real>(
    cpu: &Cpu,
    kernels: &'static Kernels<A>,
    p: &DotProductAttentionParams,
    given: Given<'_, A>,
    slopes: &Slopes<'_, A>,
    [dq, dk, dv]: [&mut [A]; 3],
) -> Result<()> {
    if dq.is_empty() || dk.is_empty() {
        for gradient in [dq, dk, dv] {
            gradient.fill(A::ZERO);
        }
        return Ok(());
    }
    let call = Call::new(cpu, kernels, p, given);
    let mut queries = call.views(dq, call.heads, call.queries)?.into_iter();
    let keys = call.views(dk, call.kv_heads, call.keys)?;
    let values = call.views(dv, call.kv_heads, call.keys)?;
    let mut tasks = room(keys.len())?;
    for (dk, dv) in keys.into_iter().zip(values) {
        let dq = queries.by_ref().take(call.heads / call.kv_heads).collect();
        tasks.push(Task { dq, dk, dv });
    }
    try_chunks_mut(&mut tasks, 1, call.parallel, |i, task| {
        call.backward(slopes, i / call.kv_heads, i % call.kv_heads, &mut task[0])
    })
}

/// The gradient of packed queries, keys and values.
pub(super) fn packed_backward<A: Scalar + Real>(
    cpu: &Cpu,
    kernels: &'static Kernels<A>,
    p: &DotProductAttentionParams,
    given: Given<'_, A>,
    slopes: &Slopes<'_, A>,
    dqkv: &mut [A],
) -> Result<()> {
    if dqkv.is_empty() {
        return Ok(());
    }
    let call = Call::new(cpu, kernels, p, given);
    // The parts of a sequence are the heads of the queries, then of the keys, then of the values.
    let parts = by_head(dqkv, [p.batch as usize, call.queries, 3 * call.heads, call.width])?;
    let mut parts = parts.into_iter();
    let mut tasks = room((p.batch as usize).saturating_mul(call.heads))?;
    for _ in 0..p.batch {
        let [q, k, v] = [0; 3].map(|_| parts.by_ref().take(call.heads).collect::<Vec<_>>());
        tasks.extend(
            q.into_iter()
                .zip(k)
                .zip(v)
                .map(|((q, dk), dv)| Task { dq: vec![q], dk, dv }),
        );
    }
    try_chunks_mut(&mut tasks, 1, call.parallel, |i, task| {
        call.backward(slopes, i / call.heads, i % call.heads, &mut task[0])
    })
}
