//! Metrics compared with counts on the host.

use crate::common::{Net, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::LabelledOn;
use kiln_nn::optim::Sgd;
use kiln_nn::{DType, Indices, Tensor};
use kiln_train::{Accuracy, ConfusionMatrix, Metric, Output, Running, TopK, TrainOptions, Trainer, evaluate};
use proptest::prelude::*;
use std::cell::Cell;

fn output(scores: &[f32], labels: &[i32], classes: usize) -> Output<Cpu> {
    let cpu = Cpu::new();
    let scores = Tensor::from_slice(&cpu, scores, &[scores.len() / classes, classes]).unwrap();
    let labels = Indices::from_slice(&cpu, labels, &[labels.len()]).unwrap();
    Output::new(Tensor::zeros(&cpu, &[], DType::F32).unwrap()).with_scores(scores, &labels)
}

/// The value of a metric that measures one.
fn value(running: &mut Running<Cpu>, metric: &mut dyn Metric<Cpu>) -> f64 {
    running.finish(metric).unwrap()[&metric.name()]
}

/// The number of classes ranked before `label`: those with higher scores, and those with the same score and a lower number.
fn rank(scores: &[f32], label: usize) -> usize {
    let before = |(i, s): (usize, &f32)| *s > scores[label] || (*s == scores[label] && i < label);
    scores.iter().enumerate().filter(|&e| before(e)).count()
}

/// Scores and labels of each batch.
type Batches = Vec<(Vec<f32>, Vec<i32>)>;

fn batches() -> impl Strategy<Value = (usize, Batches)> {
    (1usize..7).prop_flat_map(|classes| {
        let one = (1usize..34).prop_flat_map(move |n| {
            // Few distinct scores, so that ties occur.
            let scores = prop::collection::vec((-3i8..3).prop_map(f32::from), n * classes);
            (scores, prop::collection::vec(0..classes as i32, n))
        });
        (Just(classes), prop::collection::vec(one, 1..4))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn metrics_count_what_the_host_counts((classes, batches) in batches(), k in 1usize..4) {
        let (mut accuracy, mut top) = (Accuracy::new(), TopK::new(k));
        let mut confusion = ConfusionMatrix::new(classes);
        let mut running = [Running::new(), Running::new(), Running::new()];
        let (mut right, mut hits, mut samples) = (0, 0, 0);
        let mut counts = vec![0u64; classes * classes];
        for (scores, labels) in &batches {
            let output = output(scores, labels, classes);
            let metrics: [&mut dyn Metric<Cpu>; 3] = [&mut accuracy, &mut top, &mut confusion];
            for (metric, running) in metrics.into_iter().zip(&mut running) {
                running.add(metric, &output, labels.len()).unwrap();
            }
            for (row, &label) in scores.chunks(classes).zip(labels) {
                let label = label as usize;
                right += usize::from(rank(row, label) == 0);
                hits += usize::from(rank(row, label) < k);
                samples += 1;
                let predicted = (0..classes).find(|&c| rank(row, c) == 0).unwrap();
                counts[label * classes + predicted] += 1;
            }
        }
        prop_assert_eq!(value(&mut running[0], &mut accuracy), right as f64 / samples as f64);
        prop_assert_eq!(value(&mut running[1], &mut top), hits as f64 / samples as f64);
        let balanced = value(&mut running[2], &mut confusion);
        let seen = confusion.counts().unwrap();
        prop_assert_eq!(seen.rows().flatten().copied().collect::<Vec<_>>(), counts);
        prop_assert_eq!(balanced, seen.balanced_accuracy());
        // A metric begins the next pass without samples.
        prop_assert!(running[0].finish(&mut accuracy).unwrap().is_empty());
        let (scores, labels) = &batches[0];
        running[1].add(&mut top, &output(scores, labels, classes), labels.len()).unwrap();
        prop_assert!(value(&mut running[1], &mut top) <= 1.0);
    }
}

#[test]
fn a_class_without_samples_has_no_recall() {
    let output = output(&[1.0, 0.0, 0.0, 1.0, 0.0, 0.0], &[0, 2], 3);
    let mut confusion = ConfusionMatrix::new(3);
    let mut running = Running::new();
    running.add(&mut confusion, &output, 2).unwrap();
    assert_eq!(value(&mut running, &mut confusion), 0.5);
    let counts = confusion.counts().unwrap();
    assert_eq!((counts.count(2, 0), counts.count(0, 0), counts.count(7, 0)), (1, 1, 0));
    assert!(counts.recall()[1].is_nan());
}

#[test]
fn scores_of_another_shape_are_refused() {
    for labels in [&[0, 1, 2][..], &[0]] {
        let other = output(&[0.0; 6], labels, 3);
        assert!(Accuracy::new().measure(&other).is_err());
        assert!(TopK::new(2).measure(&other).is_err());
        assert!(ConfusionMatrix::new(3).measure(&other).is_err());
    }
}

#[test]
fn a_pass_that_failed_leaves_no_counts_behind() {
    let cpu = Cpu::new();
    let data = loader(images(40, 0), 8, false, 0);
    let calls = Cell::new(0);
    // The third batch of the first pass fails.
    let failing = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        calls.set(calls.get() + 1);
        if calls.get() == 3 {
            batch.labels.reshape(&[3usize])?;
        }
        step(model, batch)
    };
    let mut model = Net::new(&cpu, 0);
    let (mut accuracy, mut top, mut confusion) = (Accuracy::new(), TopK::new(2), ConfusionMatrix::new(4));
    let mut measure = || {
        let metrics: &mut [&mut dyn Metric<Cpu>] = &mut [&mut accuracy, &mut top, &mut confusion];
        evaluate(&cpu, &mut model, &failing, &data, metrics)
    };
    assert!(measure().is_err());
    let (second, third) = (measure().unwrap(), measure().unwrap());
    assert_eq!(second, third);
    assert_eq!(confusion.counts().unwrap().rows().flatten().sum::<u64>(), 40);

    calls.set(0);
    let mut trainer = Trainer::new(&cpu, TrainOptions::default()).metric(Accuracy::new());
    // Nothing changes at rate 0.
    let mut fit = || trainer.fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.0), failing, &data, None);
    assert!(fit().is_err());
    let report = fit().unwrap();
    assert_eq!(report.history.epochs()[0].train["accuracy"], second.values["accuracy"]);
}
