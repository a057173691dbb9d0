//! Multi-head attention: over packed queries, keys and values, and of queries to keys and values that lie apart.

mod dot_product;

pub use dot_product::DotProductAttentionParams;

use super::{Op, RandomParams};
use crate::{Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of self-attention over `[batch, positions, 3, heads, width]`: queries, keys and values of all heads packed
/// side by side, as a single linear layer computes them.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct AttentionParams {
    /// The number of sequences.
    pub batch: u64,
    /// The number of positions in a sequence.
    pub positions: u64,
    /// The number of heads.
    pub heads: u64,
    /// The number of entries in the vectors of a head.
    pub width: u64,
    /// The strides of a mask of the scores `[batch, heads, positions, positions]`, in elements: 0 where one entry serves all.
    pub mask: [u64; 4],
    /// The strides of a bias of the scores.
    pub bias: [u64; 4],
    /// The factor of the products of queries and keys, by default 1/√width. Positive.
    pub scale: f64,
    /// The probability that dropout zeroes a weight; 0 for no dropout.
    pub drop: f64,
    /// The run's seed.
    pub seed: u64,
    /// The Philox stream of dropout.
    pub stream: u32,
    /// 1 for causal attention, in which a position attends to itself and earlier ones only.
    pub causal: u32,
}
const _: () = assert!(size_of::<AttentionParams>() == 128);

impl AttentionParams {
    /// Parameters for `qkv [N, T, 3·H·D]`, and the shape of the result, `[N, T, H·D]`.
    ///
    /// # Errors
    /// A rank other than 3, no heads, a last dimension that is no multiple of three times the heads.
    pub fn new(op: &'static str, qkv: &Shape, heads: usize, causal: bool) -> Result<(Self, Shape)> {
        let &[batch, positions, packed] = qkv.dims() else {
            return Err(Error::Rank {
                op,
                expected: "3",
                rank: qkv.rank(),
            });
        };
        if heads == 0 {
            return Err(Error::invalid(op, "heads", heads, "at least 1"));
        }
        if !heads.checked_mul(3).is_some_and(|parts| packed.is_multiple_of(parts)) {
            let expected = format!("a divisor of a third of the last dimension, {packed}");
            return Err(Error::invalid(op, "heads", heads, expected));
        }
        let width = packed / 3 / heads;
        let p = AttentionParams {
            batch: batch as u64,
            positions: positions as u64,
            heads: heads as u64,
            width: width as u64,
            mask: [0; 4],
            bias: [0; 4],
            scale: 1.0 / (width.max(1) as f64).sqrt(),
            drop: 0.0,
            seed: 0,
            stream: 0,
            causal: u32::from(causal),
        };
        // Some backends keep all scores in memory, so their number must not overflow.
        Shape::new(&[batch, heads, positions, positions])?;
        Ok((p, qkv.with(2, packed / 3)?))
    }

    /// These parameters with the dropout of `p`.
    pub fn dropout(self, p: &RandomParams) -> Self {
        AttentionParams {
            drop: p.a,
            seed: p.seed,
            stream: p.stream,
            ..self
        }
    }

    /// The same attention of operands that lie apart, heads after positions.
    pub fn apart(&self) -> DotProductAttentionParams {
        DotProductAttentionParams {
            batch: self.batch,
            heads: self.heads,
            kv_heads: self.heads,
            queries: self.positions,
            keys: self.positions,
            room: self.positions,
            width: self.width,
            mask: self.mask,
            bias: self.bias,
            scale: self.scale,
            drop: self.drop,
            seed: self.seed,
            stream: self.stream,
            pad: 0,
            causal: self.causal,
            heads_first: 0,
        }
    }

    /// The number of rows of scores, each with one log-sum-exp: `batch · heads · positions`.
    pub fn rows(&self) -> usize {
        (self.batch * self.heads * self.positions) as usize
    }

    /// The floating-point operations of the two products `q·kᵀ` and `p·v`, over the pairs of positions that attend to each
    /// other: about half of all pairs when causal. The gradient takes twice as many.
    pub fn flops(&self) -> u64 {
        let (t, causal) = (self.positions, self.causal == 1);
        let pairs = if causal {
            t.saturating_mul(t + 1) / 2
        } else {
            t.saturating_mul(t)
        };
        [self.batch, self.heads, self.width, pairs]
            .into_iter()
            .fold(4, u64::saturating_mul)
    }
}

/// The operands that change the weights of attention: a mask and a bias of the scores, and dropout of the weights.
#[derive(Debug)]
pub struct AttentionMasks<'a, B> {
    /// The u8 mask of the scores: a query attends to the keys whose entry is not 0.
    pub mask: Option<&'a B>,
    /// Numbers of the accumulation dtype (f32; f64 for f64) that are added to the scaled scores.
    pub bias: Option<&'a B>,
    /// The step of dropout, one i32 on the device, which is given where parameters have a probability above 0. The number of a weight is
    /// that of its place in `[batch, heads, queries, keys]`, so weights are dropped as
    /// [`RandomOps::dropout`](super::RandomOps::dropout) drops elements of an array of all of them.
    pub step: Option<&'a B>,
}

impl<B> Default for AttentionMasks<'_, B> {
    fn default() -> Self {
        AttentionMasks {
            mask: None,
            bias: None,
            step: None,
        }
    }
}

impl<B> Clone for AttentionMasks<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for AttentionMasks<'_, B> {}

/// The operands of [`AttentionOps::dot_product_attention`].
#[derive(Debug)]
pub struct AttentionOperands<'a, B> {
    /// The queries.
    pub q: &'a B,
    /// The keys.
    pub k: &'a B,
    /// The values.
    pub v: &'a B,
    /// Mask, bias and dropout; each is optional.
    pub masks: AttentionMasks<'a, B>,
}

impl<B> Clone for AttentionOperands<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for AttentionOperands<'_, B> {}

/// Attention of a backend, [`Op::Attention`] and [`Op::DotProductAttention`]; PyTorch's `scaled_dot_product_attention`.
pub trait AttentionOps: Runtime {
    /// Computes, for every sequence and head with `q`, `k` and `v` of `[positions, width]`, the scores `s = scale·q·kᵀ + bias`, −∞ where
    /// the mask is 0 and, if causal, where `j > i`; and `y = dropout(softmax(s))·v` (Vaswani et al. 2017). `y` is
    /// `[batch, positions, heads, width]`.
    ///
    /// Where a query attends to no key by mask and `causal`, or all scores of those it attends to are −∞, its `y` is 0 in a call with a
    /// mask or a bias, and its `lse` is not to be read.
    ///
    /// `lse`, `[batch, heads, positions]` of the accumulation dtype (f32; f64 for f64), is `ln Σ_j e^s[i, j]` (Dao et al.
    /// 2022), which [`attention_grad`] reads.
    ///
    /// A `v` that is not finite may reach positions that do not attend to it, where a backend multiplies it by zero.
    ///
    /// [`attention_grad`]: AttentionOps::attention_grad
    fn attention(
        &self,
        p: &AttentionParams,
        qkv: &Self::Buffer,
        masks: AttentionMasks<'_, Self::Buffer>,
        y: &mut Self::Buffer,
        lse: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, qkv, masks, y, lse);
        self.unsupported(Op::Attention)
    }

    /// Computes the gradient of the input from the input, the `y` and `lse` of [`attention`](AttentionOps::attention) and the
    /// gradient `g` of `y`. With `p = softmax(s)`: `dv = dropout(p)ᵀ·g`, `dp = dropout(g·vᵀ)`, `ds = p·(dp − Σ p·dp)`, `dq = scale·ds·k`,
    /// `dk = scale·dsᵀ·q`, where a backend may take `Σ g·y` for `Σ p·dp`, which it equals but for rounding. `dqkv` is packed as
    /// the input is. A bias has no gradient here.
    fn attention_grad(
        &self,
        p: &AttentionParams,
        qkv: &Self::Buffer,
        masks: AttentionMasks<'_, Self::Buffer>,
        y: &Self::Buffer,
        lse: &Self::Buffer,
        g: &Self::Buffer,
        dqkv: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, qkv, masks, y, lse, g, dqkv);
        self.unsupported(Op::Attention)
    }

    /// As [`attention`](AttentionOps::attention), of queries to keys and values of their own. `y` lies as the queries do.
    fn dot_product_attention(
        &self,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, Self::Buffer>,
        y: &mut Self::Buffer,
        lse: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, y, lse);
        self.unsupported(Op::DotProductAttention)
    }

    /// Computes the gradients of queries, keys and values, as [`attention_grad`](AttentionOps::attention_grad) does; those of a head that
    /// several heads of the queries share are the sum over them. A bias has no gradient here.
    fn dot_product_attention_grad(
        &self,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, Self::Buffer>,
        y: &Self::Buffer,
        lse: &Self::Buffer,
        g: &Self::Buffer,
        dq: &mut Self::Buffer,
        dk: &mut Self::Buffer,
        dv: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, y, lse, g, dq, dk, dv);
        self.unsupported(Op::DotProductAttention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(d: &[usize]) -> Shape {
        Shape::new(d).unwrap()
    }

    #[test]
    fn heads_share_the_last_dimension() {
        let (p, y) = AttentionParams::new("t", &shape(&[2, 5, 36]), 3, true).unwrap();
        assert_eq!((p.batch, p.positions, p.heads, p.width), (2, 5, 3, 4));
        assert_eq!((y.dims(), p.rows(), p.scale), (&[2, 5, 12][..], 30, 0.5));
        let (p, y) = AttentionParams::new("t", &shape(&[2, 5, 0]), 3, true).unwrap();
        assert_eq!((p.width, y.dims(), p.scale), (0, &[2, 5, 0][..], 1.0));
    }

    #[test]
    fn what_does_not_divide_is_refused() {
        let refused = |dims: &[usize], heads| AttentionParams::new("t", &shape(dims), heads, false).unwrap_err();
        assert!(matches!(refused(&[5, 36], 3), Error::Rank { rank: 2, .. }));
        assert!(matches!(refused(&[1, 1, 5, 36], 3), Error::Rank { rank: 4, .. }));
        for (packed, heads) in [(36, 0), (36, 5), (37, 1), (36, usize::MAX), (36, usize::MAX / 3 + 1)] {
            let e = refused(&[2, 5, packed], heads);
            assert!(matches!(e, Error::InvalidArgument { argument: "heads", .. }), "{e}");
        }
        assert!(matches!(refused(&[1, 1 << 40, 3], 1), Error::TooLarge { .. }));
    }

    #[test]
    fn only_pairs_that_see_each_other_count() {
        let flops = |causal| {
            AttentionParams::new("t", &shape(&[2, 5, 36]), 3, causal)
                .unwrap()
                .0
                .flops()
        };
        assert_eq!(flops(false), 2 * (2 * 2 * 3 * 5 * 5 * 4));
        assert_eq!(flops(true), 2 * (2 * 2 * 3 * 15 * 4));
    }
}
