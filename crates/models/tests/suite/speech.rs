//! Networks of speech: shapes, lengths, and that they learn.

use kiln_core::{DType, Error};
use kiln_cpu::Cpu;
use kiln_data::{Alphabet, Draw, Facts, LoaderOptions, Transform, UTTERANCES};
use kiln_models::{Batches, DeepSpeech2, DeepSpeech2Config, Model, OptimizerKind, OptimizerOptions, Update};
use kiln_nn::{Indices, Init, Module, Rng, Tensor, no_grad};
use kiln_train::{TrainOptions, Trainer};

const TINY: DeepSpeech2Config = DeepSpeech2Config {
    mels: 12,
    classes: 5,
    channels: 4,
    kernels: [[5, 7], [3, 3]],
    strides: [[2, 2], [2, 2]],
    hidden: 6,
    layers: 2,
};

fn net(config: DeepSpeech2Config) -> DeepSpeech2<Cpu> {
    DeepSpeech2::new(Init::new(&Cpu::poisoned(), 1), config).unwrap()
}

fn lengths(values: &[i32]) -> Indices<Cpu> {
    Indices::from_slice(&Cpu::poisoned(), values, &[values.len()]).unwrap()
}

fn noise(shape: &[usize]) -> Tensor<Cpu> {
    Tensor::randn(&Cpu::poisoned(), shape, DType::F32, &mut Rng::new(3)).unwrap()
}

#[test]
fn parameters_are_counted_for_any_sizes() {
    for config in [
        TINY,
        DeepSpeech2Config {
            layers: 3,
            mels: 13,
            ..TINY
        },
        DeepSpeech2Config::SMALL,
    ] {
        assert_eq!(net(config).num_parameters(), config.parameters(), "{config:?}");
    }
    assert!((100_000_000..150_000_000).contains(&DeepSpeech2Config::PAPER.parameters()));
}

/// Every utterance of a batch has the logits that it has by itself, whatever lies beside it.
#[test]
fn what_is_padded_changes_nothing() {
    let mut net = net(TINY);
    net.eval();
    let cpu = Cpu::poisoned();
    let frames = [1i32, 2, 7, 16, 17, 30];
    let longest = 32;
    let all = noise(&[frames.len(), longest, 12]);
    let mut padded = Vec::new();
    for (i, &count) in frames.iter().enumerate() {
        let own = all.narrow(0, i, 1).unwrap().narrow(1, 0, count as usize).unwrap();
        padded.extend(own.to_vec::<f32>().unwrap());
        padded.resize((i + 1) * longest * 12, 0.0);
    }
    let batch = Tensor::from_slice(&cpu, &padded, &[frames.len(), longest, 12]).unwrap();
    let (logits, steps) = no_grad(|| net.forward(&batch, &lengths(&frames))).unwrap();
    assert_eq!(logits.shape().dims(), [frames.len(), 8, 5]);
    let expected: Vec<i32> = frames.iter().map(|f| (f + 3) / 4).collect();
    assert_eq!(steps.to_vec::<i32>().unwrap(), expected);
    for (i, &count) in frames.iter().enumerate() {
        let own = batch.narrow(0, i, 1).unwrap().narrow(1, 0, count as usize).unwrap();
        let (alone, _) = no_grad(|| net.forward(&own, &lengths(&[count]))).unwrap();
        let steps = expected[i] as usize;
        assert_eq!(alone.shape().dims(), [1, steps, 5]);
        let beside = logits.narrow(0, i, 1).unwrap().narrow(1, 0, steps).unwrap();
        for (a, b) in alone
            .to_vec::<f32>()
            .unwrap()
            .iter()
            .zip(beside.to_vec::<f32>().unwrap())
        {
            assert!((a - b).abs() < 1e-5, "{count} frames: {a}, beside others {b}");
        }
    }
}

#[test]
fn what_a_net_does_not_take_is_refused() {
    let net = net(TINY);
    let error = |x: &Tensor<Cpu>, frames: &[i32]| net.forward(x, &lengths(frames)).unwrap_err();
    assert!(matches!(error(&noise(&[2, 8]), &[8, 8]), Error::Rank { rank: 2, .. }));
    let text = error(&noise(&[2, 8, 11]), &[8, 8]).to_string();
    assert!(text.contains("[N, T, 12]"), "{text}");
    error(&noise(&[2, 8, 12]), &[8, 9]);
    error(&noise(&[2, 8, 12]), &[8, 0]);
    error(&noise(&[2, 8, 12]), &[8, 8, 8]);
    let none = DeepSpeech2Config { layers: 0, ..TINY };
    let made = DeepSpeech2::new(Init::new(&Cpu::new(), 0), none);
    assert!(made.unwrap_err().to_string().contains("layers"));
    let even = DeepSpeech2Config {
        kernels: [[5, 7], [3, 4]],
        ..TINY
    };
    let made = DeepSpeech2::new(Init::new(&Cpu::new(), 0), even);
    assert!(made.unwrap_err().to_string().contains("odd"));
}

/// A long recording that is read in windows has about the probabilities of one that is read at once, and as many steps.
#[test]
fn long_recordings_are_read_in_windows() {
    let mut net = Model::DeepSpeech2.build(&Cpu::new(), 0).unwrap();
    net.eval();
    for frames in [1, 3, 160, 3301, 6601] {
        let x = noise(&[frames, 40]);
        let log_probs = no_grad(|| net.transcribe(&x)).unwrap().unwrap();
        assert_eq!(log_probs.shape().dims(), [frames.div_ceil(4), 29]);
        let sums = log_probs.exp().unwrap().sum(&[1], false).unwrap().to_f64().unwrap();
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-4), "{frames}");
    }
    assert!(net.transcribe(&noise(&[1, 8, 40])).unwrap().is_err());
    assert!(
        Model::Lenet
            .build(&Cpu::new(), 0)
            .unwrap()
            .transcribe(&noise(&[8, 40]))
            .is_none()
    );
}

/// Made-up utterances are learned: letters that are tones.
#[test]
fn training_lowers_the_errors_of_letters() {
    let cpu = Cpu::new();
    let model = Model::DeepSpeech2;
    let opened = (UTTERANCES.synthetic)(&model.input().made_up(120, 5, 1)).unwrap();
    assert_eq!(opened.facts.text(Facts::ALPHABET), Some(" abc"));
    let mut net = model.build_for(&cpu, 1, opened.facts.sizes()).unwrap();
    let batches = |dataset: &kiln_data::Shared, shuffle| Batches {
        dataset: dataset.clone(),
        options: LoaderOptions {
            batch_size: 8,
            shuffle,
            seed: 1,
            ..Default::default()
        },
        transform: model.transform(None).unwrap(),
    };
    let mut metrics = net.metrics(&*opened.test).unwrap();
    let mut measure = |net: &mut kiln_models::Net<Cpu>| {
        let mut all: Vec<&mut dyn kiln_train::Metric<Cpu>> = metrics.iter_mut().map(|m| &mut **m as _).collect();
        let found = net.evaluate(&cpu, batches(&opened.test, false), &mut all).unwrap();
        (found.values["cer"], found.values["wer"])
    };
    let (before, _) = measure(&mut net);
    let mut updates = vec![Update {
        optimizer: OptimizerOptions {
            lr: 2e-3,
            ..OptimizerOptions::of(OptimizerKind::AdamW)
        }
        .build(),
        schedule: None,
        every: 1,
    }];
    let mut trainer = Trainer::new(
        &cpu,
        TrainOptions {
            epochs: 12,
            ..Default::default()
        },
    );
    net.fit(&mut trainer, &mut updates, batches(&opened.train, true), None)
        .unwrap();
    let (after, words) = measure(&mut net);
    assert!(
        before > 0.8 && after < 0.2 && words < 0.8,
        "from {before} to {after}, words {words}"
    );

    // The network is asked about one utterance.
    net.eval();
    let alphabet = Alphabet::of(" abc");
    let mut right = 0;
    for index in 0..10 {
        let mut sample = opened.test.get(index).unwrap();
        let expected: Vec<usize> = sample.targets.iter().map(|&label| label as usize).collect();
        let transform = model.transform(None).unwrap();
        transform.apply(&mut sample, &Draw::new(0, 0, 0)).unwrap();
        let x = Tensor::from_slice(&cpu, &sample.input, sample.shape.dims()).unwrap();
        let likeliest = no_grad(|| net.transcribe(&x).unwrap().unwrap().argmax(-1, false)).unwrap();
        let mut labels = likeliest.to_vec::<i32>().unwrap();
        labels.dedup();
        let found: Vec<usize> = labels.into_iter().filter(|&l| l != 0).map(|l| l as usize).collect();
        right += usize::from(alphabet.text(&found) == alphabet.text(&expected));
    }
    assert!(right > 2, "{right} of 10");
}
