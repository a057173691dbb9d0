//! Attention of separate queries, keys and values, with masks.

use super::definition::composed;
use super::fused::{self, OP};
use super::options::AttentionOptions;
use crate::autograd::Cast;
use crate::ops::index::above;
use crate::{Backend, DType, Error, Result, Tensor};

/// A score so low that its weight is 0, and finite, so that a query without any key has finite weights and gradients.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65504.0,
        _ => -1e30,
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The weights of attention before dropout: the softmax over the keys of `scale·q·kᵀ + bias`, where a masked key has weight 0.
    /// Queries `[…, L, E]` and keys `[…, S, E]` give `[…, L, S]`.
    ///
    /// ```
    /// # use kiln_nn::{AttentionOptions, DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (q, k) = (Tensor::ones(&cpu, &[1, 2, 4], DType::F32)?, Tensor::ones(&cpu, &[1, 3, 4], DType::F32)?);
    /// let weights = q.attention_weights(&k, &AttentionOptions::default())?;
    /// assert_eq!(weights.shape().dims(), [1, 2, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::scaled_dot_product_attention`].
    pub fn attention_weights(&self, key: &Tensor<B>, options: &AttentionOptions<'_, B>) -> Result<Tensor<B>> {
        if self.rank().min(key.rank()) < 2 {
            return Err(Error::Rank {
                op: OP,
                expected: "2 or more",
                rank: self.rank().min(key.rank()),
            });
        }
        let width = self.shape()[self.rank() - 1];
        let scale = options.scale.unwrap_or(1.0 / (width.max(1) as f64).sqrt());
        let mut scores = self.mul_scalar(scale)?.matmul_t(key, false, true)?;
        if let Some(bias) = options.bias {
            scores = scores.add(bias)?;
        }
        let low = lowest(scores.dtype());
        if options.causal {
            let [l, s] = [2, 1].map(|i| scores.shape()[scores.rank() - i]);
            scores = scores.masked_fill(&above(self.backend(), [l, s], 0)?, low)?;
        }
        let Some(mask) = options.mask else {
            return scores.softmax(-1);
        };
        let fill = |value| Tensor::full(self.backend(), &[], scores.dtype(), value);
        let weights = Tensor::where_(mask, &scores, &fill(low)?)?.softmax(-1)?;
        let weights = Tensor::where_(mask, &weights, &fill(0.0)?)?;
        if !options.causal {
            return Ok(weights);
        }
        // Later keys have a share in the weights of a query all of whose keys are masked.
        let [l, s] = [2, 1].map(|i| weights.shape()[weights.rank() - i]);
        weights.masked_fill(&above(self.backend(), [l, s], 0)?, 0.0)
    }

    /// Attention of queries `[…, L, E]` to keys `[…, S, E]` with values `[…, S, V]`, whose leading dimensions broadcast:
    /// the sum of the values, weighted by [`Tensor::attention_weights`] and with their dropout, `[…, L, V]`
    /// (`torch.nn.functional.scaled_dot_product_attention`; Vaswani et al., "Attention Is All You Need", 2017). Keys and values may
    /// have fewer heads, `[…, K, S, E]` for queries `[…, H, L, E]` with K a divisor of H: neighbouring heads of the queries share
    /// one (`enable_gqa`; Ainslie et al., "GQA", 2023).
    ///
    /// Where the backend has the op, the weights of all pairs are not stored, but computed again for the gradient, unless the leading
    /// dimensions differ otherwise, values are of another width than keys, or the bias has a gradient.
    ///
    /// ```
    /// use kiln_nn::{AttentionOptions, DType, Indices, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let [q, k, v] = [4, 6, 6].map(|t| Tensor::randn(&cpu, &[2, 3, t, 8], DType::F32, &mut Rng::new(t as u64)));
    /// // The last two keys of the second sample are padding.
    /// let mask = Indices::from_slice(&cpu, &[1u8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0], &[2, 1, 1, 6])?;
    /// let y = q?.scaled_dot_product_attention(&k?, &v?, &AttentionOptions::masked(&mask))?;
    /// assert_eq!(y.shape().dims(), [2, 3, 4, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Ranks below 2, shapes that do not agree, a mask that is not u8, memory.
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor<B>,
        value: &Tensor<B>,
        options: &AttentionOptions<'_, B>,
    ) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::low() {
            let (key, value) = (cast.of(key)?, cast.of(value)?);
            return cast.of(self)?.scaled_dot_product_attention(&key, &value, options);
        }
        match fused::attention([self, key, value], true, None, options)? {
            Some(y) => Ok(y),
            None => composed([self, key, value], options),
        }
    }
}
