//! Multi-head attention.

use super::{Dropout, Layer, Linear, Lora};
use crate::init::Initializer;
use crate::module::Runnable;
use crate::ops::by_heads;
use crate::{
    AttentionOptions, Backend, Error, Init, KeyValueCache, Param, Result, Rotary, Tensor, Walk, WalkMut, Walkable,
    trace,
};
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
#[derive(Clone, Debug)]
pub struct MultiheadAttention<B: Backend> {
    /// The projections of queries, keys and values, one below the other, `[3·width, width]`.
    pub in_proj_weight: Param<B>,
    /// Their bias `[3·width]`.
    pub in_proj_bias: Option<Param<B>>,
    /// A low-rank addition to their weight; none unless a model is fine-tuned by it ([`LoraOptions`](crate::lora::LoraOptions)).
    pub lora: Option<Box<Lora<B>>>,
    /// The projection of the result.
    pub out_proj: Linear<B>,
    dropout: Dropout<B>,
    heads: usize,
    rotary: Option<Rotary>,
}

impl<B: Backend> Walkable<B> for MultiheadAttention<B> {
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        Some(self.duplicate())
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        walk.field("in_proj_weight", &self.in_proj_weight);
        walk.field("in_proj_bias", &self.in_proj_bias);
        if let Some(lora) = &self.lora {
            lora.walk(walk);
        }
        walk.field("out_proj", &self.out_proj);
        walk.field("dropout", &self.dropout);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        if walk.layer(self) {
            walk.field("out_proj", &mut self.out_proj);
            return;
        }
        walk.field("in_proj_weight", &mut self.in_proj_weight);
        walk.field("in_proj_bias", &mut self.in_proj_bias);
        if let Some(lora) = &mut self.lora {
            lora.walk_mut(walk);
        }
        walk.field("out_proj", &mut self.out_proj);
        walk.field("dropout", &mut self.dropout);
    }
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
    rotary: Option<Rotary>,
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
            rotary: None,
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
        let y = x.linear(&weight, bias.transpose()?.as_ref(), Activation::None)?;
        match self.lora.as_deref().filter(|lora| !lora.merged) {
            Some(lora) => y.add(&lora.added_to(x, first * width, count * width)?),
            None => Ok(y),
        }
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
                let all = self.turned(self.project(query, 0, 3)?, 0)?;
                return self.out_proj.forward(&all.self_attention_with(self.heads, options)?);
            }
            let [q, k, v] = [
                self.project(query, 0, 1)?,
                self.project(key, 1, 1)?,
                self.project(value, 2, 1)?,
            ];
            let (q, k) = (self.turn(q, 0)?, self.turn(k, 0)?);
            let y = by_heads([&q, &k, &v], self.heads, options)?;
            self.out_proj.forward(&y)
        })
    }

    /// Queries or keys `[N, T, width]` at their positions, of which the first is `past`.
    fn turn(&self, x: Tensor<B>, past: usize) -> Result<Tensor<B>> {
        let Some(rotary) = &self.rotary else {
            return Ok(x);
        };
        let at = Rotary {
            offset: rotary.offset + past,
            axis: 1,
            ..*rotary
        };
        x.unflatten(-1, (self.heads, -1))?.rotary_embedding(&at)?.flatten(2, -1)
    }

    /// Packed queries, keys and values with the first two at their positions.
    fn turned(&self, all: Tensor<B>, past: usize) -> Result<Tensor<B>> {
        if self.rotary.is_none() {
            return Ok(all);
        }
        let width = self.in_proj_weight.shape()[1];
        let part = |i| all.narrow(2, i * width, width);
        let (q, k) = (self.turn(part(0)?, past)?, self.turn(part(1)?, past)?);
        Tensor::concat(&[&q, &k, &part(2)?], 2)
    }

    /// Causal self-attention of positions `[N, T, width]` that come after those of `cache`, to which they are added, `[N, T, width]`:
    /// for writing, without dropout.
    ///
    /// ```
    /// # use kiln_nn::{AttentionOptions, DType, Init, KeyValueCache, Rng, Rotary, Tensor, layers::MultiheadAttention};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let attention = MultiheadAttention::builder(16, 4).rotary(Rotary::default()).build(init)?;
    /// let x = Tensor::randn(&cpu, &[1, 5, 16], DType::F32, &mut Rng::new(0))?;
    /// let mut cache = KeyValueCache::new();
    /// attention.attend_cached(&x.narrow(1, 0, 4)?, &mut cache)?;
    /// let last = attention.attend_cached(&x.narrow(1, 4, 1)?, &mut cache)?;
    /// let whole = attention.attend(&x, &x, &x, &AttentionOptions::causal())?.narrow(1, 4, 1)?;
    /// assert!(last.sub(&whole)?.abs()?.max(&[], false)?.item()? < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::self_attention_cached`].
    pub fn attend_cached(&self, x: &Tensor<B>, cache: &mut KeyValueCache<B>) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let all = self.turned(self.project(x, 0, 3)?, cache.len())?;
            self.out_proj.forward(&all.self_attention_cached(self.heads, cache)?)
        })
    }

    /// The keys and the values of a memory `[N, S, width]`, each `[N, S, width]`, for several calls of
    /// [`attend_projected`](MultiheadAttention::attend_projected).
    ///
    /// ```
    /// # use kiln_nn::{AttentionOptions, DType, Init, Rng, Tensor, layers::MultiheadAttention};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let attention = MultiheadAttention::new(init, 16, 4)?;
    /// let [x, memory] = [2, 7].map(|t| Tensor::randn(&cpu, &[1, t, 16], DType::F32, &mut Rng::new(0)));
    /// let (x, memory) = (x?, memory?);
    /// let options = AttentionOptions::default();
    /// let y = attention.attend_projected(&x, &attention.project_memory(&memory)?, &options)?;
    /// assert_eq!(y.to_vec::<f32>()?, attention.attend(&x, &memory, &memory, &options)?.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A memory of another rank or width, memory.
    pub fn project_memory(&self, memory: &Tensor<B>) -> Result<[Tensor<B>; 2]> {
        Ok([self.turn(self.project(memory, 1, 1)?, 0)?, self.project(memory, 2, 1)?])
    }

    /// Attention of `query` `[N, L, width]` to keys and values that [`project_memory`](MultiheadAttention::project_memory) has made,
    /// `[N, L, width]`: for writing, without the layer's dropout.
    ///
    /// See the example of [`MultiheadAttention::project_memory`].
    ///
    /// # Errors
    /// As [`MultiheadAttention::attend`].
    pub fn attend_projected(
        &self,
        query: &Tensor<B>,
        memory: &[Tensor<B>; 2],
        options: &AttentionOptions<'_, B>,
    ) -> Result<Tensor<B>> {
        trace::scope(self, query, || {
            let q = self.turn(self.project(query, 0, 1)?, 0)?;
            self.out_proj
                .forward(&by_heads([&q, &memory[0], &memory[1]], self.heads, options)?)
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

    /// Gives queries and keys rotary positions ([`Tensor::rotary_embedding`]), which begin anew for each head; none by default. The axis
    /// of the options does not count.
    ///
    /// See the example of [`MultiheadAttention::attend_cached`].
    pub fn rotary(mut self, rotary: Rotary) -> Self {
        self.rotary = Some(rotary);
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
            lora: None,
            out_proj,
            dropout: Dropout::new(init, self.dropout)?,
            heads,
            rotary: self.rotary,
        })
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for MultiheadAttention<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.attend(x, x, x, &AttentionOptions::default())
    }
}
