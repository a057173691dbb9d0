//! Attention of separate queries, keys and values, with masks.

use crate::autograd::Cast;
use crate::ops::index::above;
use crate::ops::reduce::acc_dtype;
use crate::{Backend, DType, Error, Indices, Result, Tensor};

/// The keys that a query attends to, and how its scores are scaled. By default every query attends to every key.
///
/// ```
/// # use kiln_nn::{AttentionOptions, DType, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let q = Tensor::ones(&cpu, &[1, 2, 4], DType::F32)?;
/// let options = AttentionOptions { causal: true, scale: Some(1.0), ..Default::default() };
/// assert_eq!(q.attention_weights(&q, &options)?.to_vec::<f32>()?, [1.0, 0.0, 0.5, 0.5]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct AttentionOptions<'a, B: Backend> {
    /// A u8 mask that broadcasts to the scores `[…, L, S]`: a query attends to the keys whose entry is not 0 (a boolean
    /// `attn_mask` of PyTorch's function). Where that is none of them, the result is 0.
    pub mask: Option<&'a Indices<B>>,
    /// Numbers that broadcast to the scores and are added to them (a float `attn_mask` of PyTorch's function).
    pub bias: Option<&'a Tensor<B>>,
    /// Query i attends only to the keys up to i (`is_causal`).
    pub causal: bool,
    /// The factor of the products of queries and keys; 1/√E if it is `None`.
    pub scale: Option<f64>,
}

impl<'a, B: Backend> AttentionOptions<'a, B> {
    /// Attention to the keys whose entry of `mask` is not 0.
    ///
    /// ```
    /// # use kiln_nn::{AttentionOptions, DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (q, k) = (Tensor::ones(&cpu, &[1, 1, 4], DType::F32)?, Tensor::ones(&cpu, &[1, 3, 4], DType::F32)?);
    /// let mask = Indices::from_slice(&cpu, &[1u8, 1, 0], &[1, 3])?; // the last key is padding
    /// let weights = q.attention_weights(&k, &AttentionOptions::masked(&mask))?;
    /// assert_eq!(weights.to_vec::<f32>()?, [0.5, 0.5, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn masked(mask: &'a Indices<B>) -> Self {
        AttentionOptions {
            mask: Some(mask),
            ..Default::default()
        }
    }

    /// Attention of each query to the keys up to its own position.
    ///
    /// ```
    /// # use kiln_nn::{AttentionOptions, DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let q = Tensor::ones(&cpu, &[1, 2, 4], DType::F32)?;
    /// let weights = q.attention_weights(&q, &AttentionOptions::causal())?;
    /// assert_eq!(weights.to_vec::<f32>()?, [1.0, 0.0, 0.5, 0.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn causal() -> Self {
        AttentionOptions {
            causal: true,
            ..Default::default()
        }
    }
}

impl<B: Backend> Default for AttentionOptions<'_, B> {
    fn default() -> Self {
        AttentionOptions {
            mask: None,
            bias: None,
            causal: false,
            scale: None,
        }
    }
}

impl<B: Backend> Clone for AttentionOptions<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for AttentionOptions<'_, B> {}

/// A score so low that its weight is 0, and finite, so that a query without any key has finite weights and gradients.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65504.0,
        _ => -1e30,
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The weights of attention: the softmax over the keys of `scale·q·kᵀ + bias`, where a masked key has weight 0.
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
        const OP: &str = "attention";
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
        Tensor::where_(mask, &weights, &fill(0.0)?)
    }

    /// Attention of queries `[…, L, E]` to keys `[…, S, E]` with values `[…, S, V]`, whose leading dimensions broadcast:
    /// the sum of the values, weighted by [`Tensor::attention_weights`], `[…, L, V]`
    /// (`torch.nn.functional.scaled_dot_product_attention`; Vaswani et al., "Attention Is All You Need", 2017).
    ///
    /// It keeps the weights of all pairs for the gradient; [`Tensor::self_attention`] does not.
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
        let wide = acc_dtype(self.dtype());
        if wide == self.dtype() {
            return self.attention_weights(key, options)?.matmul(value);
        }
        // Scores of halves would be rounded before the exponential.
        let bias = options.bias.map(|bias| bias.to_dtype(wide)).transpose()?;
        let options = AttentionOptions {
            bias: bias.as_ref(),
            ..*options
        };
        let weights = self.to_dtype(wide)?.attention_weights(&key.to_dtype(wide)?, &options)?;
        weights.matmul(&value.to_dtype(wide)?)?.to_dtype(self.dtype())
    }
}
