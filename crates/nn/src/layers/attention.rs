//! Multi-head attention.

use super::{Dropout, Layer, Linear};
use crate::init::Initializer;
use crate::ops::by_heads;
use crate::{AttentionOptions, Backend, Error, Init, Module, Param, Result, Tensor, trace};
use kiln_core::ops::Activation;
use std::marker::PhantomData;

/// Multi-head attention (`torch.nn.MultiheadAttention` with `batch_first=True`; Vaswani et al., "Attention Is All You Need",
/// 2017): queries `[N, L, width]`, keys and values `[N, S, width]` to `[N, L, width]`. As a [`Layer`] it is self-attention
/// without a mask; [`attend`](MultiheadAttention::attend) takes masks and other keys.
///
/// ```
/// use kiln_nn::{AttentionOptions, DType, Indices, Init, Rng, Tensor, layers::MultiheadAttention};
/// # let cpu = kiln_cpu::Cpu::new();
/// let attention = MultiheadAttention::new(&mut Init::new(&cpu, 0), 16, 4)?;
/// let x = Tensor::randn(&cpu, &[2, 5, 16], DType::F32, &mut Rng::new(0))?;
/// // 1 for a token, 0 for padding: the second sample has three tokens.
/// let tokens = Indices::from_slice(&cpu, &[1u8, 1, 1, 1, 1, 1, 1, 1, 0, 0], &[2, 1, 1, 5])?;
/// assert_eq!(attention.attend(&x, &x, &x, &AttentionOptions::masked(&tokens))?.shape(), x.shape());
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct MultiheadAttention<B: Backend> {
    /// The projections of queries, keys and values, one below the other, `[3·width, width]`.
    pub in_proj_weight: Param<B>,
    /// Their bias `[3·width]`.
    pub in_proj_bias: Option<Param<B>>,
    /// The projection of the result.
    pub out_proj: Linear<B>,
    dropout: Dropout<B>,
    heads: usize,
}

/// The options of a [`MultiheadAttention`].
///
/// See the example of [`MultiheadAttention::builder`].
#[derive(Clone, Copy, Debug)]
pub struct MultiheadAttentionBuilder<B> {
    width: usize,
    heads: usize,
    bias: bool,
    dropout: f64,
    backend: PhantomData<fn() -> B>,
}

#[compiled_once]
impl<B: Backend> MultiheadAttention<B> {
    /// `heads` heads over vectors of `width` elements, with biases and without dropout.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::MultiheadAttention};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let attention = MultiheadAttention::new(init, 16, 4)?; // heads of 4 elements
    /// let x = Tensor::zeros(&cpu, &[2, 5, 16], DType::F32)?;
    /// assert_eq!(attention.forward(&x)?.shape().dims(), [2, 5, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`MultiheadAttentionBuilder::build`].
    pub fn new(init: &mut Init<B>, width: usize, heads: usize) -> Result<Self> {
        Self::builder(width, heads).build(init)
    }

    /// Attention with options.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::MultiheadAttention};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let attention = MultiheadAttention::builder(16, 4).bias(false).dropout(0.1).build(init)?;
    /// assert_eq!(attention.in_proj_weight.shape().dims(), [48, 16]);
    /// assert!(attention.in_proj_bias.is_none() && attention.out_proj.bias.is_none());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(width: usize, heads: usize) -> MultiheadAttentionBuilder<B> {
        MultiheadAttentionBuilder {
            width,
            heads,
            bias: true,
            dropout: 0.0,
            backend: PhantomData,
        }
    }

    /// The projections `first..first + count` of `x`, side by side in the last dimension.
    fn project(&self, x: &Tensor<B>, first: usize, count: usize) -> Result<Tensor<B>> {
        let width = self.in_proj_weight.shape()[1];
        let weight = self.in_proj_weight.narrow(0, first * width, count * width)?;
        let bias = self
            .in_proj_bias
            .as_ref()
            .map(|b| b.narrow(0, first * width, count * width));
        x.linear(&weight, bias.transpose()?.as_ref(), Activation::None)
    }

    /// Attention of `query` `[N, L, width]` to `key` and `value` `[N, S, width]`, `[N, L, width]`. A mask or bias of the
    /// options broadcasts to `[N, heads, L, S]`: one of keys, as of padding, is `[N, 1, 1, S]`.
    ///
    /// ```
    /// # use kiln_nn::{AttentionOptions, DType, Init, Rng, Tensor, layers::MultiheadAttention};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let attention = MultiheadAttention::new(init, 16, 4)?;
    /// let queries = Tensor::zeros(&cpu, &[2, 3, 16], DType::F32)?;
    /// let memory = Tensor::randn(&cpu, &[2, 7, 16], DType::F32, &mut Rng::new(0))?;
    /// let y = attention.attend(&queries, &memory, &memory, &AttentionOptions::default())?;
    /// assert_eq!(y.shape().dims(), [2, 3, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Inputs of another rank or width, masks that do not broadcast, memory.
    pub fn attend(
        &self,
        query: &Tensor<B>,
        key: &Tensor<B>,
        value: &Tensor<B>,
        options: &AttentionOptions<'_, B>,
    ) -> Result<Tensor<B>> {
        trace::scope(self, query, || {
            let draw = self.dropout.draw()?;
            let options = &AttentionOptions {
                dropout: draw.as_ref().or(options.dropout),
                ..*options
            };
            let packed = std::ptr::eq(query, key) && std::ptr::eq(key, value);
            if packed {
                let y = self.project(query, 0, 3)?.self_attention_with(self.heads, options)?;
                return self.out_proj.forward(&y);
            }
            let parts = [
                self.project(query, 0, 1)?,
                self.project(key, 1, 1)?,
                self.project(value, 2, 1)?,
            ];
            let y = by_heads([&parts[0], &parts[1], &parts[2]], self.heads, options)?;
            self.out_proj.forward(&y)
        })
    }
}

#[compiled_once]
impl<B: Backend> MultiheadAttentionBuilder<B> {
    /// With or without biases of all projections; with by default.
    ///
    /// See the example of [`MultiheadAttention::builder`].
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// The probability that a weight is zeroed in training; 0 by default.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Module, Rng, Tensor, layers::MultiheadAttention};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut attention = MultiheadAttention::builder(8, 2).dropout(0.5).build(init)?;
    /// let x = Tensor::randn(&cpu, &[1, 4, 8], DType::F32, &mut Rng::new(0))?;
    /// assert_ne!(attention.forward(&x)?.to_f64()?, attention.forward(&x)?.to_f64()?);
    /// attention.eval();
    /// assert_eq!(attention.forward(&x)?.to_f64()?, attention.forward(&x)?.to_f64()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn dropout(mut self, p: f64) -> Self {
        self.dropout = p;
        self
    }

    /// Makes the layer, with PyTorch's initial values: Xavier-uniform projections of the inputs, and biases of 0.
    ///
    /// See the example of [`MultiheadAttention::builder`].
    ///
    /// # Errors
    /// A width that is no multiple of the heads, no heads, a probability outside `0..=1`, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<MultiheadAttention<B>> {
        let MultiheadAttentionBuilder { width, heads, bias, .. } = self;
        if width == 0 || heads == 0 || !width.is_multiple_of(heads) {
            let expected = format!("a divisor of the width {width}");
            return Err(Error::invalid("multihead_attention", "heads", heads, expected));
        }
        let mut out_proj = Linear::builder(width, width).bias(false).build(init)?;
        let zeros = |size| bias.then(|| init.constant(&[size], 0.0)).transpose();
        out_proj.bias = zeros(width)?;
        let in_proj_bias = zeros(3 * width)?;
        Ok(MultiheadAttention {
            in_proj_weight: Param::new(init.tensor(&[3 * width, width], &Initializer::xavier_uniform(1.0))?),
            in_proj_bias,
            out_proj,
            dropout: Dropout::new(init, self.dropout)?,
            heads,
        })
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for MultiheadAttention<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.attend(x, x, x, &AttentionOptions::default())
    }
}
