//! GPT-2 with 124 million parameters.

use crate::language::{LanguageModel, TextCache, last, positions};
use crate::tied::TiedHead;
use crate::{Card, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, ScheduleKind, text};
use kiln_core::{Backend, Error, Result};
use kiln_data::DataKind;
use kiln_nn::init::Initializer;
use kiln_nn::layers::{Dropout, Embedding, LayerNorm, Linear, ResidualStream};
use kiln_nn::module::ParamLayout;
use kiln_nn::{
    Activation, AttentionOptions, CrossEntropyOptions, Indices, Init, KeyValueCache, Layer, Module, Scheme, Shape,
    Tensor, trace,
};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "GPT-2 124M, which writes text; characters take the first of its tokens",
    input: Input::tokens(&[Gpt2Config::SMALL.context]),
    output: OutputKind::Tokens(Gpt2Config::SMALL.vocabulary),
    values: text::VALUES,
    monitor: text::MONITOR,
    parameters: Gpt2Config::SMALL.parameters(),
    // As nanoGPT and llm.c train it.
    recipe: Recipe {
        data: DataKind::Text,
        normalise: None,
        augment: &[],
        epochs: 1,
        batch: 8,
        valid_batch: 1,
        optimizer: OptimizerOptions {
            lr: 6e-4,
            weight_decay: Some(0.1),
            betas: Some([0.9, 0.95]),
            ..OptimizerOptions::of(OptimizerKind::AdamW)
        },
        schedule: ScheduleKind::WarmupCosine,
        phases: &[],
        clip_norm: None,
        ema: None,
        workers: 1,
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<text::Task<B>> {
    let config = Gpt2Config {
        vocabulary: sizes.outputs,
        ..Gpt2Config::SMALL
    };
    Ok(text::task(Gpt2::new(init, config)?))
}

/// The sizes of a [`Gpt2`], and its dropout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt2Config {
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
    /// The probability that dropout zeroes an element of the embedding or of what a block adds to its input, or a weight of attention; 0
    /// turns it off.
    pub dropout: f64,
}

impl Gpt2Config {
    /// The smallest GPT-2, of 124,439,808 parameters: 12 blocks of 12 heads, 768 wide, sequences of 1024 out of 50257 tokens.
    pub const SMALL: Gpt2Config = Gpt2Config {
        vocabulary: 50_257,
        context: 1024,
        layers: 12,
        heads: 12,
        width: 768,
        dropout: 0.1,
    };

    /// These sizes with the vocabulary rounded up to a multiple, whose rows and products fit vectors: nanoGPT rounds 50257 up to
    /// 50304, a multiple of 64. The tokens that are added never occur. A multiple of 0 changes nothing.
    pub fn padded(self, multiple: usize) -> Self {
        Gpt2Config {
            vocabulary: self.vocabulary.div_ceil(multiple.max(1)) * multiple.max(1),
            ..self
        }
    }

    /// The number of values in all parameters, which follows from the sizes.
    pub const fn parameters(&self) -> usize {
        let w = self.width;
        // Two norms, queries, keys and values, their projection, and a perceptron four times as wide.
        let block = 2 * (2 * w) + (3 * w * w + 3 * w) + (w * w + w) + (4 * w * w + 4 * w) + (4 * w * w + w);
        self.vocabulary * w + self.context * w + self.layers * block + 2 * w
    }
}

/// GPT-2 (Radford et al. 2019): embeddings of tokens and of positions, pre-norm blocks of causal attention and of a perceptron four
/// times as wide with a GELU (by tanh), a last norm, and logits by the table of the tokens, which is tied to the head. Token ids
/// `[N, T]`, `T` at most the context, to logits `[N, T, vocabulary]`.
///
/// Parameters have the names of `GPT2LMHeadModel` of Hugging Face's transformers, where the matrices of a block are `[in, out]`:
/// they are turned by [`Layout::Torch`](kiln_nn::Layout::Torch).
#[derive(Clone, Debug, Module)]
pub struct Gpt2<B: Backend> {
    transformer: Gpt2Transformer<B>,
}

/// The network up to its last norm.
#[derive(Clone, Debug, Module)]
pub struct Gpt2Transformer<B: Backend> {
    wte: Embedding<B>,
    wpe: Embedding<B>,
    drop: Dropout<B>,
    h: Vec<Gpt2Block<B>>,
    ln_f: LayerNorm<B>,
}

/// `x + attn(ln_1(x))`, then `x + mlp(ln_2(x))`.
#[derive(Clone, Debug, Module)]
pub struct Gpt2Block<B: Backend> {
    ln_1: LayerNorm<B>,
    attn: Gpt2Attention<B>,
    ln_2: LayerNorm<B>,
    mlp: Gpt2Mlp<B>,
}

/// Causal multi-head self-attention between two dense layers: `[N, T, width]` to `[N, T, width]`. The block that adds the result to its
/// input does so with the dropout.
#[derive(Clone, Debug, Module)]
pub struct Gpt2Attention<B: Backend> {
    c_attn: Linear<B>,
    c_proj: Linear<B>,
    attn_dropout: Dropout<B>,
    resid_dropout: Dropout<B>,
    heads: usize,
}

/// Two dense layers with a GELU between: `[N, T, width]` to `[N, T, width]`. The block that adds the result to its input does so with the
/// dropout.
#[derive(Clone, Debug, Module)]
pub struct Gpt2Mlp<B: Backend> {
    c_fc: Linear<B>,
    c_proj: Linear<B>,
    dropout: Dropout<B>,
}

/// Normal weights with mean 0 and this standard deviation, zero biases.
fn normal(std: f64) -> Scheme {
    Scheme::With {
        weight: Initializer::Normal { mean: 0.0, std },
        bias: Initializer::Zeros,
    }
}

/// A layer whose matrix transformers' weights have as `[in, out]`, as its `Conv1D` does.
fn conv1d<B: Backend>(mut layer: Linear<B>) -> Linear<B> {
    layer.weight.set_layout(ParamLayout::Transposed);
    layer
}

impl<B: Backend> Gpt2<B> {
    /// The net with GPT-2's initial weights of `init`'s seed: N(0, 0.02), zero biases, and the layers that add to the residual stream
    /// divided by √(2·layers).
    ///
    /// # Errors
    /// A size of 0, a width that is no multiple of the heads, a probability outside `0..=1`, memory.
    pub fn new(init: Init<B>, config: Gpt2Config) -> Result<Self> {
        let Gpt2Config {
            vocabulary,
            context,
            layers,
            heads,
            width,
            dropout,
        } = config;
        if heads == 0 || !width.is_multiple_of(heads) {
            let expected = format!("a divisor of the width {width}");
            return Err(Error::invalid("gpt2", "heads", heads, expected));
        }
        let init = &mut init.scheme(normal(0.02));
        let (wte, wpe) = (
            Embedding::new(init, vocabulary, width)?,
            Embedding::new(init, context, width)?,
        );
        let drop = Dropout::new(init, dropout)?;
        let deviation = 0.02 / (2.0 * layers as f64).sqrt();
        let residual = |init: &mut Init<B>, inputs| -> Result<Linear<B>> {
            init.set_scheme(normal(deviation));
            let layer = Linear::new(init, inputs, width);
            init.set_scheme(normal(0.02));
            layer.map(conv1d)
        };
        let mut h = Vec::with_capacity(layers);
        for _ in 0..layers {
            h.push(Gpt2Block {
                ln_1: LayerNorm::new(init, &[width])?,
                attn: Gpt2Attention {
                    c_attn: conv1d(Linear::new(init, width, 3 * width)?),
                    c_proj: residual(init, width)?,
                    // Its own stream comes last, so that those of parameters are the same as without.
                    attn_dropout: drop.clone(),
                    resid_dropout: Dropout::new(init, dropout)?,
                    heads,
                },
                ln_2: LayerNorm::new(init, &[width])?,
                mlp: Gpt2Mlp {
                    c_fc: conv1d(
                        Linear::builder(width, 4 * width)
                            .activation(Activation::GeluTanh)
                            .build(init)?,
                    ),
                    c_proj: residual(init, 4 * width)?,
                    dropout: Dropout::new(init, dropout)?,
                },
            });
        }
        let ln_f = LayerNorm::new(init, &[width])?;
        for block in &mut h {
            block.attn.attn_dropout = Dropout::new(init, dropout)?;
        }
        Ok(Gpt2 {
            transformer: Gpt2Transformer {
                wte,
                wpe,
                drop,
                h,
                ln_f,
            },
        })
    }

    /// The length of the longest sequence, in tokens.
    pub fn context(&self) -> usize {
        self.transformer.wpe.weight.shape()[0]
    }

    /// The logits of the next token at every position: ids `[N, T]` to `[N, T, vocabulary]`.
    ///
    /// # Errors
    /// Ids that are not i32, not `[N, T]`, or outside of the vocabulary; sequences longer than the context.
    pub fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || {
            let x = self.transformer.forward(ids)?;
            TiedHead::new(&self.transformer.wte.weight, None).forward(&x)
        })
    }
}

impl<B: Backend> Gpt2Transformer<B> {
    /// The vectors behind the last norm: ids `[N, T]` to `[N, T, width]`.
    ///
    /// # Errors
    /// As [`Gpt2::forward`].
    pub fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        let (_, length) = positions("gpt2", ids, 0, self.wpe.weight.shape()[0])?;
        trace::scope(self, ids, || {
            let blocks = self.h.iter();
            let of_blocks = blocks.flat_map(|block| {
                let attn = &block.attn;
                [&attn.attn_dropout, &attn.resid_dropout, &block.mlp.dropout]
            });
            Dropout::count_ahead(of_blocks.chain([&self.drop]))?;
            let positions = self.wpe.weight.narrow(0, 0, length)?;
            let x = self.drop.forward(&self.wte.forward(ids)?.add(&positions)?)?;
            let mut stream = ResidualStream::new(&x);
            for block in &self.h {
                stream = stream.through(block, |stream| block.add_to(stream, None))?;
            }
            Ok(stream.norm(&self.ln_f)?.1)
        })
    }

    /// The vectors of ids `[N, T]` behind the tokens of a cache, without dropout.
    fn next(&self, ids: &Indices<B>, cache: &mut TextCache<B>) -> Result<Tensor<B>> {
        let (past, length) = positions("gpt2", ids, cache.len(), self.wpe.weight.shape()[0])?;
        trace::scope(self, ids, || {
            let x = self.wte.forward(ids)?.add(&self.wpe.weight.narrow(0, past, length)?)?;
            let mut stream = ResidualStream::new(&x);
            for (block, cache) in self.h.iter().zip(cache.layers("gpt2", self.h.len())?) {
                stream = block.add_to(stream, Some(cache))?;
            }
            Ok(stream.norm(&self.ln_f)?.1)
        })
    }
}

impl<B: Backend> LanguageModel<B> for Gpt2<B> {
    fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        Gpt2::forward(self, ids)
    }
    /// Without all logits in memory, which are the largest tensor of the net.
    fn loss(&self, ids: &Indices<B>, next: &Indices<B>) -> Result<Tensor<B>> {
        let x = trace::scope(self, ids, || self.transformer.forward(ids))?;
        trace::part(self.backend(), "loss", || {
            let head = self.transformer.wte.weight.tensor();
            x.linear_cross_entropy(head, next, &CrossEntropyOptions::default(), None)
        })
    }
    fn next(&self, ids: &Indices<B>, cache: &mut TextCache<B>) -> Result<Tensor<B>> {
        let next = |cache: &mut TextCache<B>| {
            let x = last("gpt2", &self.transformer.next(ids, cache)?)?;
            TiedHead::new(&self.transformer.wte.weight, None)
                .forward(&x)?
                .squeeze(1)
        };
        trace::scope(self, ids, || cache.read(next))
    }
    fn cache(&self) -> TextCache<B> {
        TextCache::new(self.transformer.h.len())
    }
    fn context(&self) -> usize {
        Gpt2::context(self)
    }
    fn backend(&self) -> &B {
        self.transformer.wte.weight.backend()
    }
}

impl<B: Backend> Gpt2Block<B> {
    /// The stream with what attention and the perceptron add to it; with a cache, attention is to the positions before as well.
    fn add_to(&self, stream: ResidualStream<B>, cache: Option<&mut KeyValueCache<B>>) -> Result<ResidualStream<B>> {
        let (stream, n) = stream.norm(&self.ln_1)?;
        let added = match cache {
            None => self.attn.forward(&n)?,
            Some(cache) => self.attn.next(&n, cache)?,
        };
        let stream = stream.add(&added, Some(&self.attn.resid_dropout))?;
        let (stream, n) = stream.norm(&self.ln_2)?;
        stream.add(&self.mlp.forward(&n)?, Some(&self.mlp.dropout))
    }
}

impl<B: Backend> Layer<B> for Gpt2Block<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.add_to(ResidualStream::new(x), None)?.sum()
    }
}

impl<B: Backend> Gpt2Attention<B> {
    /// Attention of positions `[N, T, width]` behind those of the cache to all of them, without dropout.
    fn next(&self, x: &Tensor<B>, cache: &mut KeyValueCache<B>) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let y = self.c_attn.forward(x)?.self_attention_cached(self.heads, cache)?;
            self.c_proj.forward(&y)
        })
    }
}

impl<B: Backend> Layer<B> for Gpt2Attention<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let dropout = self.attn_dropout.draw()?;
        let options = AttentionOptions {
            dropout: dropout.as_ref(),
            ..AttentionOptions::causal()
        };
        let y = self.c_attn.forward(x)?.self_attention_with(self.heads, &options)?;
        self.c_proj.forward(&y)
    }

    /// The two products of every head, over the pairs of positions that the causal mask allows.
    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        input.dims().get(1).map_or(0, |&t| 2 * (input.size() * (t + 1)) as u64)
    }
}

impl<B: Backend> Layer<B> for Gpt2Mlp<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.c_proj.forward(&self.c_fc.forward(x)?)
    }
}
