//! The options of attention.

use crate::ops::residual::DropoutDraw;
use crate::{Backend, Indices, Tensor};

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
    /// Dropout of the weights (`dropout_p`): each is 0 or divided by 1 − p, by the numbers that [`Tensor::dropout_at`] draws for an
    /// array of all of them.
    pub dropout: Option<&'a DropoutDraw<B>>,
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
            dropout: None,
        }
    }
}

impl<B: Backend> Clone for AttentionOptions<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for AttentionOptions<'_, B> {}
