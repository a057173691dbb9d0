//! Attention as one op, where its operands are what the op takes.

use super::definition::composed;
use super::options::AttentionOptions;
use crate::autograd::{Rule, RuleContext, is_grad_enabled, vjp};
use crate::ops::reduce::acc_dtype;
use crate::ops::residual::DropoutDraw;
use crate::{Backend, DType, Indices, Result, Tensor};
use kiln_core::ops::{AttentionMasks, AttentionOperands, DotProductAttentionParams, Op};

pub(super) const OP: &str = "attention";

/// The mask, the bias and the dropout of a call, kept for its gradient.
#[derive(Clone)]
pub(super) struct Masks<B: Backend> {
    mask: Option<Indices<B>>,
    bias: Option<Tensor<B>>,
    dropout: Option<DropoutDraw<B>>,
}

impl<B: Backend> Masks<B> {
    /// Those of `options`, and the strides of mask and bias and the dropout in `p`, whose scores are `[leading…, heads, queries, keys]`;
    /// nothing if an op does not take them.
    pub(super) fn new(
        options: &AttentionOptions<'_, B>,
        leading: &[usize],
        wide: DType,
        p: &mut DotProductAttentionParams,
    ) -> Result<Option<Self>> {
        if options.bias.is_some_and(Tensor::is_tracked) {
            return Ok(None);
        }
        if let Some(mask) = options.mask {
            let Some(strides) = strides(mask.shape().dims(), leading, p) else {
                return Ok(None);
            };
            if mask.dtype() != DType::U8 {
                return Ok(None);
            }
            p.mask = strides;
        }
        let bias = options.bias.map(|bias| bias.to_dtype(wide)).transpose()?;
        if let Some(bias) = &bias {
            let Some(strides) = strides(bias.shape().dims(), leading, p) else {
                return Ok(None);
            };
            p.bias = strides;
        }
        let dropout = options.dropout.filter(|draw| draw.p != 0.0);
        if let Some(draw) = dropout {
            *p = p.dropout(&draw.params(p.rows() * p.keys as usize)?);
        }
        Ok(Some(Masks {
            mask: options.mask.cloned(),
            bias: bias.map(|bias| bias.detach()),
            dropout: dropout.cloned(),
        }))
    }

    /// The operands of the op.
    pub(super) fn buffers(&self) -> AttentionMasks<'_, B::Buffer> {
        AttentionMasks {
            mask: self.mask.as_ref().map(Indices::buffer),
            bias: self.bias.as_ref().map(Tensor::buffer),
            step: self.dropout.as_ref().map(|draw| draw.step.buffer()),
        }
    }

    /// The options that they were made of.
    pub(super) fn options(&self, causal: u32, scale: f64) -> AttentionOptions<'_, B> {
        AttentionOptions {
            mask: self.mask.as_ref(),
            bias: self.bias.as_ref(),
            causal: causal == 1,
            scale: Some(scale),
            dropout: self.dropout.as_ref(),
        }
    }

    /// True if they change nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.mask.is_none() && self.bias.is_none() && self.dropout.is_none()
    }
}

fn operands<'a, B: Backend>([q, k, v]: [&'a Tensor<B>; 3], masks: &'a Masks<B>) -> AttentionOperands<'a, B::Buffer> {
    AttentionOperands {
        q: q.buffer(),
        k: k.buffer(),
        v: v.buffer(),
        masks: masks.buffers(),
    }
}

struct DotProductAttention<B: Backend> {
    p: DotProductAttentionParams,
    q: Tensor<B>,
    k: Tensor<B>,
    v: Tensor<B>,
    masks: Masks<B>,
    lse: B::Buffer,
}

impl<B: Backend> DotProductAttention<B> {
    /// The definition, of operands that lie as these do.
    fn composed(&self, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let options = self.masks.options(self.p.causal, self.p.scale);
        if self.p.heads_first == 1 {
            return composed([&x[0], &x[1], &x[2]], &options);
        }
        let [q, k, v] = [&x[0], &x[1], &x[2]].map(|x| x.transpose(1, 2));
        composed([&q?, &k?, &v?], &options)?.transpose(1, 2)
    }
}

impl<B: Backend> Rule<B> for DotProductAttention<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let inputs = [&self.q, &self.k, &self.v];
        if is_grad_enabled() {
            return vjp(&inputs, cx.grad, |x| self.composed(x));
        }
        let [mut dq, mut dk, mut dv] = [
            self.q.alloc_like(*self.q.shape())?,
            self.k.alloc_like(*self.k.shape())?,
            self.v.alloc_like(*self.v.shape())?,
        ];
        let (backend, y, g) = (self.q.backend(), cx.output().buffer(), cx.grad.buffer());
        backend.dot_product_attention_grad(
            &self.p,
            operands(inputs, &self.masks),
            y,
            &self.lse,
            g,
            &mut dq,
            &mut dk,
            &mut dv,
        )?;
        let gradients = inputs.into_iter().zip([dq, dk, dv]);
        Ok(gradients
            .map(|(x, dx)| Some(Tensor::from_buffer(backend, dx, *x.shape())))
            .collect())
    }

    fn saves_output(&self) -> bool {
        true
    }
}

/// The parameters of the op for queries, keys and values of these shapes, but for masks; nothing if it does not take them.
fn params(
    [q, k, v]: [&[usize]; 3],
    heads_first: bool,
    scale: Option<f64>,
    causal: bool,
) -> Option<DotProductAttentionParams> {
    let rank = q.len();
    if rank < 2 || k.len() != rank || v != k || q[rank - 1] != k[rank - 1] {
        return None;
    }
    // Sequences, heads and positions.
    let apart = |dims: &[usize]| match (heads_first, rank) {
        (true, 2) => [1, 1, dims[0]],
        (true, _) => [dims[..rank - 3].iter().product(), dims[rank - 3], dims[rank - 2]],
        (false, _) => [dims[0], dims[2], dims[1]],
    };
    let same = if rank < 3 { rank - 2 } else { rank - 3 };
    if q[..same] != k[..same] || q.contains(&0) || k.contains(&0) {
        return None;
    }
    let ([batch, heads, queries], [_, kv_heads, keys]) = (apart(q), apart(k));
    let scale = scale.unwrap_or(1.0 / (q[rank - 1] as f64).sqrt());
    let dims = [batch, heads, queries, q[rank - 1]];
    DotProductAttentionParams::new(OP, dims, [kv_heads, keys], scale, causal, heads_first).ok()
}

/// The strides of a mask of this shape, which broadcasts to scores of `[leading…, heads, queries, keys]`; nothing if they are none
/// of sequences, heads, queries and keys.
fn strides(mask: &[usize], leading: &[usize], p: &DotProductAttentionParams) -> Option<[u64; 4]> {
    let of_heads = [p.heads, p.queries, p.keys].map(|d| d as usize);
    let missing = (leading.len() + 3).checked_sub(mask.len())?;
    let dims: Vec<usize> = std::iter::repeat_n(1, missing).chain(mask.iter().copied()).collect();
    let (outer, inner) = dims.split_at(leading.len());
    let batch = if outer.iter().all(|&d| d == 1) {
        1
    } else if outer == leading {
        leading.iter().product()
    } else {
        return None;
    };
    if inner.iter().zip(of_heads).any(|(&d, all)| d != 1 && d != all) {
        return None;
    }
    Some(DotProductAttentionParams::strides([
        batch, inner[0], inner[1], inner[2],
    ]))
}

/// Attention of queries `[…, H, L, E]` to keys and values `[…, K, S, E]`, or where heads do not come first, of `[N, L, H, E]` to
/// `[N, S, K, E]`; nothing where the op does not take the operands. With `first` it is to so many keys at the beginning, without a
/// gradient.
pub(super) fn attention<B: Backend>(
    [q, k, v]: [&Tensor<B>; 3],
    heads_first: bool,
    first: Option<usize>,
    options: &AttentionOptions<'_, B>,
) -> Result<Option<Tensor<B>>> {
    let dtype = q.dtype();
    if !q.has_op(Op::DotProductAttention) || k.dtype() != dtype || v.dtype() != dtype {
        return Ok(None);
    }
    let shapes = [q, k, v].map(|x| x.shape().dims());
    let Some(mut p) = params(shapes, heads_first, options.scale, options.causal) else {
        return Ok(None);
    };
    if let Some(first) = first {
        p = p.first(first);
    }
    let leading = match (heads_first, q.rank()) {
        (true, rank) if rank > 3 => &shapes[0][..rank - 3],
        (true, _) => &[],
        (false, _) => &shapes[0][..1],
    };
    let wide = acc_dtype(dtype);
    let Some(masks) = Masks::new(options, leading, wide, &mut p)? else {
        return Ok(None);
    };
    let backend = q.backend();
    let (mut y, mut lse) = (q.alloc_like(*q.shape())?, backend.alloc(wide, p.rows())?);
    backend.dot_product_attention(&p, operands([q, k, v], &masks), &mut y, &mut lse)?;
    let y = Tensor::from_buffer(backend, y, *q.shape());
    Ok(Some(y.record(OP, &[q, k, v], || DotProductAttention {
        p,
        q: q.clone(),
        k: k.clone(),
        v: v.clone(),
        masks,
        lse,
    })))
}

/// Attention of `heads` heads side by side in the last dimension: queries `[N, L, H·E]` to keys and values `[N, S, H·E]`, where the
/// op takes the operands as they lie, and else of heads that are put before positions.
pub(crate) fn by_heads<B: Backend>(
    x: [&Tensor<B>; 3],
    heads: usize,
    options: &AttentionOptions<'_, B>,
) -> Result<Tensor<B>> {
    let [q, k, v] = x.map(|x| x.unflatten(-1, (heads, -1)));
    let [q, k, v] = [q?, k?, v?];
    if let Some(y) = attention([&q, &k, &v], false, None, options)? {
        return y.flatten(2, -1);
    }
    let [q, k, v] = [&q, &k, &v].map(|x| x.transpose(1, 2));
    let y = q?.scaled_dot_product_attention(&k?, &v?, options)?;
    y.transpose(1, 2)?.flatten(2, -1)
}

/// As [`by_heads`], to the first `keys` of the positions of keys and values alone.
pub(super) fn by_heads_of<B: Backend>(
    keys: usize,
    [q, k, v]: [&Tensor<B>; 3],
    heads: usize,
    options: &AttentionOptions<'_, B>,
) -> Result<Tensor<B>> {
    let tracked = [q, k, v].iter().any(|x| x.is_tracked());
    if k.shape()[1] != keys && !(tracked && is_grad_enabled()) {
        let [q, k, v] = [q, k, v].map(|x| x.unflatten(-1, (heads, -1)));
        if let Some(y) = attention([&q?, &k?, &v?], false, Some(keys), options)? {
            return y.flatten(2, -1);
        }
    }
    let [k, v] = [k, v].map(|x| x.narrow(1, 0, keys));
    by_heads([q, &k?, &v?], heads, options)
}
