//! An encoder and a decoder that reads what it has made.

use super::super::LayerNorm;
use super::decoder::TransformerDecoder;
use super::encoder::{TransformerEncoder, TransformerEncoderLayerBuilder};
use crate::init::Initializer;
use crate::{AttentionOptions, Backend, Init, Module, Result, Tensor, trace};

/// An encoder and a decoder of blocks (`torch.nn.Transformer` with `batch_first=True`; Vaswani et al., "Attention Is All You Need",
/// 2017): sources `[N, S, width]` and targets `[N, T, width]` to `[N, T, width]`. Embeddings, positions and the layer that makes logits
/// are the caller's, as in PyTorch.
///
/// ```
/// use kiln_nn::layers::{Transformer, TransformerEncoderLayer, TransformerMasks};
/// # use kiln_nn::{DType, Init, Rng, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let net = Transformer::new(init, &TransformerEncoderLayer::builder(16, 4).feedforward(64), 2, 2)?;
/// let [source, target] = [7, 5].map(|t| Tensor::randn(&cpu, &[2, t, 16], DType::F32, &mut Rng::new(0)));
/// let y = net.forward_masked(&source?, &target?, &TransformerMasks::causal())?;
/// assert_eq!(y.shape().dims(), [2, 5, 16]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Transformer<B: Backend> {
    /// The encoder.
    pub encoder: TransformerEncoder<B>,
    /// The decoder.
    pub decoder: TransformerDecoder<B>,
}

/// The masks of a [`Transformer`]; all see all by default.
///
/// See the example of [`Transformer`].
pub struct TransformerMasks<'a, B: Backend> {
    /// Of the encoder's self-attention: they broadcast to `[N, heads, S, S]`, such as one of padding `[N, 1, 1, S]`.
    pub source: AttentionOptions<'a, B>,
    /// Of the decoder's self-attention: they broadcast to `[N, heads, T, T]`.
    pub target: AttentionOptions<'a, B>,
    /// Of the decoder's attention to the encoder: they broadcast to `[N, heads, T, S]`.
    pub memory: AttentionOptions<'a, B>,
}

impl<B: Backend> Clone for TransformerMasks<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for TransformerMasks<'_, B> {}

impl<B: Backend> Default for TransformerMasks<'_, B> {
    fn default() -> Self {
        TransformerMasks {
            source: AttentionOptions::default(),
            target: AttentionOptions::default(),
            memory: AttentionOptions::default(),
        }
    }
}

impl<B: Backend> TransformerMasks<'_, B> {
    /// Targets see those before alone, as for writing one after the other.
    pub fn causal() -> Self {
        TransformerMasks {
            target: AttentionOptions::causal(),
            ..TransformerMasks::default()
        }
    }
}

#[compiled_once]
impl<B: Backend> Transformer<B> {
    /// An encoder and a decoder of so many blocks with the options of `layer`, each with a norm after them, and PyTorch's initial values:
    /// all matrices Xavier-uniform.
    ///
    /// See the example of [`Transformer`].
    ///
    /// # Errors
    /// As [`TransformerEncoderLayerBuilder::build`].
    pub fn new(
        init: &mut Init<B>,
        layer: &TransformerEncoderLayerBuilder<B>,
        encoder_layers: usize,
        decoder_layers: usize,
    ) -> Result<Self> {
        let mut encoder = TransformerEncoder::new(init, layer, encoder_layers)?;
        encoder.norm = Some(LayerNorm::builder(&[layer.width]).eps(layer.eps).build(init)?);
        let mut decoder = TransformerDecoder::new(init, layer, decoder_layers)?;
        decoder.norm = Some(LayerNorm::builder(&[layer.width]).eps(layer.eps).build(init)?);
        let mut net = Transformer { encoder, decoder };
        for (_, p) in net.named_parameters_mut() {
            if p.rank() > 1 {
                p.assign(&init.tensor(p.shape().dims(), &Initializer::xavier_uniform(1.0))?)?;
            }
        }
        Ok(net)
    }

    /// The decoder's result for what the encoder makes of `source`.
    ///
    /// See the example of [`Transformer`].
    ///
    /// # Errors
    /// As [`MultiheadAttention::attend`](super::super::MultiheadAttention::attend).
    pub fn forward_masked(
        &self,
        source: &Tensor<B>,
        target: &Tensor<B>,
        masks: &TransformerMasks<'_, B>,
    ) -> Result<Tensor<B>> {
        trace::scope(self, source, || {
            let memory = self.encoder.forward_masked(source, &masks.source)?;
            self.decoder
                .forward_masked(target, &memory, &masks.target, &masks.memory)
        })
    }
}
