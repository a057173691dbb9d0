//! Attention of queries to keys and values that lie apart, with their own numbers of positions and heads, and masks.

use crate::ops::RandomParams;
use crate::{Error, Result, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of attention of queries `[batch, queries, heads, width]` to keys and values `[batch, keys, kv_heads, width]`; or
/// `[batch, heads, queries, width]` and `[batch, kv_heads, keys, width]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct DotProductAttentionParams {
    /// The number of sequences.
    pub batch: u64,
    /// The number of heads of the queries.
    pub heads: u64,
    /// The number of heads of keys and values, a divisor of `heads`: neighbouring heads of the queries share one.
    pub kv_heads: u64,
    /// The number of queries in a sequence.
    pub queries: u64,
    /// The number of keys, each with a value.
    pub keys: u64,
    /// The number of keys that each sequence, or each of its heads where these come before positions, has room for, at least `keys`, which
    /// come first; so with values. Gradients are of `keys` alone.
    pub room: u64,
    /// The number of entries in the vectors of a head.
    pub width: u64,
    /// The strides of a mask of the scores `[batch, heads, queries, keys]`, in elements: 0 where one entry serves all.
    pub mask: [u64; 4],
    /// The strides of a bias of the scores.
    pub bias: [u64; 4],
    /// The factor of the products of queries and keys. Positive.
    pub scale: f64,
    /// The probability that dropout zeroes a weight; 0 for no dropout.
    pub drop: f64,
    /// The run's seed.
    pub seed: u64,
    /// The Philox stream of dropout.
    pub stream: u32,
    /// Zero.
    pub pad: u32,
    /// 1 if query i attends to the keys up to i only.
    pub causal: u32,
    /// 1 if heads come before positions.
    pub heads_first: u32,
}
const _: () = assert!(size_of::<DotProductAttentionParams>() == 160);

impl DotProductAttentionParams {
    /// Parameters without mask, for queries of `[batch, heads, queries, width]` and keys and values of `kv`, the number of their
    /// heads and of their positions; in which order they lie, `heads_first` says.
    ///
    /// # Errors
    /// No heads, heads of the queries that those of the keys do not divide, a scale that is no finite number above 0.
    pub fn new(
        op: &'static str,
        [batch, heads, queries, width]: [usize; 4],
        [kv_heads, keys]: [usize; 2],
        scale: f64,
        causal: bool,
        heads_first: bool,
    ) -> Result<Self> {
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of the heads of the queries, {heads}");
            return Err(Error::invalid(op, "heads of the keys", kv_heads, expected));
        }
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(Error::invalid(op, "scale", scale, "a finite number above 0"));
        }
        // Some backends keep all scores in memory, so their number must not overflow.
        Shape::new(&[batch, heads, queries, keys])?;
        Ok(DotProductAttentionParams {
            batch: batch as u64,
            heads: heads as u64,
            kv_heads: kv_heads as u64,
            queries: queries as u64,
            keys: keys as u64,
            room: keys as u64,
            width: width as u64,
            mask: [0; 4],
            bias: [0; 4],
            scale,
            drop: 0.0,
            seed: 0,
            stream: 0,
            pad: 0,
            causal: u32::from(causal),
            heads_first: u32::from(heads_first),
        })
    }

    /// Attention to the first `keys` keys of those that there is room for, as of a cache that grows.
    pub fn first(self, keys: usize) -> Self {
        DotProductAttentionParams {
            keys: self.room.min(keys as u64),
            ..self
        }
    }

    /// These parameters with the dropout of `p`.
    pub fn dropout(self, p: &RandomParams) -> Self {
        DotProductAttentionParams {
            drop: p.a,
            seed: p.seed,
            stream: p.stream,
            ..self
        }
    }

    /// The factor of the weights that dropout keeps: 1/(1 − drop), and 0 where it keeps none.
    pub fn kept(&self) -> f64 {
        if self.drop < 1.0 { 1.0 / (1.0 - self.drop) } else { 0.0 }
    }

    /// The strides of an array of shape `dims` that broadcasts to the scores: 0 where its dimension is 1.
    pub fn strides(dims: [usize; 4]) -> [u64; 4] {
        let mut next = 1;
        let mut strides = [0; 4];
        for (stride, d) in strides.iter_mut().zip(dims).rev() {
            *stride = if d == 1 { 0 } else { next };
            next *= d as u64;
        }
        strides
    }

    /// The number of rows of scores, each with one log-sum-exp: `batch · heads · queries`.
    pub fn rows(&self) -> usize {
        (self.batch * self.heads * self.queries) as usize
    }

    /// The floating-point operations of the two products `q·kᵀ` and `p·v` over the pairs of positions that attend to each other by
    /// `causal`; masks count for nothing. The gradient takes twice as many.
    pub fn flops(&self) -> u64 {
        let (l, s) = (self.queries, self.keys);
        let pairs = if self.causal == 1 {
            // Rows of 1, 2, … keys, the later ones of all keys.
            let growing = l.min(s);
            (growing.saturating_mul(growing + 1) / 2).saturating_add(l.saturating_sub(s).saturating_mul(s))
        } else {
            l.saturating_mul(s)
        };
        [self.batch, self.heads, self.width, pairs]
            .into_iter()
            .fold(4, u64::saturating_mul)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(heads: [usize; 2], causal: bool) -> Result<DotProductAttentionParams> {
        DotProductAttentionParams::new("t", [2, heads[0], 5, 4], [heads[1], 3], 0.5, causal, true)
    }

    #[test]
    fn heads_are_shared_evenly() {
        assert_eq!(params([6, 2], false).unwrap().rows(), 60);
        for heads in [[6, 4], [6, 0], [0, 1], [2, 4]] {
            let e = params(heads, false).unwrap_err();
            assert!(matches!(e, Error::InvalidArgument { .. }), "{e}");
        }
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let e = DotProductAttentionParams::new("t", [1; 4], [1, 1], scale, false, false).unwrap_err();
            assert!(matches!(e, Error::InvalidArgument { argument: "scale", .. }), "{e}");
        }
    }

    #[test]
    fn only_pairs_that_see_each_other_count() {
        assert_eq!(params([2, 1], false).unwrap().flops(), 4 * 2 * 2 * 4 * 15);
        // Rows of 1, 2, 3, 3, 3 keys.
        assert_eq!(params([2, 1], true).unwrap().flops(), 4 * 2 * 2 * 4 * 12);
    }

    #[test]
    fn the_first_keys_are_at_most_those_that_there_are() {
        let p = params([2, 1], false).unwrap();
        let (few, all) = (p.first(2), p.first(9));
        assert_eq!(([few.keys, few.room], [all.keys, all.room]), ([2, 3], [3, 3]));
        assert_eq!(few.flops(), 4 * 2 * 2 * 4 * 10);
    }

    #[test]
    fn broadcast_dimensions_have_no_stride() {
        assert_eq!(DotProductAttentionParams::strides([2, 1, 1, 7]), [7, 0, 0, 1]);
        assert_eq!(DotProductAttentionParams::strides([1, 3, 5, 1]), [0, 5, 1, 0]);
    }
}
