//! A decoder-only transformer over tokens.

use crate::language::{LanguageModel, TextCache, last, positions};
use crate::{Card, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, ScheduleKind, text};
use kiln_core::{Backend, Error, Result};
use kiln_data::DataKind;
use kiln_nn::init::Initializer;
use kiln_nn::layers::{Embedding, LayerNorm, Linear, ResidualStream};
use kiln_nn::{Activation, Indices, Init, KeyValueCache, Layer, Module, Param, Scheme, Shape, Tensor, trace};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a GPT of six layers that writes text, by characters or by the tokens of --tokenizer",
    input: Input::tokens(&[GptConfig::MINI.context]),
    output: OutputKind::Characters(GptConfig::MINI.vocabulary),
    values: text::VALUES,
    monitor: text::MONITOR,
    parameters: 10_795_776,
    recipe: Recipe {
        data: DataKind::Text,
        normalise: None,
        augment: &[],
        epochs: 2,
        batch: 4,
        valid_batch: 1,
        optimizer: OptimizerOptions {
            lr: 1e-3,
            ..OptimizerOptions::of(OptimizerKind::AdamW)
        },
        schedule: ScheduleKind::WarmupCosine,
        phases: &[],
        clip_norm: Some(1.0),
        ema: None,
        workers: 1,
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<text::Task<B>> {
    let config = GptConfig {
        vocabulary: sizes.outputs,
        ..GptConfig::MINI
    };
    Ok(text::task(Gpt::new(init, config)?))
}

/// The sizes of a [`Gpt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GptConfig {
    /// Number of tokens.
    pub vocabulary: usize,
    /// The length of the longest sequence, in tokens.
    pub context: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Attention heads of a block.
    pub heads: usize,
    /// Elements of the vector of a position; a multiple of the heads.
    pub width: usize,
}

impl GptConfig {
    /// Six blocks of six heads, 384 wide, sequences of 256 out of 65 characters.
    pub const MINI: GptConfig = GptConfig {
        vocabulary: 65,
        context: 256,
        layers: 6,
        heads: 6,
        width: 384,
    };
}

/// GPT-2 (Radford et al. 2019) without dropout: embeddings of tokens and of positions, pre-norm blocks of causal
/// attention and of a perceptron four times as wide with a GELU (by erf), a last norm, and a linear head without bias that is
/// not tied to the embedding. Token ids `[N, T]`, `T` at most the context, to logits `[N, T, vocabulary]`.
#[derive(Clone, Debug, Module)]
pub struct Gpt<B: Backend> {
    wte: Embedding<B>,
    wpe: Param<B>,
    h: Vec<GptBlock<B>>,
    ln_f: LayerNorm<B>,
    lm_head: Linear<B>,
}

/// `x + attn(ln_1(x))`, then `x + mlp(ln_2(x))`.
#[derive(Clone, Debug, Module)]
pub struct GptBlock<B: Backend> {
    ln_1: LayerNorm<B>,
    attn: Attention<B>,
    ln_2: LayerNorm<B>,
    mlp: Mlp<B>,
}

/// Causal multi-head self-attention between two dense layers (Vaswani et al. 2017): `[N, T, width]` to `[N, T, width]`.
#[derive(Clone, Debug, Module)]
pub struct Attention<B: Backend> {
    c_attn: Linear<B>,
    c_proj: Linear<B>,
    heads: usize,
}

/// Two dense layers with a GELU between: `[N, T, width]` to `[N, T, width]`.
#[derive(Clone, Debug, Module)]
pub struct Mlp<B: Backend> {
    c_fc: Linear<B>,
    c_proj: Linear<B>,
}

/// Normal weights with mean 0 and this standard deviation, zero biases.
fn normal(std: f64) -> Scheme {
    Scheme::With {
        weight: Initializer::Normal { mean: 0.0, std },
        bias: Initializer::Zeros,
    }
}

impl<B: Backend> Gpt<B> {
    /// The net with GPT-2's initial weights of `init`'s seed: N(0, 0.02), zero biases, and the layers that add to the
    /// residual stream divided by √(2·layers).
    ///
    /// # Errors
    /// A size of 0, a width that is no multiple of the heads, memory.
    pub fn new(init: Init<B>, config: GptConfig) -> Result<Self> {
        let GptConfig {
            vocabulary,
            context,
            layers,
            heads,
            width,
        } = config;
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(Error::invalid(
                "gpt",
                "heads",
                heads,
                format!("a divisor of the width {width}"),
            ));
        }
        let init = &mut init.scheme(normal(0.02));
        let wte = Embedding::new(init, vocabulary, width)?;
        let wpe = init.table(context, width)?;
        let deviation = 0.02 / (2.0 * layers as f64).sqrt();
        let residual = |init: &mut Init<B>, inputs| -> Result<Linear<B>> {
            init.set_scheme(normal(deviation));
            let layer = Linear::new(init, inputs, width);
            init.set_scheme(normal(0.02));
            layer
        };
        let mut h = Vec::with_capacity(layers);
        for _ in 0..layers {
            h.push(GptBlock {
                ln_1: LayerNorm::new(init, &[width])?,
                attn: Attention {
                    c_attn: Linear::new(init, width, 3 * width)?,
                    c_proj: residual(init, width)?,
                    heads,
                },
                ln_2: LayerNorm::new(init, &[width])?,
                mlp: Mlp {
                    c_fc: Linear::builder(width, 4 * width)
                        .activation(Activation::Gelu)
                        .build(init)?,
                    c_proj: residual(init, 4 * width)?,
                },
            });
        }
        Ok(Gpt {
            wte,
            wpe,
            h,
            ln_f: LayerNorm::new(init, &[width])?,
            lm_head: Linear::builder(width, vocabulary).bias(false).build(init)?,
        })
    }

    /// The length of the longest sequence, in tokens.
    pub fn context(&self) -> usize {
        self.wpe.shape()[0]
    }

    /// The logits of the next token at every position: ids `[N, T]` to `[N, T, vocabulary]`.
    ///
    /// # Errors
    /// Ids that are not i32, not `[N, T]`, or outside of the vocabulary; sequences longer than the context.
    pub fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        let (_, length) = positions("gpt", ids, 0, self.context())?;
        trace::scope(self, ids, || {
            let x = self.wte.forward(ids)?.add(&self.wpe.narrow(0, 0, length)?)?;
            let mut stream = ResidualStream::new(&x);
            for block in &self.h {
                stream = stream.through(block, |stream| block.add_to(stream, None))?;
            }
            self.lm_head.forward(&stream.norm(&self.ln_f)?.1)
        })
    }
}

impl<B: Backend> LanguageModel<B> for Gpt<B> {
    fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        Gpt::forward(self, ids)
    }
    fn next(&self, ids: &Indices<B>, cache: &mut TextCache<B>) -> Result<Tensor<B>> {
        let (past, length) = positions("gpt", ids, cache.len(), self.context())?;
        let next = |cache: &mut TextCache<B>| {
            let x = self.wte.forward(ids)?.add(&self.wpe.narrow(0, past, length)?)?;
            let mut stream = ResidualStream::new(&x);
            for (block, cache) in self.h.iter().zip(cache.layers("gpt", self.h.len())?) {
                stream = block.add_to(stream, Some(cache))?;
            }
            let x = last("gpt", &stream.norm(&self.ln_f)?.1)?;
            self.lm_head.forward(&x)?.squeeze(1)
        };
        trace::scope(self, ids, || cache.read(next))
    }
    fn cache(&self) -> TextCache<B> {
        TextCache::new(self.h.len())
    }
    fn context(&self) -> usize {
        Gpt::context(self)
    }
    fn backend(&self) -> &B {
        self.wpe.backend()
    }
}

impl<B: Backend> GptBlock<B> {
    /// The stream with what attention and the perceptron add to it; with a cache, attention is to the positions before as well.
    fn add_to(&self, stream: ResidualStream<B>, cache: Option<&mut KeyValueCache<B>>) -> Result<ResidualStream<B>> {
        let (stream, n) = stream.norm(&self.ln_1)?;
        let added = match cache {
            None => self.attn.forward(&n)?,
            Some(cache) => self.attn.next(&n, cache)?,
        };
        let stream = stream.add(&added, None)?;
        let (stream, n) = stream.norm(&self.ln_2)?;
        stream.add(&self.mlp.forward(&n)?, None)
    }
}

impl<B: Backend> Layer<B> for GptBlock<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.add_to(ResidualStream::new(x), None)?.sum()
    }
}

impl<B: Backend> Attention<B> {
    /// Attention of positions `[N, T, width]` behind those of the cache to all of them.
    fn next(&self, x: &Tensor<B>, cache: &mut KeyValueCache<B>) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let y = self.c_attn.forward(x)?.self_attention_cached(self.heads, cache)?;
            self.c_proj.forward(&y)
        })
    }
}

impl<B: Backend> Layer<B> for Attention<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.c_attn.forward(x)?.self_attention(self.heads, true)?;
        self.c_proj.forward(&y)
    }

    /// The two products of every head, over the pairs of positions that the causal mask allows.
    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        input.dims().get(1).map_or(0, |&t| 2 * (input.size() * (t + 1)) as u64)
    }
}

impl<B: Backend> Layer<B> for Mlp<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.c_proj.forward(&self.c_fc.forward(x)?)
    }
}
