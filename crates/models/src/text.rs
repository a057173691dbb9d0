//! The task of language models: the next token, a character or that of a tokenizer, at every position of a window of text.

use crate::language::LanguageModel;
use crate::task::{self, Phase, Views};
use crate::{Form, Shown};
use kiln_core::{Backend, Error, Result};
use kiln_data::{Batch, DataError, Loader, Sample};
use kiln_train::{BitsPerCharacter, Output};
use ndarray::Array2;

/// The measured values that are shown. Perplexity is computed from the mean loss.
pub(crate) const VALUES: &[Shown] = &[
    Shown::new("loss", Form::Unit("nats/character")),
    Shown::new("perplexity", Form::ExpOf("loss")),
    BITS,
];

/// Those of a text of the tokens of a tokenizer.
pub(crate) const VALUES_OF_TOKENS: &[Shown] = &[
    Shown::new("loss", Form::Unit("nats/token")),
    Shown::new("perplexity", Form::ExpOf("loss")),
    BITS,
];

/// A loss that is the same for any choice of tokens, by which models of one text are compared.
const BITS: Shown = Shown::labelled("bits_per_character", "bits/character", Form::Along("loss"));

/// The best weights have the smallest loss.
pub(crate) const MONITOR: (&str, bool) = ("loss", false);

/// A batch of windows of text.
#[derive(Batch)]
pub(crate) struct Windows {
    /// The numbers of the tokens, `[N, T + 1]`: the first `T` are the input, the last `T` are to be predicted.
    pub(crate) ids: Array2<i32>,
}

impl Windows {
    /// Makes a batch of windows of one length, given as floats.
    fn collate(samples: &[Sample]) -> kiln_data::Result<Windows> {
        let length = samples.first().map_or(0, |first| first.input.len());
        let mut ids = Vec::with_capacity(samples.len() * length);
        for sample in samples {
            ids.extend(sample.input.iter().map(|&id| id as i32));
        }
        let ids = Array2::from_shape_vec((samples.len(), length), ids);
        let uneven = |_| DataError::Layout {
            found: "windows of several lengths".to_string(),
            expected: format!("[{length}]"),
        };
        Ok(Windows {
            ids: ids.map_err(uneven)?,
        })
    }
}

/// A language model, trained on windows of text.
pub(crate) type Task<B> = task::Task<B, Box<dyn LanguageModel<B>>, Windows>;

/// The cross-entropy with the next id at each of the first `T` positions.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn step<B: Backend>(net: &Box<dyn LanguageModel<B>>, batch: &WindowsOn<B>) -> Result<Output<B>> {
    let [_, length @ 2..=usize::MAX] = *batch.ids.shape().dims() else {
        return Err(Error::invalid("loss", "ids", batch.ids.shape(), "windows [N, T + 1]"));
    };
    let of = |start| batch.ids.narrow(1, start, length - 1);
    Ok(Output::new(net.loss(&of(0)?, &of(1)?)?))
}

/// The measurements of validation.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn measure<B: Backend>(net: &Box<dyn LanguageModel<B>>, batch: &WindowsOn<B>) -> Result<Output<B>> {
    let windows = batch.ids.shape().dims().first().copied().unwrap_or(0);
    BitsPerCharacter::nats(step(net, batch)?, windows)
}

/// The network with its task.
pub(crate) fn task<B: Backend>(net: impl LanguageModel<B> + 'static) -> Task<B> {
    task::Task {
        net: Box::new(net),
        prepare: None,
        loader: |dataset, options, _| Loader::with_collate(dataset, Windows::collate, options),
        phases: vec![Phase {
            name: "",
            step: step::<B>,
            trains: |_| true,
        }],
        measure: measure::<B>,
        forward: |net, batch| {
            let length = batch.ids.shape().dims().get(1).map_or(0, |t| t.saturating_sub(1));
            net.forward(&batch.ids.narrow(1, 0, length)?)
        },
        metrics: |held_back| {
            let characters = held_back.characters_per_token().into_iter();
            Ok(characters.map(|n| Box::new(BitsPerCharacter::new(n)) as _).collect())
        },
        views: Views {
            write: Some(|net| &**net),
            ..Views::default()
        },
    }
}
