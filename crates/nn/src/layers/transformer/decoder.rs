//! The block of a decoder, which attends to what an encoder has made.

use super::super::{Dropout, LayerNorm, Linear, MultiheadAttention};
use super::encoder::{TransformerEncoderLayer, TransformerEncoderLayerBuilder};
use crate::{AttentionOptions, Backend, Error, Indices, Init, KeyValueCache, Layer, Module, Result, Tensor, trace};

/// Self-attention, attention to a memory and a perceptron of two layers, each added to its input and normalised
/// (`torch.nn.TransformerDecoderLayer` with `batch_first=True`): `[N, T, width]` and a memory `[N, S, width]` to `[N, T, width]`.
///
/// ```
/// use kiln_nn::{AttentionOptions, DType, Init, Module, Rng, Tensor, layers::TransformerDecoderLayer};
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let mut block = TransformerDecoderLayer::builder(16, 4).feedforward(64).build_decoder(init)?;
/// block.eval();
/// let [x, memory] = [5, 7].map(|t| Tensor::randn(&cpu, &[2, t, 16], DType::F32, &mut Rng::new(0)));
/// let y = block.forward_masked(&x?, &memory?, &AttentionOptions::causal(), &AttentionOptions::default())?;
/// assert_eq!(y.shape().dims(), [2, 5, 16]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct TransformerDecoderLayer<B: Backend> {
    /// The attention to the positions before.
    pub self_attn: MultiheadAttention<B>,
    /// The attention to the memory.
    pub multihead_attn: MultiheadAttention<B>,
    /// The first layer of the perceptron, with its activation.
    pub linear1: Linear<B>,
    dropout: Dropout<B>,
    /// The second layer of the perceptron.
    pub linear2: Linear<B>,
    /// The norm of the self-attention.
    pub norm1: LayerNorm<B>,
    /// The norm of the attention to the memory.
    pub norm2: LayerNorm<B>,
    /// The norm of the perceptron.
    pub norm3: LayerNorm<B>,
    dropout1: Dropout<B>,
    dropout2: Dropout<B>,
    dropout3: Dropout<B>,
    norm_first: bool,
}

/// The keys and values that a decoder has seen while it writes: those of its own positions, and those of the memory, which are
/// computed once.
///
/// See the example of [`TransformerDecoder::cache`].
#[derive(Clone, Debug)]
pub struct DecoderCache<B: Backend> {
    layers: Vec<LayerCache<B>>,
}

/// Those of a block.
#[derive(Clone, Debug)]
struct LayerCache<B: Backend> {
    seen: KeyValueCache<B>,
    memory: [Tensor<B>; 2],
}

impl<B: Backend> DecoderCache<B> {
    /// The number of positions that the decoder has seen.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.seen.len())
    }

    /// True if it has seen no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cache of the sequences `rows` `[M]`, in this order and as often as they are named: [`KeyValueCache::select`].
    ///
    /// # Errors
    /// As [`Tensor::index_select`].
    pub fn select(&self, rows: &Indices<B>) -> Result<Self> {
        let of = |layer: &LayerCache<B>| {
            let [keys, values] = &layer.memory;
            Ok(LayerCache {
                seen: layer.seen.select(rows)?,
                memory: [keys.index_select(0, rows)?, values.index_select(0, rows)?],
            })
        };
        Ok(DecoderCache {
            layers: self.layers.iter().map(of).collect::<Result<_>>()?,
        })
    }
}

#[compiled_once]
impl<B: Backend> TransformerEncoderLayerBuilder<B> {
    /// Makes the block of a decoder.
    ///
    /// See the example of [`TransformerDecoderLayer::builder`].
    ///
    /// # Errors
    /// As [`TransformerEncoderLayerBuilder::build`].
    pub fn build_decoder(self, init: &mut Init<B>) -> Result<TransformerDecoderLayer<B>> {
        TransformerDecoderLayer::of(&self, init)
    }
}

#[compiled_once]
impl<B: Backend> TransformerDecoderLayer<B> {
    /// A block with PyTorch's defaults: 2048 hidden elements, a dropout of 0.1, a ReLU, norms after the sums.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::TransformerDecoderLayer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let block = TransformerDecoderLayer::new(init, 16, 4)?;
    /// assert_eq!(block.linear1.weight.shape().dims(), [2048, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`TransformerEncoderLayerBuilder::build`].
    pub fn new(init: &mut Init<B>, width: usize, heads: usize) -> Result<Self> {
        Self::builder(width, heads).build_decoder(init)
    }

    /// A block with options, which are those of an encoder's; [`TransformerEncoderLayerBuilder::build_decoder`] makes it.
    ///
    /// ```
    /// # use kiln_nn::{Activation, Init, layers::TransformerDecoderLayer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let options = TransformerDecoderLayer::builder(16, 4).feedforward(64).activation(Activation::Gelu).norm_first(true);
    /// let block = options.build_decoder(init)?;
    /// assert_eq!(block.multihead_attn.in_proj_weight.shape().dims(), [48, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(width: usize, heads: usize) -> TransformerEncoderLayerBuilder<B> {
        TransformerEncoderLayer::builder(width, heads)
    }

    /// The block with these options.
    fn of(options: &TransformerEncoderLayerBuilder<B>, init: &mut Init<B>) -> Result<Self> {
        let p = options.dropout;
        Ok(TransformerDecoderLayer {
            self_attn: options.attention(init)?,
            multihead_attn: MultiheadAttention::builder(options.width, options.heads)
                .dropout(p)
                .build(init)?,
            linear1: options.linear1(init)?,
            dropout: Dropout::new(init, p)?,
            linear2: Linear::new(init, options.feedforward, options.width)?,
            norm1: options.norm(init)?,
            norm2: options.norm(init)?,
            norm3: options.norm(init)?,
            dropout1: Dropout::new(init, p)?,
            dropout2: Dropout::new(init, p)?,
            dropout3: Dropout::new(init, p)?,
            norm_first: options.norm_first,
        })
    }

    /// The block with the masks of `target` for self-attention, which broadcast to `[N, heads, T, T]`, and of `source` for the attention
    /// to the memory `[N, S, width]`, which broadcast to `[N, heads, T, S]`.
    ///
    /// See the example of [`TransformerDecoderLayer`].
    ///
    /// # Errors
    /// As [`MultiheadAttention::attend`].
    pub fn forward_masked(
        &self,
        x: &Tensor<B>,
        memory: &Tensor<B>,
        target: &AttentionOptions<'_, B>,
        source: &AttentionOptions<'_, B>,
    ) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            self.block(
                x,
                |x| self.self_attn.attend(x, x, x, target),
                |x| self.multihead_attn.attend(x, memory, memory, source),
            )
        })
    }

    /// The block of two attentions.
    fn block(
        &self,
        x: &Tensor<B>,
        to_self: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>,
        to_memory: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>,
    ) -> Result<Tensor<B>> {
        let to_self = |x: &Tensor<B>| self.dropout1.forward(&to_self(x)?);
        let to_memory = |x: &Tensor<B>| self.dropout2.forward(&to_memory(x)?);
        let feed = |x: &Tensor<B>| {
            let hidden = self.dropout.forward(&self.linear1.forward(x)?)?;
            self.dropout3.forward(&self.linear2.forward(&hidden)?)
        };
        if self.norm_first {
            let x = x.add(&to_self(&self.norm1.forward(x)?)?)?;
            let x = x.add(&to_memory(&self.norm2.forward(&x)?)?)?;
            return x.add(&feed(&self.norm3.forward(&x)?)?);
        }
        let x = self.norm1.forward(&x.add(&to_self(x)?)?)?;
        let x = self.norm2.forward(&x.add(&to_memory(&x)?)?)?;
        self.norm3.forward(&x.add(&feed(&x)?)?)
    }

    /// The block of positions behind those of a cache.
    fn next(&self, x: &Tensor<B>, cache: &mut LayerCache<B>, source: &AttentionOptions<'_, B>) -> Result<Tensor<B>> {
        let LayerCache { seen, memory } = cache;
        trace::scope(self, x, || {
            self.block(
                x,
                |x| self.self_attn.attend_cached(x, seen),
                |x| self.multihead_attn.attend_projected(x, memory, source),
            )
        })
    }
}

/// Blocks one after another (`torch.nn.TransformerDecoder`): `[N, T, width]` and a memory `[N, S, width]` to `[N, T, width]`.
///
/// ```
/// use kiln_nn::layers::{TransformerDecoder, TransformerDecoderLayer};
/// # use kiln_nn::{AttentionOptions, DType, Init, Rng, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let decoder = TransformerDecoder::new(init, &TransformerDecoderLayer::builder(16, 4).feedforward(64), 2)?;
/// let [x, memory] = [5, 7].map(|t| Tensor::randn(&cpu, &[2, t, 16], DType::F32, &mut Rng::new(0)));
/// let y = decoder.forward_masked(&x?, &memory?, &AttentionOptions::causal(), &AttentionOptions::default())?;
/// assert_eq!(y.shape().dims(), [2, 5, 16]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct TransformerDecoder<B: Backend> {
    /// The blocks.
    pub layers: Vec<TransformerDecoderLayer<B>>,
    /// A norm of the result, which blocks with `norm_first` want.
    pub norm: Option<LayerNorm<B>>,
}

#[compiled_once]
impl<B: Backend> TransformerDecoder<B> {
    /// `count` blocks with the options of `layer`, each with initial values of its own, and no norm after them.
    ///
    /// See the example of [`TransformerDecoder`].
    ///
    /// # Errors
    /// As [`TransformerEncoderLayerBuilder::build`].
    pub fn new(init: &mut Init<B>, layer: &TransformerEncoderLayerBuilder<B>, count: usize) -> Result<Self> {
        let layers = (0..count).map(|_| TransformerDecoderLayer::of(layer, init));
        Ok(TransformerDecoder {
            layers: layers.collect::<Result<_>>()?,
            norm: None,
        })
    }

    /// All blocks with these masks: [`TransformerDecoderLayer::forward_masked`].
    ///
    /// See the example of [`TransformerDecoder`].
    ///
    /// # Errors
    /// As [`MultiheadAttention::attend`].
    pub fn forward_masked(
        &self,
        x: &Tensor<B>,
        memory: &Tensor<B>,
        target: &AttentionOptions<'_, B>,
        source: &AttentionOptions<'_, B>,
    ) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let mut blocks = self.layers.iter();
            let through =
                |x: Tensor<B>, block: &TransformerDecoderLayer<B>| block.forward_masked(&x, memory, target, source);
            self.norm.forward(&blocks.try_fold(x.clone(), through)?)
        })
    }

    /// The cache of a memory `[N, S, width]` for [`TransformerDecoder::next`], which has seen no positions.
    ///
    /// ```
    /// # use kiln_nn::layers::{TransformerDecoder, TransformerDecoderLayer};
    /// # use kiln_nn::{AttentionOptions, DType, Init, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let options = TransformerDecoderLayer::builder(16, 4).feedforward(64).dropout(0.0);
    /// let decoder = TransformerDecoder::new(init, &options, 2)?;
    /// let [x, memory] = [5, 7].map(|t| Tensor::randn(&cpu, &[2, t, 16], DType::F32, &mut Rng::new(0)));
    /// let (x, memory, all) = (x?, memory?, AttentionOptions::default());
    /// let mut cache = decoder.cache(&memory)?;
    /// decoder.next(&x.narrow(1, 0, 4)?, &mut cache, &all)?;
    /// let last = decoder.next(&x.narrow(1, 4, 1)?, &mut cache, &all)?;
    /// let whole = decoder.forward_masked(&x, &memory, &AttentionOptions::causal(), &all)?;
    /// assert!(last.sub(&whole.narrow(1, 4, 1)?)?.abs()?.max(&[], false)?.item()? < 1e-5);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A memory of another rank or width.
    pub fn cache(&self, memory: &Tensor<B>) -> Result<DecoderCache<B>> {
        let of = |layer: &TransformerDecoderLayer<B>| {
            Ok(LayerCache {
                seen: KeyValueCache::new(),
                memory: layer.multihead_attn.project_memory(memory)?,
            })
        };
        Ok(DecoderCache {
            layers: self.layers.iter().map(of).collect::<Result<_>>()?,
        })
    }

    /// All blocks of positions `[N, T, width]` that come after those of `cache`, to which they are added. Attention to the memory has the
    /// masks of `source`. The decoder is in evaluation mode.
    ///
    /// See the example of [`TransformerDecoder::cache`].
    ///
    /// # Errors
    /// Those of [`Tensor::self_attention_cached`]; a cache of another number of blocks. The cache is then as it was.
    pub fn next(
        &self,
        x: &Tensor<B>,
        cache: &mut DecoderCache<B>,
        source: &AttentionOptions<'_, B>,
    ) -> Result<Tensor<B>> {
        if cache.layers.len() != self.layers.len() {
            let found = format!("of {} blocks", cache.layers.len());
            let expected = format!("one of {}", self.layers.len());
            return Err(Error::invalid("transformer_decoder", "cache", found, expected));
        }
        let before = cache.len();
        let y = trace::scope(self, x, || {
            let mut blocks = self.layers.iter().zip(&mut cache.layers);
            let last = blocks.try_fold(x.clone(), |x, (block, cache)| block.next(&x, cache, source))?;
            self.norm.forward(&last)
        });
        if y.is_err() {
            cache.layers.iter_mut().for_each(|layer| layer.seen.truncate(before));
        }
        y
    }
}
