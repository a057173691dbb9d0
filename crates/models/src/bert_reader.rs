//! A BERT that answers questions about a text by a span of it.

use crate::bert::BertConfig;
use crate::bert_encoder::{BertModel, FINE_TUNING, initial};
use crate::padded::padded;
use crate::spans::SpanScores;
use crate::task::{self, Phase, Views};
use crate::{Card, Form, Input, NetSizes, OutputKind, Recipe, Shown};
use kiln_core::{Backend, Error, Result};
use kiln_data::{Batch, DataError, DataKind, Loader, Questions, Sample};
use kiln_nn::layers::Linear;
use kiln_nn::{CrossEntropyOptions, Indices, Init, Layer, Module, Tensor, trace};
use kiln_train::{Metric, Output};
use ndarray::{Array1, Array2};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a BERT of four layers that answers questions by spans of texts; --init-from starts it from a bert-mini",
    input: Input::questions(&[256]),
    output: OutputKind::Spans,
    values: &[
        Shown::new("loss", Form::Number),
        Shown::labelled("f1", "F1", Form::Percent),
        Shown::labelled("exact_match", "exact", Form::Percent),
    ],
    monitor: ("f1", true),
    parameters: BertConfig::MINI.unpooled_parameters() + 2 * BertConfig::MINI.width + 2,
    recipe: Recipe {
        data: DataKind::Squad,
        epochs: 3,
        batch: 16,
        valid_batch: 32,
        ..FINE_TUNING
    },
};

/// BERT with a head for spans: a dense layer to the logits of the first and of the last token of an answer. The sequences are
/// `[CLS] question [SEP] text [SEP]`, of which the tokens of the text are of the second kind.
///
/// Parameters have the names of `BertForQuestionAnswering` of Hugging Face's transformers.
#[derive(Clone, Debug, Module)]
pub struct BertReader<B: Backend> {
    bert: BertModel<B>,
    qa_outputs: Linear<B>,
}

impl<B: Backend> BertReader<B> {
    /// The net with BERT's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// As [`Bert::new`](crate::Bert::new).
    pub fn new(init: Init<B>, config: BertConfig) -> Result<Self> {
        let init = &mut init.scheme(initial());
        Ok(BertReader {
            bert: BertModel::unpooled(init, config)?,
            qa_outputs: Linear::new(init, config.width, 2)?,
        })
    }

    /// The logits `[N, T, 2]` of the first and of the last token of the answer: ids and kinds of tokens `[N, T]`, and a u8 mask `[N, T]` that
    /// is 0 behind the end of each sequence.
    ///
    /// # Errors
    /// As [`BertModel::forward_masked`].
    pub fn forward(&self, ids: &Indices<B>, types: &Indices<B>, mask: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || {
            let x = self.bert.forward_masked(ids, Some(types), Some(mask))?;
            self.qa_outputs.forward(&x)
        })
    }

    /// The loss of logits `[N, T, 2]`: the mean of the cross-entropies of the first tokens `[N]` and of the last tokens `[N]` over all
    /// positions. A position of `T`, behind the end, is left out, such as one of an answer that was cut off.
    ///
    /// # Errors
    /// Positions that are not i32, not `[N]`, or outside of `0..=T`.
    pub fn loss(logits: &Tensor<B>, first: &Indices<B>, last: &Indices<B>) -> Result<Tensor<B>> {
        let &[_, length, 2] = logits.shape().dims() else {
            return Err(Error::invalid("bert", "logits", logits.shape(), "logits [N, T, 2]"));
        };
        let options = CrossEntropyOptions {
            ignore_index: length as i64,
            ..Default::default()
        };
        let of = |at: usize, positions: &Indices<B>| {
            let logits = logits.narrow(2, at, 1)?.squeeze(2)?;
            logits.cross_entropy_with(positions, &options)
        };
        of(0, first)?.add(&of(1, last)?)?.mul_scalar(0.5)
    }
}

/// A batch of windows of questions and texts.
#[derive(Batch)]
pub(crate) struct Reading {
    /// The tokens `[N, T]`, as many as the longest window has, rounded up to 16.
    pub(crate) ids: Array2<i32>,
    /// 1 for tokens of the text and the `[SEP]` behind it.
    pub(crate) types: Array2<i32>,
    /// 1 for tokens of the window and 0 behind them.
    pub(crate) mask: Array2<u8>,
    /// The positions of the first and of the last token of the answer, 0 where there is none.
    pub(crate) first: Array1<i32>,
    pub(crate) last: Array1<i32>,
    /// The number of each window in the dataset.
    pub(crate) windows: Array1<i32>,
}

/// The ids, the kinds and the mask of windows, each `[2, T]`.
fn rows(windows: &[&[f32]]) -> kiln_data::Result<(Array2<i32>, Array2<i32>, Array2<u8>)> {
    let (ids, types): (Vec<_>, Vec<_>) = windows.iter().map(|window| window.split_at(window.len() / 2)).unzip();
    let (ids, mask) = padded(&ids)?;
    let types = Array2::from_shape_fn(ids.dim(), |(n, at)| types[n].get(at).map_or(0, |&kind| kind as i32));
    Ok((ids, types, mask))
}

impl Reading {
    fn collate(samples: &[Sample]) -> kiln_data::Result<Reading> {
        let windows: Vec<&[f32]> = samples.iter().map(|sample| &sample.input[..]).collect();
        let (ids, types, mask) = rows(&windows)?;
        if let Some(other) = samples.iter().find(|sample| sample.targets.len() != 2) {
            return Err(DataError::Layout {
                found: format!("{} targets", other.targets.len()),
                expected: "the first and the last token of an answer".to_string(),
            });
        }
        let target = |at: usize| samples.iter().map(|sample| sample.targets[at] as i32).collect();
        Ok(Reading {
            ids,
            types,
            mask,
            first: target(0),
            last: target(1),
            windows: samples.iter().map(|sample| sample.label).collect(),
        })
    }
}

/// The loss of the spans; metrics read the logits and the numbers of the windows.
fn step<B: Backend>(net: &BertReader<B>, batch: &ReadingOn<B>) -> Result<Output<B>> {
    let logits = net.forward(&batch.ids, &batch.types, &batch.mask)?;
    let loss = trace::part(logits.backend(), "loss", || {
        BertReader::loss(&logits, &batch.first, &batch.last)
    })?;
    Ok(Output::new(loss)
        .with("logits", logits)
        .with("windows", batch.windows.clone()))
}

/// The logits of windows `[N, 2, T]` as datasets give them.
fn read<B: Backend>(net: &BertReader<B>, windows: &Tensor<B>) -> Result<Tensor<B>> {
    let values = windows.to_vec::<f32>()?;
    let width = values.len().checked_div(windows.shape()[0]).unwrap_or(1).max(1);
    let windows_of: Vec<&[f32]> = values.chunks(width).collect();
    let (ids, types, mask) =
        rows(&windows_of).map_err(|e| Error::invalid("bert", "windows", e, "windows of tokens and kinds"))?;
    let (backend, shape) = (windows.backend(), [ids.nrows(), ids.ncols()]);
    let of = |ids: Array2<i32>| Indices::from_slice(backend, &ids.into_iter().collect::<Vec<_>>(), &shape);
    let mask: Vec<u8> = mask.into_iter().collect();
    net.forward(&of(ids)?, &of(types)?, &Indices::from_slice(backend, &mask, &shape)?)
}

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<task::Task<B, BertReader<B>, Reading>> {
    let config = BertConfig {
        vocabulary: sizes.vocabulary.unwrap_or(BertConfig::MINI.vocabulary),
        ..BertConfig::MINI
    };
    Ok(task::Task {
        net: BertReader::new(init, config)?,
        prepare: None,
        loader: |dataset, options, _| Loader::with_collate(dataset, Reading::collate, options),
        phases: vec![Phase {
            name: "",
            step: step::<B>,
            trains: |_| true,
        }],
        measure: step::<B>,
        forward: |net, batch| net.forward(&batch.ids, &batch.types, &batch.mask),
        metrics: |held_back| Ok(held_back.questions().map(metric).into_iter().collect()),
        views: Views {
            tokens: Some(read::<B>),
            ..Views::default()
        },
    })
}

fn metric<B: Backend>(questions: &Questions) -> Box<dyn Metric<B>> {
    Box::new(SpanScores::new(questions))
}
