//! Self-attention over packed queries, keys and values, and attention of queries to others.

mod dot_product;

pub use dot_product::dot_product;

use crate::{Array, Case, Rounding, check, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{KeyValueCache, Tensor};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct SelfAttention {
    /// `[N, T, 3·H·D]`
    qkv: Array,
    heads: usize,
    causal: bool,
    /// The numbers of positions of the calls in which a cache sees them; none for one call without a cache.
    pieces: Vec<usize>,
}

impl SelfAttention {
    /// Elements of a head's vectors.
    fn width(&self) -> usize {
        self.qkv.shape[2] / 3 / self.heads
    }
}

impl Case for SelfAttention {
    fn inputs(&self) -> Vec<Array> {
        vec![self.qkv.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        if self.pieces.is_empty() {
            return x[0].self_attention(self.heads, self.causal);
        }
        let (mut cache, mut parts) = (KeyValueCache::new(), Vec::new());
        for (i, &piece) in self.pieces.iter().enumerate() {
            let seen = cache.len();
            let part = x[0].narrow(1, seen, piece)?;
            if i % 3 == 1 {
                // What a copy sees, or a cache forgets, changes nothing.
                let other = part.mul_scalar(0.5)?;
                other.self_attention_cached(self.heads, &mut cache.clone())?;
                other.self_attention_cached(self.heads, &mut cache)?;
                cache.truncate(seen);
            }
            parts.push(part.self_attention_cached(self.heads, &mut cache)?);
        }
        Tensor::concat(&parts.iter().collect::<Vec<_>>(), 1)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.mean(&x[0], |v, _| v)
    }

    /// With scores of magnitude at most S, the relative error of a weight comes from the d products and sums of its score
    /// and of the largest one, relative to S each, twice (for the weight and for the sum of the weights), and from a few
    /// roundings of the exponential; that of the result also from the sum over t weights and values.
    ///
    /// The composed form in half precision rounds the scaled queries and the scores, which count 2·S roundings each, and the
    /// weights; `stored` is 2 because of second-order terms of these errors in a weight.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let (t, d) = (self.qkv.shape[1] as f64, self.width() as f64);
        let magnitude = self.mean(&x[0], |v, most| v.abs() * (1.0 + 4.0 * most));
        Rounding::terms(t + d + 12.0, magnitude).stored(2.0)
    }

    /// The derivative of a weight is a difference of products of a seed with values, one for each of the head's columns, times
    /// queries or keys over √d; it is multiplied by weights, which have errors too.
    fn slope_terms(&self, x: &[Array]) -> f64 {
        let largest = x[0].data.iter().fold(0.0, |m: f64, x| x.abs().max(m));
        let width = (self.width() as f64).sqrt();
        2.0 * 1.5 * width * largest.powi(2) * (1.0 + 4.0 * width * largest.powi(2))
    }
}

impl SelfAttention {
    /// The mean, weighted as by attention, of `f` of each value and of the largest magnitude of a score.
    fn mean(&self, x: &Array, f: impl Fn(f64, f64) -> f64) -> Array {
        let (n, t, d) = (self.qkv.shape[0], self.qkv.shape[1], self.width());
        let joined = self.heads * d;
        // Part 0 holds the queries, 1 the keys, 2 the values.
        let entry = |part: usize, n: usize, t: usize, column: usize| x.at(&[n, t, part * joined + column]);
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
            let size = scores.iter().fold(0.0, |m: f64, s| s.abs().max(m));
            let values = (0..seen).map(|j| weights[j] * f(entry(2, n, j, at[2]), size));
            values.sum::<f64>() / weights.iter().sum::<f64>()
        })
    }
}

/// Attention with numbers of positions around the block sizes of backends and head widths that fill no vector, causal or not.
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
                pieces: Vec::new(),
            })
        });
    check(backend, strategy);
}

/// Causal attention of positions that come in several calls, many of them one by one, is that of all of them.
pub fn cached<B: Backend>(backend: &B) {
    let piece = prop_oneof![3 => Just(1usize), 2 => 1usize..5, 1 => prop::sample::select(vec![15usize, 17, 33])];
    let pieces = prop::collection::vec(piece, 1..5);
    let width = prop_oneof![6 => 1usize..5, 2 => prop::sample::select(vec![8usize, 17])];
    let strategy = (1usize..3, pieces, 1usize..4, width, 0.5f64..2.0)
        .prop_filter("at most 4096 elements", |(n, pieces, h, d, _)| {
            n * pieces.iter().sum::<usize>() * 3 * h * d <= 4096
        })
        .prop_flat_map(|(n, pieces, heads, d, range)| {
            let dims = [n, pieces.iter().sum(), 3 * heads * d];
            shapes::values(&dims, -range, range).prop_map(move |qkv| SelfAttention {
                qkv,
                heads,
                causal: true,
                pieces: pieces.clone(),
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
    let mut cache = KeyValueCache::new();
    assert!(zeros(&[2, 3, 12]).self_attention_cached(2, &mut cache).is_ok());
    for dims in [[1, 1, 12], [2, 1, 24]] {
        refused!(
            zeros(&dims).self_attention_cached(2, &mut cache),
            Error::InvalidArgument { argument: "cache", .. }
        );
    }
    refused!(
        zeros(&[2, 12]).self_attention_cached(2, &mut cache),
        Error::Rank { expected: "3", .. }
    );
    assert_eq!(cache.len(), 3);
}
