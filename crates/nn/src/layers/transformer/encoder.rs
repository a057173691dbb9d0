//! The block of an encoder, and blocks one after another.

use super::super::{Dropout, LayerNorm, Linear, MultiheadAttention};
use crate::{Activation, AttentionOptions, Backend, Init, Layer, Module, Result, Rotary, Tensor, trace};
use std::marker::PhantomData;

/// Self-attention and a perceptron of two layers, each added to its input and normalised
/// (`torch.nn.TransformerEncoderLayer` with `batch_first=True`): `[N, T, width]` to `[N, T, width]`. With a causal mask it is the
/// block of a GPT.
///
/// ```
/// use kiln_nn::{Activation, DType, Init, Layer, Module, Rng, Tensor, layers::TransformerEncoderLayer};
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let mut block = TransformerEncoderLayer::builder(16, 4).feedforward(64).activation(Activation::Gelu).build(init)?;
/// block.eval();
/// let x = Tensor::randn(&cpu, &[2, 5, 16], DType::F32, &mut Rng::new(0))?;
/// assert_eq!(block.forward(&x)?.shape(), x.shape());
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct TransformerEncoderLayer<B: Backend> {
    /// The attention.
    pub self_attn: MultiheadAttention<B>,
    /// The first layer of the perceptron, with its activation.
    pub linear1: Linear<B>,
    dropout: Dropout<B>,
    /// The second layer of the perceptron.
    pub linear2: Linear<B>,
    /// The norm of the attention.
    pub norm1: LayerNorm<B>,
    /// The norm of the perceptron.
    pub norm2: LayerNorm<B>,
    dropout1: Dropout<B>,
    dropout2: Dropout<B>,
    norm_first: bool,
}

/// The options of a [`TransformerEncoderLayer`] or a
/// [`TransformerDecoderLayer`](super::TransformerDecoderLayer).
///
/// See the example of [`TransformerEncoderLayer::builder`].
#[derive(Clone, Copy, Debug)]
pub struct TransformerEncoderLayerBuilder<B> {
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) feedforward: usize,
    pub(super) dropout: f64,
    activation: Activation,
    pub(super) eps: f64,
    pub(super) norm_first: bool,
    rotary: Option<Rotary>,
    backend: PhantomData<fn() -> B>,
}

#[compiled_once]
impl<B: Backend> TransformerEncoderLayer<B> {
    /// A block with PyTorch's defaults: 2048 hidden elements, a dropout of 0.1, a ReLU, norms after the sums.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::TransformerEncoderLayer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let block = TransformerEncoderLayer::new(init, 16, 4)?;
    /// assert_eq!(block.linear1.weight.shape().dims(), [2048, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`TransformerEncoderLayerBuilder::build`].
    pub fn new(init: &mut Init<B>, width: usize, heads: usize) -> Result<Self> {
        Self::builder(width, heads).build(init)
    }

    /// A block with options.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Init, Layer, Rng, Tensor, layers::TransformerEncoderLayer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let options = TransformerEncoderLayer::builder(16, 4).feedforward(64).dropout(0.0).activation(Activation::Gelu);
    /// let block = options.eps(1e-6).norm_first(true).build(init)?; // the block of a GPT-2
    /// let x = Tensor::randn(&cpu, &[2, 5, 16], DType::F32, &mut Rng::new(0))?;
    /// assert_eq!(block.forward(&x)?.shape(), x.shape());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(width: usize, heads: usize) -> TransformerEncoderLayerBuilder<B> {
        TransformerEncoderLayerBuilder {
            width,
            heads,
            feedforward: 2048,
            dropout: 0.1,
            activation: Activation::Relu,
            eps: 1e-5,
            norm_first: false,
            rotary: None,
            backend: PhantomData,
        }
    }

    /// The block with the masks of `options`, which broadcast to `[N, heads, T, T]`.
    ///
    /// ```
    /// # use kiln_nn::{AttentionOptions, DType, Init, Layer, Rng, Tensor, layers::TransformerEncoderLayer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let block = TransformerEncoderLayer::builder(16, 4).feedforward(32).dropout(0.0).build(init)?;
    /// let x = Tensor::randn(&cpu, &[1, 5, 16], DType::F32, &mut Rng::new(0))?;
    /// let causal = AttentionOptions { causal: true, ..AttentionOptions::default() };
    /// let (all, first) = (block.forward_masked(&x, &causal)?, block.forward(&x.narrow(1, 0, 1)?)?);
    /// let apart = all.narrow(1, 0, 1)?.sub(&first)?.abs()?; // the first position sees itself alone
    /// assert!(apart.max(&[], false)?.item()? < 1e-5);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`MultiheadAttention::attend`].
    pub fn forward_masked(&self, x: &Tensor<B>, options: &AttentionOptions<'_, B>) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let attend = |x: &Tensor<B>| self.dropout1.forward(&self.self_attn.attend(x, x, x, options)?);
            let feed = |x: &Tensor<B>| {
                let hidden = self.dropout.forward(&self.linear1.forward(x)?)?;
                self.dropout2.forward(&self.linear2.forward(&hidden)?)
            };
            if self.norm_first {
                let x = x.add(&attend(&self.norm1.forward(x)?)?)?;
                return x.add(&feed(&self.norm2.forward(&x)?)?);
            }
            let x = self.norm1.forward(&x.add(&attend(x)?)?)?;
            self.norm2.forward(&x.add(&feed(&x)?)?)
        })
    }
}

#[compiled_once]
impl<B: Backend> TransformerEncoderLayerBuilder<B> {
    /// The number of hidden elements of the perceptron (`dim_feedforward`); 2048 by default.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::TransformerEncoderLayer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let block = TransformerEncoderLayer::builder(16, 4).feedforward(64).build(init)?;
    /// assert_eq!(block.linear2.weight.shape().dims(), [16, 64]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn feedforward(mut self, hidden: usize) -> Self {
        self.feedforward = hidden;
        self
    }

    /// The probability of all dropouts, those of attention weights too; 0.1 by default.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::TransformerEncoderLayer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let block = TransformerEncoderLayer::builder(16, 4).dropout(0.0).build(init)?;
    /// let x = Tensor::randn(&cpu, &[1, 5, 16], DType::F32, &mut Rng::new(0))?;
    /// assert_eq!(block.forward(&x)?.to_f64()?, block.forward(&x)?.to_f64()?); // in training mode too
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn dropout(mut self, p: f64) -> Self {
        self.dropout = p;
        self
    }

    /// The activation of the perceptron; ReLU by default.
    ///
    /// See the example of [`TransformerEncoderLayer::builder`].
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// The `eps` of both norms (`layer_norm_eps`); 1e-5 by default.
    ///
    /// See the example of [`TransformerEncoderLayer::builder`].
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Normalises the inputs of attention and perceptron in place of the sums; off by default.
    ///
    /// See the example of [`TransformerEncoderLayer::builder`].
    pub fn norm_first(mut self, norm_first: bool) -> Self {
        self.norm_first = norm_first;
        self
    }

    /// Gives self-attention rotary positions: [`MultiheadAttentionBuilder::rotary`](super::super::MultiheadAttentionBuilder::rotary); none by
    /// default.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Rng, Rotary, Tensor, layers::TransformerEncoderLayer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let block = TransformerEncoderLayer::builder(16, 4).rotary(Rotary::default()).build(init)?;
    /// let x = Tensor::randn(&cpu, &[2, 5, 16], DType::F32, &mut Rng::new(0))?;
    /// assert_eq!(block.forward(&x)?.shape(), x.shape());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn rotary(mut self, rotary: Rotary) -> Self {
        self.rotary = Some(rotary);
        self
    }

    /// The block's self-attention.
    pub(super) fn attention(&self, init: &mut Init<B>) -> Result<MultiheadAttention<B>> {
        let attention = MultiheadAttention::builder(self.width, self.heads).dropout(self.dropout);
        match self.rotary {
            Some(rotary) => attention.rotary(rotary).build(init),
            None => attention.build(init),
        }
    }

    /// The first layer of the perceptron.
    pub(super) fn linear1(&self, init: &mut Init<B>) -> Result<Linear<B>> {
        Linear::builder(self.width, self.feedforward)
            .activation(self.activation)
            .build(init)
    }

    /// A norm of the block.
    pub(super) fn norm(&self, init: &mut Init<B>) -> Result<LayerNorm<B>> {
        LayerNorm::builder(&[self.width]).eps(self.eps).build(init)
    }

    /// Makes the block.
    ///
    /// See the example of [`TransformerEncoderLayer::builder`].
    ///
    /// # Errors
    /// A width that is no multiple of the heads, a size of 0, a probability outside `0..=1`, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<TransformerEncoderLayer<B>> {
        let p = self.dropout;
        Ok(TransformerEncoderLayer {
            self_attn: self.attention(init)?,
            linear1: self.linear1(init)?,
            dropout: Dropout::new(init, p)?,
            linear2: Linear::new(init, self.feedforward, self.width)?,
            norm1: self.norm(init)?,
            norm2: self.norm(init)?,
            dropout1: Dropout::new(init, p)?,
            dropout2: Dropout::new(init, p)?,
            norm_first: self.norm_first,
        })
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for TransformerEncoderLayer<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward_masked(x, &AttentionOptions::default())
    }
}

/// Blocks one after another (`torch.nn.TransformerEncoder`): `[N, T, width]` to `[N, T, width]`.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::{LayerNorm, TransformerEncoder, TransformerEncoderLayer}};
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let options = TransformerEncoderLayer::builder(16, 4).feedforward(64).norm_first(true);
/// let mut encoder = TransformerEncoder::new(init, &options, 2)?;
/// encoder.norm = Some(LayerNorm::new(init, &[16])?);
/// let x = Tensor::randn(&cpu, &[2, 5, 16], DType::F32, &mut Rng::new(0))?;
/// assert_eq!(encoder.forward(&x)?.shape(), x.shape());
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct TransformerEncoder<B: Backend> {
    /// The blocks.
    pub layers: Vec<TransformerEncoderLayer<B>>,
    /// A norm of the result, which blocks with `norm_first` want.
    pub norm: Option<LayerNorm<B>>,
}

#[compiled_once]
impl<B: Backend> TransformerEncoder<B> {
    /// `count` blocks with the options of `layer`, each with initial values of its own, and no norm after them.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::{TransformerEncoder, TransformerEncoderLayer}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let encoder = TransformerEncoder::new(init, &TransformerEncoderLayer::builder(16, 4).feedforward(64), 3)?;
    /// assert_eq!(encoder.layers.len(), 3);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`TransformerEncoderLayerBuilder::build`].
    pub fn new(init: &mut Init<B>, layer: &TransformerEncoderLayerBuilder<B>, count: usize) -> Result<Self> {
        let layers = (0..count).map(|_| layer.clone().build(init));
        Ok(TransformerEncoder {
            layers: layers.collect::<Result<_>>()?,
            norm: None,
        })
    }

    /// All blocks with the masks of `options`, which broadcast to `[N, heads, T, T]`.
    ///
    /// ```
    /// # use kiln_nn::{AttentionOptions, DType, Indices, Init, Rng, Tensor};
    /// # use kiln_nn::layers::{TransformerEncoder, TransformerEncoderLayer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let encoder = TransformerEncoder::new(init, &TransformerEncoderLayer::builder(16, 4).feedforward(64), 2)?;
    /// let x = Tensor::randn(&cpu, &[1, 3, 16], DType::F32, &mut Rng::new(0))?;
    /// let tokens = Indices::from_slice(&cpu, &[1u8, 1, 0], &[1, 1, 1, 3])?; // the last one is padding
    /// let y = encoder.forward_masked(&x, &AttentionOptions::masked(&tokens))?;
    /// assert_eq!(y.shape().dims(), [1, 3, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`MultiheadAttention::attend`].
    pub fn forward_masked(&self, x: &Tensor<B>, options: &AttentionOptions<'_, B>) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let mut blocks = self.layers.iter();
            self.norm
                .forward(&blocks.try_fold(x.clone(), |x, block| block.forward_masked(&x, options))?)
        })
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for TransformerEncoder<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward_masked(x, &AttentionOptions::default())
    }
}
