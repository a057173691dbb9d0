//! Attention of queries to keys and values of their own numbers of positions and heads, with masks.

use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::philox::{Key, drop_below};
use kiln_core::{Backend, Result};
use kiln_nn::{AttentionOptions, DropoutDraw, Indices, Init, Tensor};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct DotProduct {
    /// `[N, H, L, E]`
    q: Array,
    /// `[N, K, S, E]`, K a divisor of H
    k: Array,
    v: Array,
    /// The shape of the mask and of the bias: they broadcast to `[N, H, L, S]`.
    shape: Vec<usize>,
    mask: Option<Vec<u8>>,
    /// Multiples of a quarter, which are exact in every dtype.
    bias: Option<Vec<f64>>,
    causal: bool,
    /// The probability of dropout, if any.
    drop: Option<f64>,
    /// True for queries, keys and values that lie side by side, if they have one shape.
    pack: bool,
}

/// The seed and the step of every dropout, whose stream is the first of the seed.
const SEED: u64 = 5;
const STEP: u32 = 3;

impl DotProduct {
    /// The factor of a weight by dropout.
    fn factor(&self, at: [usize; 4]) -> f64 {
        let Some(p) = self.drop else { return 1.0 };
        let dims = [self.q.shape[1], self.q.shape[2], self.k.shape[2]];
        let number = dims.iter().zip(&at[1..]).fold(at[0], |number, (&d, &i)| number * d + i);
        let half = Key::new(SEED, 0, STEP).half(number as u64);
        if half < drop_below(p) { 0.0 } else { 1.0 / (1.0 - p) }
    }

    /// The largest factor of a weight.
    fn kept(&self) -> f64 {
        self.drop.map_or(1.0, |p| 1.0 / (1.0 - p))
    }

    /// The number of heads, if queries, keys and values can be packed side by side and are in half of the calls.
    fn packed(&self) -> Option<usize> {
        let same = self.q.shape == self.k.shape;
        Some(self.q.shape[1]).filter(|_| same && self.pack)
    }

    /// The place of a score's entry in the mask and in the bias.
    fn entry(&self, at: [usize; 4]) -> usize {
        let own = &at[4 - self.shape.len()..];
        let step = |place, (&i, &d): (&usize, &usize)| if d == 1 { place } else { place * d + i };
        own.iter().zip(&self.shape).fold(0, step)
    }

    /// The mean, weighted as by attention, of `f` of each value and of the largest magnitude of a score; 0 of nothing.
    fn mean(&self, x: &[Array], f: impl Fn(f64, f64) -> f64) -> Array {
        let (q, k, v) = (&x[0], &x[1], &x[2]);
        let (heads, keys, width) = (q.shape[1], k.shape[2], q.shape[3]);
        let group = heads / k.shape[1];
        Array::from_fn(&q.shape, |at| {
            let (n, h, i) = (at[0], at[1], at[2]);
            let seen = |j: &usize| {
                let masked = self.mask.as_ref().is_some_and(|m| m[self.entry([n, h, i, *j])] == 0);
                !masked && (!self.causal || *j <= i)
            };
            let seen: Vec<usize> = (0..keys).filter(seen).collect();
            let score = |&j: &usize| {
                let product: f64 = (0..width)
                    .map(|c| q.at(&[n, h, i, c]) * k.at(&[n, h / group, j, c]))
                    .sum();
                let bias = self.bias.as_ref().map_or(0.0, |bias| bias[self.entry([n, h, i, j])]);
                product / (width as f64).sqrt() + bias
            };
            let scores: Vec<f64> = seen.iter().map(score).collect();
            if scores.is_empty() {
                return 0.0;
            }
            let most = scores.iter().fold(f64::NEG_INFINITY, |m, &s| s.max(m));
            let size = scores.iter().fold(0.0, |m: f64, s| s.abs().max(m));
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let value = |j: usize| f(v.at(&[n, h / group, j, at[3]]), size) * self.factor([n, h, i, j]);
            let values = weights.iter().zip(&seen).map(|(w, &j)| w * value(j));
            values.sum::<f64>() / weights.iter().sum::<f64>()
        })
    }
}

impl Case for DotProduct {
    fn inputs(&self) -> Vec<Array> {
        vec![self.q.clone(), self.k.clone(), self.v.clone()]
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let mask = self
            .mask
            .as_ref()
            .map(|mask| Indices::from_slice(backend, mask, &self.shape));
        let bias = self
            .bias
            .as_ref()
            .map(|bias| Tensor::from_f64(backend, bias, &self.shape, x[0].dtype()));
        let (mask, bias) = (mask.transpose()?, bias.transpose()?);
        let step = Indices::from_slice(backend, &[STEP as i32], &[1])?;
        let draw = self.drop.map(|p| DropoutDraw {
            p,
            stream: Init::new(backend, SEED).next_stream(),
            step,
        });
        let options = AttentionOptions {
            mask: mask.as_ref(),
            bias: bias.as_ref(),
            causal: self.causal,
            scale: None,
            dropout: draw.as_ref(),
        };
        if let Some(heads) = self.packed() {
            // Each head's vectors after those of the head before, queries, keys and values side by side.
            let parts = x
                .iter()
                .map(|x| x.transpose(1, 2)?.flatten(2, -1))
                .collect::<Result<Vec<_>>>()?;
            let y = Tensor::concat(&[&parts[0], &parts[1], &parts[2]], -1)?.self_attention_with(heads, &options)?;
            return y.unflatten(-1, (heads, -1))?.transpose(1, 2);
        }
        x[0].scaled_dot_product_attention(&x[1], &x[2], &options)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.mean(x, |v, _| v)
    }

    /// As of self-attention; the bias is a term of the score.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let (keys, width) = (self.k.shape[2] as f64, self.q.shape[3] as f64);
        let magnitude = self.mean(x, |v, most| v.abs() * (1.0 + 4.0 * (most + 1.0)) * self.kept());
        Rounding::terms(keys + width + 14.0, magnitude).stored(2.0)
    }

    /// As of self-attention; keys and values have the sum over the heads that share them.
    fn slope_terms(&self, x: &[Array]) -> f64 {
        let all = x.iter().flat_map(|x| &x.data);
        let largest = all.fold(0.0, |m: f64, x| x.abs().max(m));
        let width = (self.q.shape[3] as f64).sqrt();
        let group = (self.q.shape[1] / self.k.shape[1]) as f64 * self.kept();
        2.0 * 1.5 * width * largest.powi(2) * (1.0 + 4.0 * width * largest.powi(2)) * group
    }
}

/// Other numbers of keys than of queries, heads that share keys, masks and biases of several shapes, dropout, packed or not, causal or not.
pub fn dot_product<B: Backend>(backend: &B) {
    let positions = || prop_oneof![8 => 1usize..6, 3 => prop::sample::select(vec![15usize, 17, 24, 25, 33, 65])];
    let width = prop_oneof![6 => 1usize..5, 2 => prop::sample::select(vec![8usize, 17, 40])];
    let heads = (1usize..3, 1usize..3);
    let choice = (
        1usize..3,
        positions(),
        positions(),
        heads,
        width,
        any::<bool>(),
        (
            0usize..4,
            0usize..3,
            prop::sample::select(vec![None, None, Some(0.25), Some(0.6)]),
        ),
        any::<bool>(),
    );
    let strategy = choice
        .prop_filter("at most 4096 elements", |(n, l, s, (k, g), d, ..)| {
            n * l.max(s) * k * g * d <= 4096
        })
        .prop_flat_map(|(n, l, s, (shared, group), d, causal, (kind, which, drop), pack)| {
            // Half of the calls have as many keys as queries and heads of their own.
            let (s, group) = if pack { (l, 1) } else { (s, group) };
            let heads = shared * group;
            let shape = match kind {
                0 => vec![l, s],
                1 => vec![n, 1, 1, s],
                2 => vec![n, heads, l, s],
                _ => vec![1, heads, 1, 1],
            };
            let len: usize = shape.iter().product();
            let of = |heads: usize, t: usize| shapes::values(&[n, heads, t, d], -1.5, 1.5);
            let masks = (
                prop::collection::vec(prop::sample::select(vec![0u8, 1, 1, 255]), len),
                prop::collection::vec(-4i32..5, len),
            );
            (of(heads, l), of(shared, s), of(shared, s), masks).prop_map(move |(q, k, v, (mask, bias))| DotProduct {
                q,
                k,
                v,
                shape: shape.clone(),
                mask: (which > 0).then(|| mask.clone()),
                bias: (which != 1 && kind > 0).then(|| bias.iter().map(|&b| f64::from(b) / 4.0).collect()),
                causal,
                drop,
                pack,
            })
        });
    check(backend, strategy);
}
