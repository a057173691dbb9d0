//! A small BERT that tags words.

use crate::bert::BertConfig;
use crate::bert_encoder::{BertModel, FINE_TUNING, initial};
use crate::padded::{padded, tokens_of};
use crate::task::{self, Phase, Views};
use crate::{Card, Form, Input, NetSizes, OutputKind, Recipe, Shown};
use kiln_core::{Backend, Result};
use kiln_data::{Batch, DataError, DataKind, Loader, Sample};
use kiln_nn::layers::{Dropout, Linear};
use kiln_nn::{Indices, Init, Layer, Module, Tensor, trace};
use kiln_train::{EntityF1, Output};
use ndarray::Array2;

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a BERT of four layers that tags the words of sentences; --init-from starts it from a bert-mini",
    input: Input::tagged(&[128]),
    // As many as CoNLL 2003 has.
    output: OutputKind::Tags(9),
    values: &[
        Shown::new("loss", Form::Number),
        Shown::labelled("f1", "F1", Form::Percent),
        Shown::new("precision", Form::Percent),
        Shown::new("recall", Form::Percent),
        Shown::new("accuracy", Form::Percent),
    ],
    monitor: ("f1", true),
    parameters: BertConfig::MINI.unpooled_parameters() + 9 * BertConfig::MINI.width + 9,
    recipe: Recipe {
        data: DataKind::Conll,
        ..FINE_TUNING
    },
};

/// BERT with a head for tags of words: dropout and a dense layer on the vector of each token.
///
/// Parameters have the names of `BertForTokenClassification` of Hugging Face's transformers.
#[derive(Clone, Debug, Module)]
pub struct BertTagger<B: Backend> {
    bert: BertModel<B>,
    dropout: Dropout<B>,
    classifier: Linear<B>,
}

impl<B: Backend> BertTagger<B> {
    /// The net with BERT's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// As [`Bert::new`](crate::Bert::new); no tags.
    pub fn new(init: Init<B>, config: BertConfig, tags: usize) -> Result<Self> {
        let init = &mut init.scheme(initial());
        Ok(BertTagger {
            bert: BertModel::unpooled(init, config)?,
            classifier: Linear::new(init, config.width, tags)?,
            dropout: Dropout::new(init, config.dropout)?,
        })
    }

    /// The logits `[N, T, tags]` of the tokens of sentences: ids `[N, T]`, and a u8 mask `[N, T]` that is 0 behind the end of each.
    ///
    /// # Errors
    /// As [`BertModel::forward_masked`].
    pub fn forward(&self, ids: &Indices<B>, mask: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || {
            let x = self.bert.forward_masked(ids, None, Some(mask))?;
            self.classifier.forward(&self.dropout.forward(&x)?)
        })
    }
}

/// A batch of tagged sentences.
#[derive(Batch)]
pub(crate) struct Tagged {
    /// The tokens `[N, T]`, as many as the longest sentence has, rounded up to 16.
    pub(crate) ids: Array2<i32>,
    /// 1 for tokens of the sentence and 0 behind them.
    pub(crate) mask: Array2<u8>,
    /// The tags of the first tokens of words and −100 elsewhere, `[N, T]`.
    pub(crate) labels: Array2<i32>,
}

impl Tagged {
    fn collate(samples: &[Sample]) -> kiln_data::Result<Tagged> {
        let sentences: Vec<&[f32]> = samples.iter().map(|sample| &sample.input[..]).collect();
        let (ids, mask) = padded(&sentences)?;
        if let Some(other) = samples.iter().find(|sample| sample.targets.len() != sample.input.len()) {
            return Err(DataError::Layout {
                found: format!("{} tags for {} tokens", other.targets.len(), other.input.len()),
                expected: "a tag or −100 for each token".to_string(),
            });
        }
        let labels = Array2::from_shape_fn(ids.dim(), |(n, at)| samples[n].targets[at] as i32);
        Ok(Tagged { ids, mask, labels })
    }
}

/// The mean cross-entropy of tagged tokens; metrics read the logits and the tags.
fn step<B: Backend>(net: &BertTagger<B>, batch: &TaggedOn<B>) -> Result<Output<B>> {
    let logits = net.forward(&batch.ids, &batch.mask)?;
    let loss = trace::part(logits.backend(), "loss", || logits.cross_entropy(&batch.labels))?;
    Ok(Output::new(loss).with_scores(logits, &batch.labels))
}

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<task::Task<B, BertTagger<B>, Tagged>> {
    let config = BertConfig {
        vocabulary: sizes.vocabulary.unwrap_or(BertConfig::MINI.vocabulary),
        ..BertConfig::MINI
    };
    Ok(task::Task {
        net: BertTagger::new(init, config, sizes.outputs)?,
        prepare: None,
        loader: |dataset, options, _| Loader::with_collate(dataset, Tagged::collate, options),
        phases: vec![Phase {
            name: "",
            step: step::<B>,
            trains: |_| true,
        }],
        measure: step::<B>,
        forward: |net, batch| net.forward(&batch.ids, &batch.mask),
        metrics: |held_back| Ok(vec![Box::new(EntityF1::new(held_back.class_names().iter().cloned()))]),
        views: Views {
            tokens: Some(|net, sentences| {
                let (ids, mask) = tokens_of(sentences)?;
                net.forward(&ids, &mask)
            }),
            ..Views::default()
        },
    })
}
