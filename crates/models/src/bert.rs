//! BERT-base, trained on masked tokens.

use crate::bert_encoder::{
    BertAttention, BertEmbeddings, BertEncoder, BertIntermediate, BertLayer, BertModel, BertOutput, BertPooler,
    BertSelfAttention, initial, norm,
};
use crate::masked::{self, MaskedModel, Masking};
use crate::tied::TiedHead;
use crate::{Card, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, ScheduleKind};
use kiln_core::{Backend, Error, Result};
use kiln_data::DataKind;
use kiln_nn::layers::{Dropout, Embedding, LayerNorm, Linear};
use kiln_nn::{Activation, Indices, Init, Layer, Module, Param, Tensor, trace};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "BERT-base, which fills in masked tokens; characters take the tokens behind its special ones",
    input: Input::tokens(&[BertConfig::BASE.context]),
    output: OutputKind::Tokens(BertConfig::BASE.vocabulary),
    values: masked::VALUES,
    monitor: masked::MONITOR,
    parameters: BertConfig::BASE.parameters(),
    // As the authors trained it.
    recipe: Recipe {
        data: DataKind::Text,
        normalise: None,
        augment: &[],
        epochs: 1,
        batch: 8,
        valid_batch: 1,
        optimizer: OptimizerOptions {
            lr: 1e-4,
            weight_decay: Some(0.01),
            eps: Some(1e-6),
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
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<masked::Task<B>> {
    task_of(
        init,
        BertConfig {
            vocabulary: sizes.outputs,
            ..BertConfig::BASE
        },
    )
}

/// A network of these sizes with the task.
pub(crate) fn task_of<B: Backend>(init: Init<B>, config: BertConfig) -> Result<masked::Task<B>> {
    let masking = Masking::of(config.vocabulary);
    Ok(masked::task(Bert::new(init, config)?, masking))
}

/// The sizes of a [`Bert`], and its dropout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BertConfig {
    /// Number of tokens.
    pub vocabulary: usize,
    /// The length of the longest sequence, in tokens.
    pub context: usize,
    /// Kinds of tokens: those of the first sentence, those of the second.
    pub types: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Attention heads of a block.
    pub heads: usize,
    /// Elements of the vector of a position; a multiple of the heads.
    pub width: usize,
    /// Elements between the two dense layers of a block.
    pub hidden: usize,
    /// The probability that dropout zeroes an element of the embedding or of what a block adds to its input, or a weight of attention; 0
    /// turns it off.
    pub dropout: f64,
}

impl BertConfig {
    /// `bert-base-uncased`: 12 blocks of 12 heads, 768 wide, sequences of 512 out of 30522 tokens.
    pub const BASE: BertConfig = BertConfig {
        vocabulary: 30_522,
        context: 512,
        types: 2,
        layers: 12,
        heads: 12,
        width: 768,
        hidden: 3072,
        dropout: 0.1,
    };

    /// `google/bert_uncased_L-4_H-256_A-4`: 4 blocks of 4 heads, 256 wide.
    pub const MINI: BertConfig = BertConfig {
        layers: 4,
        heads: 4,
        width: 256,
        hidden: 1024,
        ..BertConfig::BASE
    };

    /// The number of values in all parameters of the encoder with its pooler, which follows from the sizes.
    pub const fn encoder_parameters(&self) -> usize {
        self.unpooled_parameters() + self.width * self.width + self.width
    }

    /// The number of values in all parameters of the encoder without its pooler.
    pub const fn unpooled_parameters(&self) -> usize {
        let (w, hidden) = (self.width, self.hidden);
        let attention = 4 * (w * w + w) + 2 * w;
        let block = attention + (w * hidden + hidden) + (hidden * w + w) + 2 * w;
        (self.vocabulary + self.context + self.types) * w + 2 * w + self.layers * block
    }

    /// The number of values in all parameters: those of the encoder, and of the head, whose matrix is the table of the tokens.
    pub const fn parameters(&self) -> usize {
        let w = self.width;
        self.encoder_parameters() + (w * w + w) + 2 * w + self.vocabulary
    }
}

/// BERT with its head for masked tokens (Devlin et al. 2018): embeddings of tokens, positions and kinds of tokens with a norm, post-norm
/// blocks of attention in both directions and of a perceptron with a GELU (by erf), and for masked positions a dense layer, a norm, and
/// logits by the table of the tokens.
///
/// Parameters have the names of `BertForPreTraining` of Hugging Face's transformers, without its classifier of pairs of sentences.
/// The pooler, which masked tokens do not train, is frozen.
#[derive(Clone, Debug, Module)]
pub struct Bert<B: Backend> {
    bert: BertModel<B>,
    cls: BertHead<B>,
}

/// The head for masked tokens.
#[derive(Clone, Debug, Module)]
pub struct BertHead<B: Backend> {
    predictions: BertPredictions<B>,
}

/// A dense layer with a GELU and a norm, then logits by the table of the tokens and a bias.
#[derive(Clone, Debug, Module)]
pub struct BertPredictions<B: Backend> {
    bias: Param<B>,
    transform: BertTransform<B>,
}

/// A dense layer with a GELU and a norm: `[…, width]` to `[…, width]`.
#[derive(Clone, Debug, Module)]
pub struct BertTransform<B: Backend> {
    dense: Linear<B>,
    #[module(rename = "LayerNorm")]
    norm: LayerNorm<B>,
}

impl<B: Backend> Bert<B> {
    /// The net with BERT's initial weights of `init`'s seed: N(0, 0.02) and zero biases.
    ///
    /// # Errors
    /// A size of 0, a width that is no multiple of the heads, a probability outside `0..=1`, memory.
    pub fn new(init: Init<B>, config: BertConfig) -> Result<Self> {
        Bert::with(&mut init.scheme(initial()), config)
    }

    /// As [`Bert::new`], by an `init` that goes on with what is built behind.
    fn with(init: &mut Init<B>, config: BertConfig) -> Result<Self> {
        let BertConfig { width, dropout, .. } = config;
        if config.heads == 0 || !width.is_multiple_of(config.heads) {
            let expected = format!("a divisor of the width {width}");
            return Err(Error::invalid("bert", "heads", config.heads, expected));
        }
        let embeddings = BertEmbeddings {
            word_embeddings: Embedding::new(init, config.vocabulary, width)?,
            position_embeddings: Embedding::new(init, config.context, width)?,
            token_type_embeddings: Embedding::new(init, config.types, width)?,
            norm: norm(init, width)?,
            dropout: Dropout::new(init, dropout)?,
        };
        let output = |init: &mut Init<B>, inputs| -> Result<BertOutput<B>> {
            Ok(BertOutput {
                dense: Linear::new(init, inputs, width)?,
                dropout: Dropout::new(init, dropout)?,
                norm: norm(init, width)?,
            })
        };
        let mut layer = Vec::with_capacity(config.layers);
        for _ in 0..config.layers {
            layer.push(BertLayer {
                attention: BertAttention {
                    attend: BertSelfAttention {
                        query: Linear::new(init, width, width)?,
                        key: Linear::new(init, width, width)?,
                        value: Linear::new(init, width, width)?,
                        // Its own stream comes last, so that those of parameters are the same as without.
                        dropout: embeddings.dropout.clone(),
                        heads: config.heads,
                    },
                    output: output(init, width)?,
                },
                intermediate: BertIntermediate {
                    dense: Linear::builder(width, config.hidden)
                        .activation(Activation::Gelu)
                        .build(init)?,
                },
                output: output(init, config.hidden)?,
            });
        }
        let mut pooler = BertPooler {
            dense: Linear::builder(width, width).activation(Activation::Tanh).build(init)?,
        };
        pooler.dense.weight.set_trainable(false);
        pooler.dense.bias.iter_mut().for_each(|bias| bias.set_trainable(false));
        let predictions = BertPredictions {
            bias: init.bias(config.vocabulary, &[config.vocabulary, width])?,
            transform: BertTransform {
                dense: Linear::builder(width, width).activation(Activation::Gelu).build(init)?,
                norm: norm(init, width)?,
            },
        };
        for layer in &mut layer {
            layer.attention.attend.dropout = Dropout::new(init, dropout)?;
        }
        Ok(Bert {
            bert: BertModel {
                embeddings,
                encoder: BertEncoder { layer },
                pooler: Some(pooler),
            },
            cls: BertHead { predictions },
        })
    }

    /// The encoder.
    pub fn encoder(&self) -> &BertModel<B> {
        &self.bert
    }

    /// The logits at some positions: ids `[N, T]` and `[M]` positions of all `N·T` to `[M, vocabulary]`. All tokens are of the first
    /// kind.
    ///
    /// # Errors
    /// As [`BertModel::forward`]; positions that are not i32 or outside of `N·T`.
    pub fn forward(&self, ids: &Indices<B>, positions: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || {
            let masked = self.bert.forward_at(ids, None, None, positions)?;
            self.cls
                .predictions
                .forward(&masked, &self.bert.embeddings.word_embeddings.weight)
        })
    }
}

impl<B: Backend> MaskedModel<B> for Bert<B> {
    fn logits(&self, ids: &Indices<B>, positions: &Indices<B>) -> Result<Tensor<B>> {
        self.forward(ids, positions)
    }
    fn backend(&self) -> &B {
        self.cls.predictions.bias.backend()
    }
}

impl<B: Backend> BertModel<B> {
    /// The encoder with a pooler that is trained, for classifiers.
    ///
    /// # Errors
    /// As [`Bert::new`].
    pub(crate) fn trained(init: &mut Init<B>, config: BertConfig) -> Result<Self> {
        let Bert { bert: mut encoder, .. } = Bert::with(init, config)?;
        if let Some(BertPooler { dense }) = &mut encoder.pooler {
            dense.weight.set_trainable(true);
            dense.bias.iter_mut().for_each(|bias| bias.set_trainable(true));
        }
        Ok(encoder)
    }

    /// The encoder without a pooler, for networks that say something about each token (`add_pooling_layer=False` of Hugging Face's
    /// transformers).
    ///
    /// # Errors
    /// As [`Bert::new`].
    pub(crate) fn unpooled(init: &mut Init<B>, config: BertConfig) -> Result<Self> {
        let Bert { bert: encoder, .. } = Bert::with(init, config)?;
        Ok(BertModel {
            pooler: None,
            ..encoder
        })
    }
}

impl<B: Backend> BertPredictions<B> {
    fn forward(&self, x: &Tensor<B>, table: &Param<B>) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let x = self.transform.forward(x)?;
            TiedHead::new(table, Some(&self.bias)).forward(&x)
        })
    }
}

impl<B: Backend> Layer<B> for BertTransform<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.norm.forward_half(&self.dense.forward(x)?)
    }
}
