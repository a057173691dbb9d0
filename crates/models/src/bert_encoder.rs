//! The encoder of BERT, which its heads share.

use crate::{OptimizerKind, OptimizerOptions, Recipe, ScheduleKind};
use kiln_core::{Backend, Error, Result};
use kiln_data::DataKind;
use kiln_nn::init::Initializer;
use kiln_nn::layers::{Dropout, Embedding, LayerNorm, Linear};
use kiln_nn::{AttentionOptions, Indices, Init, Layer, Module, Scheme, Shape, Tensor, trace};

/// The recipe of networks of the encoder and a head, for classes of texts unless they say otherwise.
pub(crate) const FINE_TUNING: Recipe = Recipe {
    data: DataKind::Texts,
    normalise: None,
    augment: &[],
    epochs: 4,
    batch: 32,
    valid_batch: 64,
    optimizer: OptimizerOptions {
        lr: 3e-4,
        weight_decay: Some(0.01),
        ..OptimizerOptions::of(OptimizerKind::AdamW)
    },
    schedule: ScheduleKind::WarmupCosine,
    phases: &[],
    clip_norm: Some(1.0),
    ema: None,
    workers: 1,
};

/// The encoder.
#[derive(Clone, Debug, Module)]
pub struct BertModel<B: Backend> {
    pub(crate) embeddings: BertEmbeddings<B>,
    pub(crate) encoder: BertEncoder<B>,
    pub(crate) pooler: Option<BertPooler<B>>,
}

/// The sum of the embeddings of tokens, positions and kinds, a norm and dropout.
#[derive(Clone, Debug, Module)]
pub struct BertEmbeddings<B: Backend> {
    pub(crate) word_embeddings: Embedding<B>,
    pub(crate) position_embeddings: Embedding<B>,
    pub(crate) token_type_embeddings: Embedding<B>,
    #[module(rename = "LayerNorm")]
    pub(crate) norm: LayerNorm<B>,
    pub(crate) dropout: Dropout<B>,
}

/// The blocks.
#[derive(Clone, Debug, Module)]
pub struct BertEncoder<B: Backend> {
    pub(crate) layer: Vec<BertLayer<B>>,
}

/// `y = norm(x + attention(x))`, then `norm(y + perceptron(y))`.
#[derive(Clone, Debug, Module)]
pub struct BertLayer<B: Backend> {
    pub(crate) attention: BertAttention<B>,
    pub(crate) intermediate: BertIntermediate<B>,
    pub(crate) output: BertOutput<B>,
}

/// Attention and what adds it to its input.
#[derive(Clone, Debug, Module)]
pub struct BertAttention<B: Backend> {
    #[module(rename = "self")]
    pub(crate) attend: BertSelfAttention<B>,
    pub(crate) output: BertOutput<B>,
}

/// Multi-head self-attention with a dense layer each for queries, keys and values: `[N, T, width]` to `[N, T, width]`.
#[derive(Clone, Debug, Module)]
pub struct BertSelfAttention<B: Backend> {
    pub(crate) query: Linear<B>,
    pub(crate) key: Linear<B>,
    pub(crate) value: Linear<B>,
    pub(crate) dropout: Dropout<B>,
    pub(crate) heads: usize,
}

/// A dense layer with a GELU: `[…, width]` to `[…, hidden]`.
#[derive(Clone, Debug, Module)]
pub struct BertIntermediate<B: Backend> {
    pub(crate) dense: Linear<B>,
}

/// A dense layer and dropout, whose result is added to the input of the block and normalised.
#[derive(Clone, Debug, Module)]
pub struct BertOutput<B: Backend> {
    pub(crate) dense: Linear<B>,
    pub(crate) dropout: Dropout<B>,
    #[module(rename = "LayerNorm")]
    pub(crate) norm: LayerNorm<B>,
}

/// A dense layer with tanh of the first position: `[N, T, width]` to `[N, width]`.
#[derive(Clone, Debug, Module)]
pub struct BertPooler<B: Backend> {
    pub(crate) dense: Linear<B>,
}

/// A norm with BERT's eps.
pub(crate) fn norm<B: Backend>(init: &mut Init<B>, width: usize) -> Result<LayerNorm<B>> {
    LayerNorm::builder(&[width]).eps(1e-12).build(init)
}

/// BERT's initial weights: N(0, 0.02) and zero biases.
pub(crate) fn initial() -> Scheme {
    Scheme::With {
        weight: Initializer::Normal { mean: 0.0, std: 0.02 },
        bias: Initializer::Zeros,
    }
}

impl<B: Backend> BertModel<B> {
    /// The vectors of all positions: ids `[N, T]`, with `T` at most the context, and the kinds of tokens `[N, T]`, all of the first if
    /// there are none, to `[N, T, width]`.
    ///
    /// # Errors
    /// Ids or kinds that are not i32, not `[N, T]`, or outside of their tables; sequences longer than the context.
    pub fn forward(&self, ids: &Indices<B>, types: Option<&Indices<B>>) -> Result<Tensor<B>> {
        self.forward_masked(ids, types, None)
    }

    /// As [`BertModel::forward`], where no position attends to those whose entry in the u8 mask `[N, T]` is 0 (`attention_mask` of Hugging
    /// Face's transformers): those behind the end of short sequences.
    ///
    /// # Errors
    /// As [`BertModel::forward`]; a mask that is not u8 or of another shape.
    pub fn forward_masked(
        &self,
        ids: &Indices<B>,
        types: Option<&Indices<B>>,
        mask: Option<&Indices<B>>,
    ) -> Result<Tensor<B>> {
        self.encode(ids, types, mask, &Select::All)
    }

    /// As [`BertModel::forward_masked`], the vectors at some positions alone: ids `[N, T]` and `[M]` positions of all `N·T` to
    /// `[M, width]`. What the last block does behind its attention is done for these positions alone.
    ///
    /// # Errors
    /// As [`BertModel::forward_masked`]; positions that are not i32 or outside of `N·T`.
    pub fn forward_at(
        &self,
        ids: &Indices<B>,
        types: Option<&Indices<B>>,
        mask: Option<&Indices<B>>,
        positions: &Indices<B>,
    ) -> Result<Tensor<B>> {
        self.encode(ids, types, mask, &Select::At(positions))
    }

    /// As [`BertModel::forward_masked`], the vectors of the first positions alone, which classifiers read: `[N, T]` to `[N, 1, width]`.
    /// Of the other positions the last block computes keys and values alone.
    ///
    /// # Errors
    /// As [`BertModel::forward_masked`].
    pub fn forward_first(
        &self,
        ids: &Indices<B>,
        types: Option<&Indices<B>>,
        mask: Option<&Indices<B>>,
    ) -> Result<Tensor<B>> {
        self.encode(ids, types, mask, &Select::First)
    }

    /// The vectors of the selected positions.
    fn encode(
        &self,
        ids: &Indices<B>,
        types: Option<&Indices<B>>,
        mask: Option<&Indices<B>>,
        select: &Select<'_, B>,
    ) -> Result<Tensor<B>> {
        trace::scope(self, ids, || {
            let mask = match (mask, ids.shape().dims()) {
                (Some(mask), &[n, length]) => Some(mask.reshape(&[n, 1, 1, length])?),
                _ => None,
            };
            let layers = self.encoder.layer.iter();
            let dropouts = layers.flat_map(|layer| {
                let attention = &layer.attention;
                [
                    &attention.attend.dropout,
                    &attention.output.dropout,
                    &layer.output.dropout,
                ]
            });
            Dropout::count_ahead(dropouts.chain([&self.embeddings.dropout]))?;
            let x = self.embeddings.forward(ids, types)?;
            let mask = mask.as_ref();
            match self.encoder.layer.split_last() {
                Some((last, layers)) => {
                    let mut layers = layers.iter();
                    let x = layers.try_fold(x, |x, layer| layer.encode(&x, mask, &Select::All))?;
                    last.encode(&x, mask, select)
                }
                None => select.of(x),
            }
        })
    }

    /// The pooled vector of each sequence, for classifiers: what [`BertModel::forward`] gives, `[N, T, width]`, to `[N, width]`.
    ///
    /// # Errors
    /// Another shape; an encoder without a pooler.
    pub fn pooled(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        match &self.pooler {
            Some(pooler) => pooler.forward(x),
            None => Err(Error::invalid("bert", "pooler", "none", "an encoder with one")),
        }
    }
}

impl<B: Backend> BertEmbeddings<B> {
    fn forward(&self, ids: &Indices<B>, types: Option<&Indices<B>>) -> Result<Tensor<B>> {
        let context = self.position_embeddings.weight.shape()[0];
        let length = match *ids.shape().dims() {
            [_, length] if length <= context => length,
            _ => {
                let expected = format!("ids [N, T] with T at most {context}");
                return Err(Error::invalid("bert", "ids", ids.shape(), expected));
            }
        };
        trace::scope(self, ids, || {
            let positions = self.position_embeddings.weight.narrow(0, 0, length)?;
            let words = self.word_embeddings.forward(ids)?;
            let sum = match types {
                Some(types) => words
                    .add(&positions)?
                    .add(&self.token_type_embeddings.forward(types)?)?,
                // The same vector for all: it is added to the few positions, not to every token.
                None => words.add(&positions.add(&self.token_type_embeddings.weight.narrow(0, 0, 1)?)?)?,
            };
            self.dropout.forward(&self.norm.forward_half(&sum)?)
        })
    }
}

/// The positions whose vectors are wanted.
enum Select<'a, B: Backend> {
    All,
    /// The first of each sequence.
    First,
    /// Some of all `N·T`.
    At(&'a Indices<B>),
}

impl<B: Backend> Select<'_, B> {
    /// The selected vectors of `x`, `[N, T, width]`: `[N, T, width]`, `[N, 1, width]` or `[M, width]`.
    fn of(&self, x: Tensor<B>) -> Result<Tensor<B>> {
        match self {
            Select::All => Ok(x),
            Select::First => x.narrow(1, 0, 1),
            Select::At(positions) => {
                let width = x.shape()[2];
                x.reshape(&[x.size() / width, width])?.index_select(0, positions)
            }
        }
    }
}

impl<B: Backend> Layer<B> for BertLayer<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.added(x, &self.attention.attend.forward(x)?)
    }
}

impl<B: Backend> BertLayer<B> {
    /// As `forward`, where all positions attend to those that the mask `[N, 1, 1, T]` allows, and only the selected ones have a result.
    fn encode(&self, x: &Tensor<B>, mask: Option<&Indices<B>>, select: &Select<'_, B>) -> Result<Tensor<B>> {
        if mask.is_none() && matches!(select, Select::All) {
            return self.forward(x);
        }
        trace::scope(self, x, || {
            let attend = &self.attention.attend;
            let attended = trace::scope(attend, x, || attend.attended(x, mask, select))?;
            self.added(&select.of(x.clone())?, &attended)
        })
    }

    /// The output of the block for its input `x`, whose attention gave `attended`: two additions, each with a norm.
    fn added(&self, x: &Tensor<B>, attended: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.attention.output.forward(attended, x)?;
        self.output.forward(&self.intermediate.forward(&y)?, &y)
    }
}

impl<B: Backend> BertOutput<B> {
    /// `norm(x + dropout(dense(y)))`.
    fn forward(&self, y: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        trace::scope(self, y, || {
            Ok(self
                .norm
                .forward_sum(x, &self.dense.forward(y)?, Some(&self.dropout))?
                .1)
        })
    }
}

impl<B: Backend> BertSelfAttention<B> {
    /// The attention of the selected positions of `x`, `[N, T, width]`, to those that the mask allows. If these are the first ones, no others
    /// attend; if they are some of all, their places may differ between sequences, and all attend.
    fn attended(&self, x: &Tensor<B>, mask: Option<&Indices<B>>, select: &Select<'_, B>) -> Result<Tensor<B>> {
        let dropout = self.dropout.draw()?;
        let options = AttentionOptions {
            mask,
            dropout: dropout.as_ref(),
            ..AttentionOptions::default()
        };
        if !matches!(select, Select::First) {
            let all = Linear::forward_joined(&[&self.query, &self.key, &self.value], x)?;
            return select.of(all.self_attention_with(self.heads, &options)?);
        }
        let heads =
            |layer: &Linear<B>, x: &Tensor<B>| layer.forward(x)?.unflatten(-1, (self.heads, -1))?.transpose(1, 2);
        let (k, v) = (heads(&self.key, x)?, heads(&self.value, x)?);
        let q = heads(&self.query, &select.of(x.clone())?)?;
        let y = q.scaled_dot_product_attention(&k, &v, &options)?;
        y.transpose(1, 2)?.flatten(2, -1)
    }
}

impl<B: Backend> Layer<B> for BertSelfAttention<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.attended(x, None, &Select::All)
    }

    /// The two products of every head.
    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        input.dims().get(1).map_or(0, |&t| 4 * (input.size() * t) as u64)
    }
}

impl<B: Backend> Layer<B> for BertIntermediate<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.dense.forward(x)
    }
}

impl<B: Backend> Layer<B> for BertPooler<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let first = x.narrow(1, 0, 1)?.squeeze(1)?;
        self.dense.forward(&first)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Bert, BertConfig};
    use kiln_core::Result;
    use kiln_cpu::Cpu;
    use kiln_nn::{Indices, Init, Module, Tensor};

    /// Values and gradients of the positions that are asked for are those of all positions, up to rounding.
    #[test]
    fn vectors_of_some_positions_are_those_of_all() -> Result<()> {
        let cpu = Cpu::new();
        let config = BertConfig {
            vocabulary: 20,
            context: 8,
            layers: 2,
            heads: 2,
            width: 8,
            hidden: 16,
            ..BertConfig::BASE
        };
        let mut net = Bert::new(Init::new(&cpu, 5), config)?;
        net.eval();
        let encoder = net.encoder();
        let ids: Vec<i32> = (0..3 * 7).map(|i| i * 11 % 20).collect();
        let ids = Indices::from_slice(&cpu, &ids, &[3, 7])?;
        let mask: Vec<u8> = (0..3 * 7).map(|i| u8::from(i % 7 < 3 + i / 7)).collect();
        let mask = Indices::from_slice(&cpu, &mask, &[3, 7])?;
        let same = |some: &Tensor<Cpu>, of_all: &Tensor<Cpu>| -> Result<()> {
            assert_eq!(some.shape(), of_all.shape());
            // Sums of squares would not tell vectors from their permutation.
            let weights = Tensor::from_slice(
                &cpu,
                &(0..some.size()).map(|i| i as f32).collect::<Vec<_>>(),
                some.shape().dims(),
            )?;
            let grads = |x: &Tensor<Cpu>| x.mul(&weights)?.sum(&[], false)?.backward();
            let (a, b) = (grads(some)?, grads(of_all)?);
            let close = |a: &[f64], b: &[f64]| {
                // Those of the biases of keys are zero but for rounding.
                let largest = b.iter().fold(1.0f64, |m, x| m.max(x.abs()));
                assert!(
                    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * largest),
                    "{a:?} {b:?}"
                );
            };
            close(&some.to_f64()?, &of_all.to_f64()?);
            for (name, p) in encoder.named_parameters() {
                match (a.get(p), b.get(p)) {
                    (Some(a), Some(b)) => close(&a.to_f64()?, &b.to_f64()?),
                    (None, None) => assert!(name.starts_with("pooler"), "{name}"),
                    _ => panic!("a gradient of {name} is missing"),
                }
            }
            Ok(())
        };
        for mask in [None, Some(&mask)] {
            let all = || encoder.forward_masked(&ids, None, mask);
            let positions = Indices::from_slice(&cpu, &[16, 2, 0, 9, 20], &[5])?;
            same(
                &encoder.forward_at(&ids, None, mask, &positions)?,
                &all()?.reshape(&[3 * 7, 8])?.index_select(0, &positions)?,
            )?;
            same(&encoder.forward_first(&ids, None, mask)?, &all()?.narrow(1, 0, 1)?)?;
        }
        Ok(())
    }
}
