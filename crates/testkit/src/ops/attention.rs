//! Self-attention over packed queries, keys and values.

use crate::{Array, Case, check, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct SelfAttention {
    /// `[N, T, 3·H·D]`
    qkv: Array,
    heads: usize,
    causal: bool,
}

impl SelfAttention {
    /// Entries of a head's vectors.
    fn width(&self) -> usize {
        self.qkv.shape[2] / 3 / self.heads
    }

    fn largest(&self) -> f64 {
        self.qkv.data.iter().fold(0.0, |m, x| x.abs().max(m))
    }
}

impl Case for SelfAttention {
    fn inputs(&self) -> Vec<Array> {
        vec![self.qkv.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].self_attention(self.heads, self.causal)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let (n, t, d) = (self.qkv.shape[0], self.qkv.shape[1], self.width());
        let joined = self.heads * d;
        // Part 0 are queries, 1 keys, 2 values.
        let entry = |part: usize, n: usize, t: usize, column: usize| x[0].at(&[n, t, part * joined + column]);
        Array::from_fn(&[n, t, joined], |at| {
            let (n, i, head) = (at[0], at[1], at[2] / d * d);
            let seen = if self.causal { i + 1 } else { t };
            let score = |j: usize| {
                let product: f64 = (head..head + d).map(|c| entry(0, n, i, c) * entry(1, n, j, c)).sum();
                product / (d as f64).sqrt()
            };
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let most = scores.iter().fold(f64::NEG_INFINITY, |m, &s| s.max(m));
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let values = (0..seen).map(|j| weights[j] * entry(2, n, j, at[2]));
            values.sum::<f64>() / weights.iter().sum::<f64>()
        })
    }

    /// Of a composed form: with scores of at most S, scaling the queries and rounding the scores leave 2·S roundings in a
    /// score, twice that in a weight (its own and the sum's), which is rounded then, as is the result.
    fn roundings(&self) -> f64 {
        2.0 + 4.0 * self.largest().powi(2) * (self.width() as f64).sqrt()
    }

    /// Results are means of values.
    fn magnitude(&self) -> f64 {
        self.largest()
    }
}

/// Positions around the blocks of every backend, widths that fill no vector, with and without a mask.
pub fn self_attention<B: Backend>(backend: &B) {
    let positions = prop_oneof![
        8 => 1usize..6,
        1 => Just(0usize),
        4 => prop::sample::select(vec![15usize, 16, 17, 23, 24, 25, 31, 33, 47, 49]),
        2 => prop::sample::select(vec![95usize, 97, 127, 129]),
    ];
    let width = prop_oneof![6 => 1usize..5, 2 => prop::sample::select(vec![7usize, 16, 17, 33])];
    let choice = (0usize..3, positions, 1usize..4, width, any::<bool>(), 0.5f64..2.0);
    let strategy = choice
        .prop_filter("at most 8192 elements", |(n, t, h, d, ..)| n * t * 3 * h * d <= 8192)
        .prop_flat_map(|(n, t, heads, d, causal, range)| {
            shapes::values(&[n, t, 3 * heads * d], -range, range).prop_map(move |qkv| SelfAttention {
                qkv,
                heads,
                causal,
            })
        });
    check(backend, strategy);
}

/// Ranks and heads that do not fit are typed errors.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |dims: &[usize]| Tensor::zeros(backend, dims, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    for dims in [&[][..], &[12], &[2, 12], &[1, 1, 2, 12]] {
        refused!(zeros(dims).self_attention(2, true), Error::Rank { expected: "3", .. });
    }
    for (packed, heads) in [(12, 0), (12, 3), (13, 1), (12, 8), (12, usize::MAX)] {
        refused!(
            zeros(&[1, 2, packed]).self_attention(heads, false),
            Error::InvalidArgument { argument: "heads", .. }
        );
    }
}
