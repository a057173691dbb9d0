//! Metrics compared with counts on the host.

use crate::common::{Net, images, loader, step};
use kiln_cpu::Cpu;
use kiln_nn::optim::Sgd;
use kiln_nn::{Indices, Tensor};
use kiln_train::{Accuracy, Batch, ConfusionMatrix, Metric, Running, TopK, TrainOptions, Trainer, evaluate};
use proptest::prelude::*;
use std::cell::Cell;

fn batch(scores: &[f32], labels: &[i32], classes: usize) -> (Tensor<Cpu>, Batch<Cpu>) {
    let cpu = Cpu::new();
    let scores = Tensor::from_slice(&cpu, scores, &[labels.len(), classes]).unwrap();
    let batch = Batch {
        inputs: Tensor::from_slice(&cpu, &vec![0f32; labels.len()], &[labels.len()]).unwrap(),
        labels: Indices::from_slice(&cpu, labels, &[labels.len()]).unwrap(),
        targets: None,
    };
    (scores, batch)
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
            let (tensor, batch) = batch(scores, labels, classes);
            for (metric, running) in [&accuracy as &dyn Metric<Cpu>, &top, &confusion].into_iter().zip(&mut running) {
                running.add(metric, &tensor, &batch).unwrap();
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
        prop_assert_eq!(running[0].finish(&mut accuracy).unwrap(), right as f64 / samples as f64);
        prop_assert_eq!(running[1].finish(&mut top).unwrap(), hits as f64 / samples as f64);
        let balanced = running[2].finish(&mut confusion).unwrap();
        let seen = confusion.counts().unwrap();
        prop_assert_eq!(seen.rows().flatten().copied().collect::<Vec<_>>(), counts);
        prop_assert_eq!(balanced, seen.balanced_accuracy());
        // A metric begins the next pass without samples.
        prop_assert!(running[0].finish(&mut accuracy).unwrap().is_nan());
        let (scores, labels) = &batches[0];
        let (tensor, batch) = batch(scores, labels, classes);
        running[1].add(&top, &tensor, &batch).unwrap();
        prop_assert!(running[1].finish(&mut top).unwrap() <= 1.0);
    }
}

#[test]
fn a_class_without_samples_has_no_recall() {
    let (scores, batch) = batch(&[1.0, 0.0, 0.0, 1.0, 0.0, 0.0], &[0, 2], 3);
    let mut confusion = ConfusionMatrix::new(3);
    let mut running = Running::new();
    running.add(&confusion, &scores, &batch).unwrap();
    assert_eq!(running.finish(&mut confusion).unwrap(), 0.5);
    let counts = confusion.counts().unwrap();
    assert_eq!((counts.count(2, 0), counts.count(0, 0), counts.count(7, 0)), (1, 1, 0));
    assert!(counts.recall()[1].is_nan());
}

#[test]
fn scores_of_another_shape_are_refused() {
    let (scores, _) = batch(&[0.0; 6], &[0, 1], 3);
    let (_, other) = batch(&[0.0; 9], &[0, 1, 2], 3);
    assert!(Accuracy::new().measure(&scores, &other).is_err());
    assert!(ConfusionMatrix::new(3).measure(&scores, &other).is_err());
}

#[test]
fn a_pass_that_failed_leaves_no_counts_behind() {
    let cpu = Cpu::new();
    let data = loader(images(40, 0), 8, false, 0);
    let calls = Cell::new(0);
    // The third batch of the first pass fails.
    let failing = |model: &Net<Cpu>, batch: &Batch<Cpu>| {
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
