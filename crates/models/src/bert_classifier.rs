//! A small BERT that tells classes of texts apart.

use crate::bert::BertConfig;
use crate::bert_encoder::{BertModel, FINE_TUNING, initial};
use crate::padded::{padded, tokens_of};
use crate::task::{self, Phase, Views};
use crate::{Card, Input, NetSizes, OutputKind, classes};
use kiln_core::{Backend, Result};
use kiln_data::{Batch, Loader, Sample};
use kiln_nn::layers::{Dropout, Linear};
use kiln_nn::{Indices, Init, Layer, Module, Tensor, trace};
use kiln_train::{Accuracy, Output};
use ndarray::{Array1, Array2};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a BERT of four layers that tells classes of texts apart; --init-from starts it from a bert-mini",
    input: Input::texts(&[128]),
    output: OutputKind::Classes(2),
    values: classes::VALUES,
    monitor: classes::MONITOR,
    parameters: BertConfig::MINI.encoder_parameters() + 2 * BertConfig::MINI.width + 2,
    recipe: FINE_TUNING,
};

/// BERT with a head for classes of texts: dropout and a dense layer on the pooled vector.
///
/// Parameters have the names of `BertForSequenceClassification` of Hugging Face's transformers.
#[derive(Clone, Debug, Module)]
pub struct BertClassifier<B: Backend> {
    bert: BertModel<B>,
    dropout: Dropout<B>,
    classifier: Linear<B>,
}

impl<B: Backend> BertClassifier<B> {
    /// The net with BERT's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// As [`Bert::new`](crate::Bert::new); no classes.
    pub fn new(init: Init<B>, config: BertConfig, classes: usize) -> Result<Self> {
        let init = &mut init.scheme(initial());
        Ok(BertClassifier {
            bert: BertModel::trained(init, config)?,
            classifier: Linear::new(init, config.width, classes)?,
            dropout: Dropout::new(init, config.dropout)?,
        })
    }

    /// The logits `[N, classes]` of texts: ids `[N, T]`, and a u8 mask `[N, T]` that is 0 behind the end of each.
    ///
    /// # Errors
    /// As [`BertModel::forward_masked`].
    pub fn forward(&self, ids: &Indices<B>, mask: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || {
            let x = self.bert.forward_first(ids, None, Some(mask))?;
            self.classifier.forward(&self.dropout.forward(&self.bert.pooled(&x)?)?)
        })
    }
}

/// A batch of texts.
#[derive(Batch)]
pub(crate) struct Texts {
    /// The tokens `[N, T]`, as many as the longest text has, rounded up to 16.
    pub(crate) ids: Array2<i32>,
    /// 1 for tokens of the text and 0 behind them.
    pub(crate) mask: Array2<u8>,
    /// The class of each text.
    pub(crate) labels: Array1<i32>,
}

impl Texts {
    fn collate(samples: &[Sample]) -> kiln_data::Result<Texts> {
        let texts: Vec<&[f32]> = samples.iter().map(|sample| &sample.input[..]).collect();
        let (ids, mask) = padded(&texts)?;
        Ok(Texts {
            ids,
            mask,
            labels: samples.iter().map(|sample| sample.label).collect(),
        })
    }
}

/// The cross-entropy of the logits with the labels; accuracies read both.
fn step<B: Backend>(net: &BertClassifier<B>, batch: &TextsOn<B>) -> Result<Output<B>> {
    let logits = net.forward(&batch.ids, &batch.mask)?;
    let loss = trace::part(logits.backend(), "loss", || logits.cross_entropy(&batch.labels))?;
    Ok(Output::new(loss).with_scores(logits, &batch.labels))
}

/// The logits of texts `[N, T]` as datasets give them.
fn classify<B: Backend>(net: &BertClassifier<B>, texts: &Tensor<B>) -> Result<Tensor<B>> {
    let (ids, mask) = tokens_of(texts)?;
    net.forward(&ids, &mask)
}

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<task::Task<B, BertClassifier<B>, Texts>> {
    let config = BertConfig {
        vocabulary: sizes.vocabulary.unwrap_or(BertConfig::MINI.vocabulary),
        ..BertConfig::MINI
    };
    Ok(task::Task {
        net: BertClassifier::new(init, config, sizes.outputs)?,
        prepare: None,
        loader: |dataset, options, _| Loader::with_collate(dataset, Texts::collate, options),
        phases: vec![Phase {
            name: "",
            step: step::<B>,
            trains: |_| true,
        }],
        measure: step::<B>,
        forward: |net, batch| net.forward(&batch.ids, &batch.mask),
        metrics: |_| Ok(vec![Box::new(Accuracy::new())]),
        views: Views {
            classify: Some(classify::<B>),
            ..Views::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_cpu::Cpu;
    use kiln_nn::no_grad;

    fn small() -> BertConfig {
        BertConfig {
            vocabulary: 20,
            context: 32,
            layers: 2,
            heads: 2,
            width: 8,
            hidden: 16,
            ..BertConfig::MINI
        }
    }

    #[test]
    fn what_lies_behind_a_text_changes_nothing() {
        let cpu = Cpu::new();
        let mut net = BertClassifier::new(Init::new(&cpu, 3), small(), 3).unwrap();
        net.eval();
        let text: Vec<f32> = (0..7).map(|i| (2 * i + 1) as f32).collect();
        let with = |behind: usize| [&text[..], &vec![-1.0; behind]].concat();
        let of = |texts: &[Vec<f32>]| {
            let width = texts[0].len();
            let values = Tensor::from_slice(&cpu, &texts.concat(), &[texts.len(), width]).unwrap();
            no_grad(|| classify(&net, &values)).unwrap().to_f64().unwrap()
        };
        let (alone, padded) = (
            of(&[with(0)]),
            of(&[with(20), (0..27).map(|i| (i % 20) as f32).collect()]),
        );
        assert_eq!(alone.len(), 3);
        for (a, b) in alone.iter().zip(&padded) {
            assert!((a - b).abs() < 1e-6, "{alone:?} {padded:?}");
        }
        assert!((alone[0] - padded[3]).abs() > 1e-9);
    }

    #[test]
    fn parameters_have_the_names_of_the_original() {
        let names = BertClassifier::new(Init::new(&Cpu::new(), 0), small(), 2)
            .unwrap()
            .state_dict();
        for name in ["bert.pooler.dense.weight", "classifier.weight", "classifier.bias"] {
            assert!(names.iter().any(|(found, _)| found == name), "{name}");
        }
    }
}
