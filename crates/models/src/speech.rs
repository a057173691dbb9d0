//! The task of networks that write down what is said: letters by CTC.

use crate::task::{self, Phase, Purpose, Views};
use crate::{Form, Shown};
use kiln_core::{Backend, Error, Result};
use kiln_data::{Batch, Buckets, DataError, Dataset, Loader, LoaderOptions, Sample, pad};
use kiln_nn::{CtcLossOptions, Indices, Module, Tensor, trace};
use kiln_train::{ErrorRate, Output};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Ix2, Ix3};
use std::sync::Arc;

/// The measured values that are shown: errors of letters and of words by the likeliest class of each step.
pub(crate) const VALUES: &[Shown] = &[
    Shown::new("loss", Form::Unit("nats/letter")),
    Shown::labelled("cer", "CER", Form::Percent),
    Shown::labelled("wer", "WER", Form::Percent),
];

/// The best weights have the smallest share of wrong letters.
pub(crate) const MONITOR: (&str, bool) = ("cer", false);

/// The class of the blank, and that of the space.
const BLANK: usize = 0;
const SPACE: i32 = 1;

/// Batches are padded to a multiple of this many frames, so that there are few different shapes.
const PADDED: usize = 16;

/// A batch of spectrograms with their letters.
#[derive(Batch)]
pub(crate) struct Utterances {
    /// Spectrograms, zero behind their ends, `[N, T, F]`.
    pub(crate) features: Array3<f32>,
    /// Frames of each, `[N]`.
    pub(crate) frames: Array1<i32>,
    /// Classes of letters, `[N, S]`.
    pub(crate) labels: Array2<i32>,
    /// Letters of each, `[N]`.
    pub(crate) counts: Array1<i32>,
}

impl Utterances {
    /// Makes a batch of spectrograms `[T, F]`, whose targets are classes.
    fn collate(samples: &[Sample]) -> kiln_data::Result<Utterances> {
        let layout = |found: String| DataError::Layout {
            found,
            expected: "spectrograms [T, F] of as many bins".to_string(),
        };
        let mut spectrograms = Vec::with_capacity(samples.len());
        for sample in samples {
            let &[frames, bins] = sample.shape.dims() else {
                return Err(layout(sample.shape.to_string()));
            };
            let view = ArrayView2::from_shape((frames, bins), &sample.input);
            spectrograms.push(view.map_err(|_| layout(sample.shape.to_string()))?.into_dyn());
        }
        let labels: Vec<Vec<i32>> = samples
            .iter()
            .map(|sample| sample.targets.iter().map(|&label| label as i32).collect())
            .collect();
        let views: Vec<_> = labels.iter().map(|l| ArrayView1::from(l).into_dyn()).collect();
        let (features, frames) = pad(&spectrograms, 0.0, PADDED)?;
        let (labels, counts) = pad(&views, SPACE, 8)?;
        let uneven = |_| layout("several layouts".to_string());
        Ok(Utterances {
            features: features.into_dimensionality::<Ix3>().map_err(uneven)?,
            frames,
            labels: labels.into_dimensionality::<Ix2>().map_err(uneven)?,
            counts,
        })
    }
}

/// A network from spectrograms to the logits of letters.
pub(crate) trait SpeechModel<B: Backend>: Module<B> {
    /// Spectrograms `[N, T, F]` of `frames` `[N]` to logits `[N, T', classes]`, of which the blank is class 0, and their lengths.
    ///
    /// # Errors
    /// Spectrograms or lengths that the network does not take.
    fn logits(&self, x: &Tensor<B>, frames: &Indices<B>) -> Result<(Tensor<B>, Indices<B>)>;

    /// Frames for each step of the logits.
    fn frames_of_a_step(&self) -> usize;
}

/// A network that is trained on speech.
pub(crate) type Task<B> = task::Task<B, Box<dyn SpeechModel<B>>, Utterances>;

/// The CTC loss for each letter; metrics read the likeliest classes and the letters. An utterance that has fewer steps than its letters
/// need counts as 0.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn step<B: Backend>(net: &Box<dyn SpeechModel<B>>, batch: &UtterancesOn<B>) -> Result<Output<B>> {
    let (logits, steps) = net.logits(&batch.features, &batch.frames)?;
    let options = CtcLossOptions {
        blank: BLANK,
        zero_infinity: true,
        ..Default::default()
    };
    let loss = trace::part(logits.backend(), "loss", || {
        let log_probs = logits.transpose(0, 1)?.log_softmax(-1)?;
        log_probs.ctc_loss(&batch.labels, &steps, &batch.counts, &options)
    })?;
    let likeliest = logits.detach().argmax(-1, false)?;
    Ok(Output::new(loss)
        .with("hypotheses", likeliest)
        .with("hypothesis_lengths", steps)
        .with("references", batch.labels.clone())
        .with("reference_lengths", batch.counts.clone()))
}

/// Letters as characters that can be compared: of all of them only the space has to be known, which separates words.
fn characters(labels: &[i32]) -> String {
    let character = |&label: &i32| match label {
        SPACE => Some(' '),
        label => char::from_u32(0xF_0000 + u32::try_from(label).ok()?),
    };
    labels.iter().filter_map(character).collect()
}

/// Batches of utterances of similar length where the lengths are known; in the order of the data where they are measured.
fn loader(
    dataset: Arc<dyn Dataset<Sample = Sample>>,
    options: LoaderOptions,
    purpose: Purpose,
) -> kiln_data::Result<Loader<Sample, Utterances>> {
    let lengths = match purpose == Purpose::Training && options.shuffle {
        true => (0..dataset.len()).map(|index| dataset.length(index)).collect(),
        false => None,
    };
    let loader = Loader::with_collate(dataset, Utterances::collate, options)?;
    Ok(match lengths {
        Some(lengths) => loader.with_sampler(Buckets::new(lengths, options.batch_size)?.pool(8)),
        None => loader,
    })
}

/// The network with its task.
pub(crate) fn task<B: Backend>(net: impl SpeechModel<B> + 'static) -> Task<B> {
    task::Task {
        net: Box::new(net),
        prepare: None,
        loader,
        phases: vec![Phase {
            name: "",
            step: step::<B>,
            trains: |_| true,
        }],
        measure: step::<B>,
        forward: |net, batch| Ok(net.logits(&batch.features, &batch.frames)?.0),
        metrics: |_| {
            Ok(vec![
                Box::new(ErrorRate::characters(characters).ctc(BLANK as i32)),
                Box::new(ErrorRate::words(characters).ctc(BLANK as i32)),
            ])
        },
        views: Views {
            transcribe: Some(log_probs),
            ..Views::default()
        },
    }
}

/// Frames that are read at once, and those on either side that a network reads with them: of a long recording the memory is that of a
/// window.
const WINDOW: usize = 3000;
const CONTEXT: usize = 300;

/// Log-probabilities `[T', classes]` of a spectrogram `[T, F]` of any length, window by window.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn log_probs<B: Backend>(net: &Box<dyn SpeechModel<B>>, x: &Tensor<B>) -> Result<Tensor<B>> {
    let &[frames, bins] = x.shape().dims() else {
        return Err(Error::Rank {
            op: "transcribe",
            expected: "2",
            rank: x.rank(),
        });
    };
    let each = net.frames_of_a_step();
    let (window, context) = (WINDOW.next_multiple_of(each), CONTEXT.next_multiple_of(each));
    let mut parts = Vec::new();
    let mut start = 0;
    while start < frames || parts.is_empty() {
        // What is left for a short last window is read with this one.
        let end = match frames - start {
            left if left <= window + context => frames,
            _ => start + window,
        };
        let (from, to) = (start.saturating_sub(context), (end + context).min(frames));
        let read = x.narrow(0, from, to - from)?.reshape(&[1, to - from, bins])?;
        let lengths = Indices::from_slice(x.backend(), &[(to - from) as i32], &[1])?;
        let logits = net.logits(&read, &lengths)?.0.squeeze(0)?;
        let (skipped, kept) = ((start - from) / each, (end - start).div_ceil(each));
        parts.push(logits.narrow(0, skipped, kept)?.log_softmax(-1)?);
        start = end;
    }
    Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0)
}
