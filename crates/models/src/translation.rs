//! The task of networks that write a text for a text, token by token: translation, spelling.

use crate::task::{self, Phase, Purpose, Views};
use crate::transformer::Seq2Seq;
use crate::{Form, Shown};
use kiln_core::{Backend, Error, Result};
use kiln_data::{
    Batch, Buckets, DataError, Dataset, Draw, Loader, LoaderOptions, Sample, Tokens, Transform, Typos, pad,
};
use kiln_nn::{CrossEntropyOptions, DType, Indices, Tensor, trace};
use kiln_train::{ErrorRate, Output};
use ndarray::{Array1, Array2, ArrayView1, Ix2};
use std::sync::Arc;

/// The measured values that are shown: the share of tokens that are the likeliest behind the right ones, and of texts that are written
/// without a wrong token, and the wrong characters of these for each that is right.
pub(crate) const VALUES: &[Shown] = &[
    Shown::new("loss", Form::Unit("nats/token")),
    Shown::new("accuracy", Form::Percent),
    Shown::labelled("exact_match", "exact", Form::Percent),
    Shown::labelled("cer", "CER", Form::Percent),
];

/// The best weights have the smallest share of wrong characters.
pub(crate) const MONITOR: (&str, bool) = ("cer", false);

/// The share of each target that is spread evenly over all tokens (Vaswani et al.).
const LABEL_SMOOTHING: f64 = 0.1;

/// The label of what is no token: it has no loss.
const NO_LABEL: i32 = -100;

/// Batches are padded to a multiple of this many tokens, so that there are few different shapes.
const PADDED: usize = 16;

/// Tokens that a network may write beyond twice those of the source.
const MORE: usize = 16;

/// A batch of sources and the texts that belong to them.
#[derive(Batch)]
pub(crate) struct Pairs {
    /// The tokens of sources, `[N, S]`.
    pub(crate) source: Array2<i32>,
    /// 1 for tokens of a source and 0 behind them, `[N, S]`.
    pub(crate) mask: Array2<u8>,
    /// The token of the beginning and those of targets, `[N, T]`.
    pub(crate) target: Array2<i32>,
    /// The tokens of targets and that of the end, and −100 behind, `[N, T]`.
    pub(crate) labels: Array2<i32>,
    /// Tokens of each target, `[N]`.
    pub(crate) counts: Array1<i32>,
}

impl Pairs {
    /// Makes a batch of pairs of texts as code points.
    fn collate(samples: &[Sample], tokens: &Tokens) -> kiln_data::Result<Pairs> {
        let begin = i32::try_from(tokens.len()).unwrap_or(i32::MAX - 1);
        let ids = |text: &[f32]| {
            let characters = text.iter().map(|&value| char::from_u32(value as u32));
            let text: Option<String> = characters.collect();
            match text {
                Some(text) => tokens.encode(&text),
                None => Err(layout("numbers that are no characters", "code points")),
            }
        };
        let (mut sources, mut targets, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for sample in samples {
            let (source, target) = (ids(&sample.input)?, ids(&sample.targets)?);
            if source.is_empty() {
                return Err(layout("a source without tokens", "one or more"));
            }
            labels.push([&target[..], &[begin + 1]].concat());
            targets.push([&[begin], &target[..]].concat());
            sources.push(source);
        }
        let padded = |rows: &[Vec<i32>], value: i32| {
            let views: Vec<_> = rows.iter().map(|row| ArrayView1::from(row).into_dyn()).collect();
            let (ids, counts) = pad(&views, value, PADDED)?;
            let uneven = |_| layout("several layouts", "rows");
            Ok::<_, DataError>((ids.into_dimensionality::<Ix2>().map_err(uneven)?, counts))
        };
        let (source, lengths) = padded(&sources, 0)?;
        let (labels, counts) = padded(&labels, NO_LABEL)?;
        Ok(Pairs {
            mask: Array2::from_shape_fn(source.dim(), |(n, at)| u8::from((at as i32) < lengths[n])),
            source,
            target: padded(&targets, 0)?.0,
            labels,
            counts: counts - 1,
        })
    }
}

/// The error of samples that make no batch.
fn layout(found: &str, expected: &str) -> DataError {
    DataError::Layout {
        found: found.to_string(),
        expected: expected.to_string(),
    }
}

/// Puts mistakes into sources that are the same as their targets.
fn noise(sample: &mut Sample, draw: &Draw) -> kiln_data::Result<()> {
    match sample.label {
        0 => Ok(()),
        _ => Typos::default().apply(sample, draw),
    }
}

/// Batches of pairs of similar length in training; in the order of the data where they are measured.
fn loader(
    dataset: Arc<dyn Dataset<Sample = Sample>>,
    options: LoaderOptions,
    purpose: Purpose,
) -> kiln_data::Result<Loader<Sample, Pairs>> {
    let lengths = match purpose == Purpose::Training && options.shuffle {
        true => (0..dataset.len()).map(|index| dataset.length(index)).collect(),
        false => None,
    };
    let tokens = dataset.tokens().cloned();
    let tokens = tokens.ok_or_else(|| layout("samples without tokens", "pairs of texts"))?;
    let collate = move |samples: &[Sample]| Pairs::collate(samples, &tokens);
    let loader = Loader::with_collate(dataset, collate, options)?;
    Ok(match lengths {
        Some(lengths) => loader.with_sampler(Buckets::new(lengths, options.batch_size)?),
        None => loader,
    })
}

/// The mask of sources as attention takes it, `[N, 1, 1, S]`.
fn mask<B: Backend>(batch: &PairsOn<B>) -> Result<Indices<B>> {
    match *batch.mask.shape().dims() {
        [n, s] => batch.mask.reshape(&[n, 1, 1, s]),
        _ => Err(Error::invalid(
            "transformer",
            "mask",
            batch.mask.shape(),
            "a mask [N, S]",
        )),
    }
}

fn logits<B: Backend>(net: &Seq2Seq<B>, batch: &PairsOn<B>) -> Result<Tensor<B>> {
    net.forward(&batch.source, &mask(batch)?, &batch.target)
}

/// The mean of a mask, in f32.
fn share<B: Backend>(hits: &Indices<B>, of: &Indices<B>) -> Result<Tensor<B>> {
    let count = |mask: &Indices<B>| mask.to_float(DType::F32)?.sum(&[], false);
    count(hits)?.div(&count(of)?)
}

/// The cross-entropy with smoothed labels, behind the right tokens.
fn step<B: Backend>(net: &Seq2Seq<B>, batch: &PairsOn<B>) -> Result<Output<B>> {
    let logits = logits(net, batch)?;
    let options = CrossEntropyOptions {
        label_smoothing: LABEL_SMOOTHING,
        ignore_index: i64::from(NO_LABEL),
        ..Default::default()
    };
    let loss = trace::part(net.backend(), "loss", || {
        logits.cross_entropy_with(&batch.labels, &options)
    })?;
    let hits = logits.detach().argmax(-1, false)?.eq(&batch.labels)?;
    let accuracy = share(&hits, &batch.labels.ne(NO_LABEL)?)?;
    Ok(Output::new(loss).part("accuracy", &accuracy))
}

/// The measurements of validation: those of training, and the texts that the network writes by itself.
fn measure<B: Backend>(net: &Seq2Seq<B>, batch: &PairsOn<B>) -> Result<Output<B>> {
    let output = step(net, batch)?;
    let &[n, length] = batch.labels.shape().dims() else {
        return Err(Error::invalid(
            "transformer",
            "labels",
            batch.labels.shape(),
            "labels [N, T]",
        ));
    };
    let (written, counts) = net.greedy(&batch.source, &mask(batch)?, length + MORE)?;
    // The last label is the end, so a text that goes on has another token there.
    let beyond = batch.labels.ne(NO_LABEL)?.logical_not()?;
    let same = written.narrow(1, 0, length)?.eq(&batch.labels)?.logical_or(&beyond)?;
    let exact = same.all(&[1], false)?;
    let all = Indices::full(net.backend(), &[n], 1i32)?;
    Ok(output
        .part("exact_match", &share(&exact, &all)?)
        .with("hypotheses", written)
        .with("hypothesis_lengths", counts)
        .with("references", batch.labels.clone())
        .with("reference_lengths", batch.counts.clone()))
}

/// The text of tokens; those that are none of the text's are shown as U+FFFD.
fn text(tokens: &Tokens, ids: &[i32]) -> String {
    let mut stream = tokens.stream();
    let mut text = String::new();
    for &id in ids {
        match stream.push(id) {
            Ok(piece) => text.push_str(&piece),
            Err(_) => text.push(char::REPLACEMENT_CHARACTER),
        }
    }
    text + &stream.finish()
}

/// The network with its task.
pub(crate) fn task<B: Backend>(net: Seq2Seq<B>) -> task::Task<B, Seq2Seq<B>, Pairs> {
    task::Task {
        net,
        prepare: Some(Arc::new(noise)),
        loader,
        phases: vec![Phase {
            name: "",
            step: step::<B>,
            trains: |_| true,
        }],
        measure: measure::<B>,
        forward: logits::<B>,
        metrics: |held_back| {
            let tokens = held_back.tokens().cloned().into_iter();
            let rate = |tokens: Tokens| Box::new(ErrorRate::characters(move |ids| text(&tokens, ids))) as _;
            Ok(tokens.map(rate).collect())
        },
        views: Views {
            translate: Some(|net, source, beams| net.write(source, net.ends(), beams, 2 * source.len() + MORE)),
            ..Views::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batches, Net, Seq2SeqConfig, Update};
    use kiln_cpu::Cpu;
    use kiln_data::{Compose, MadeUp, Opened, PAIRS, Vocabulary};
    use kiln_nn::optim::Adam;
    use kiln_nn::{Init, Module, no_grad};
    use kiln_train::{Metric, TrainOptions, Trainer};

    const TINY: Seq2SeqConfig = Seq2SeqConfig {
        vocabulary: 10,
        layers: 1,
        heads: 2,
        width: 32,
        feedforward: 64,
        dropout: 0.0,
        tied: true,
    };

    fn pair(source: &str, target: &str) -> Sample {
        let code_points = |text: &str| text.chars().map(|c| u32::from(c) as f32).collect::<Vec<_>>();
        let (source, mut sample) = (code_points(source), Sample::default());
        let shape = kiln_core::Shape::new(&[source.len()]).unwrap();
        sample.fill(shape, source.into_iter()).unwrap();
        sample.targets = code_points(target);
        sample
    }

    #[test]
    fn a_batch_has_ends_and_padding() {
        let tokens = Tokens::Characters(Vocabulary::of("abcd"));
        let batch = Pairs::collate(&[pair("abc", "d"), pair("a", "ddccbbaaddccbbaad")], &tokens).unwrap();
        assert_eq!(
            (batch.source.dim(), batch.target.dim(), batch.labels.dim()),
            ((2, 16), (2, 32), (2, 32))
        );
        assert_eq!(
            (batch.source[[0, 2]], batch.mask.row(0).sum(), batch.mask.row(1).sum()),
            (2, 3, 1)
        );
        assert_eq!(batch.target.row(0).to_vec()[..3], [4, 3, 0]);
        assert_eq!(batch.labels.row(0).to_vec()[..3], [3, 5, NO_LABEL]);
        assert_eq!((batch.labels[[1, 17]], batch.labels[[1, 18]]), (5, NO_LABEL));
        assert_eq!(batch.counts.to_vec(), [1, 17]);
        assert!(Pairs::collate(&[pair("", "a")], &tokens).is_err());
        assert!(Pairs::collate(&[pair("x", "a")], &tokens).is_err());
    }

    fn made_up(count: usize) -> Opened {
        let made = MadeUp {
            shape: &[32],
            outputs: 8,
            count,
            seed: 1,
        };
        (PAIRS.synthetic)(&made).unwrap()
    }

    fn batches(dataset: Arc<dyn Dataset<Sample = Sample>>, shuffle: bool) -> Batches {
        Batches {
            dataset,
            options: LoaderOptions {
                batch_size: 32,
                shuffle,
                ..Default::default()
            },
            transform: Compose::new(),
        }
    }

    #[test]
    fn what_is_measured_is_what_is_written() {
        let (cpu, data) = (Cpu::new(), made_up(1600));
        let mut net = Net::new(task(Seq2Seq::new(Init::new(&cpu, 3), TINY).unwrap()));
        let mut trainer = Trainer::new(
            &cpu,
            TrainOptions {
                epochs: 12,
                ..Default::default()
            },
        );
        let mut updates = [Update {
            optimizer: Box::new(Adam::new(3e-3)),
            schedule: None,
            every: 1,
        }];
        net.fit(&mut trainer, &mut updates, batches(data.train, true), None)
            .unwrap();
        let mut metrics = net.metrics(&*data.test).unwrap();
        let mut metrics: Vec<&mut dyn Metric<Cpu>> = metrics.iter_mut().map(|metric| &mut **metric as _).collect();
        let found = net
            .evaluate(&cpu, batches(data.test.clone(), false), &mut metrics)
            .unwrap();
        let of = |name: &str| found.values[name];
        // Without learning the accuracy would be a ninth.
        assert!(of("accuracy") > 0.3 && of("cer").is_finite(), "{:?}", found.values);
        // The texts that are written one by one are right as often.
        net.eval();
        let tokens = data.test.tokens().unwrap();
        for beams in [1, 3] {
            let right = (0..data.test.len()).filter(|&index| {
                let sample = data.test.get(index).unwrap();
                let of = |values: &[f32]| -> Vec<i32> {
                    let text: String = values.iter().map(|&c| char::from_u32(c as u32).unwrap()).collect();
                    tokens.encode(&text).unwrap()
                };
                net.translate(&of(&sample.input), beams).unwrap().unwrap() == of(&sample.targets)
            });
            let (right, measured) = (right.count() as f64, of("exact_match") * data.test.len() as f64);
            assert!(
                (right - measured).abs() < if beams == 1 { 2.0 } else { 40.0 },
                "{beams}: {right}, {measured}"
            );
        }
    }

    #[test]
    fn padding_has_no_loss_and_mistakes_are_drawn_anew() {
        let (cpu, tokens) = (Cpu::new(), Tokens::Characters(Vocabulary::of("abcdefgh")));
        let mut net = Seq2Seq::new(Init::new(&cpu, 3), TINY).unwrap();
        net.eval();
        let of = |samples: &[Sample]| {
            let batch = Pairs::collate(samples, &tokens).unwrap();
            let on = kiln_data::Batch::to_device(&batch, &cpu).unwrap();
            no_grad(|| measure(&net, &on)).unwrap()
        };
        let loss = |samples: &[Sample]| of(samples).loss.item().unwrap();
        let (short, long) = (pair("abc", "cab"), pair("abcdefghabcdefghabc", "hgfedcbahgfedcbahgf"));
        let both = loss(&[short.clone(), long.clone()]);
        // Four tokens and twenty, with the end.
        let mean = (4.0 * loss(std::slice::from_ref(&short)) + 20.0 * loss(&[long])) / 24.0;
        assert!((both - mean).abs() < 1e-4, "{both} {mean}");
        let mut noised = short.clone();
        noise(&mut noised, &Draw::new(0, 0, 0)).unwrap();
        assert_eq!(noised, short);
        let drawn = |epoch: u64| {
            let mut sample = pair("abc defg hab cde fgh", "abc defg hab cde fgh");
            sample.label = 1;
            noise(&mut sample, &Draw::new(0, epoch, 0)).unwrap();
            sample.input
        };
        assert!((0..4).any(|epoch| drawn(epoch) != drawn(epoch + 1)));
        assert_eq!(drawn(2), drawn(2));
    }
}
