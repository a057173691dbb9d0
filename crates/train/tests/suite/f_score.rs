//! Precision, recall and F-scores, compared with scikit-learn.

use crate::golden::{assert_near, golden, indices, integers, measured, output, sizes, tensor};
use kiln_cpu::Cpu;
use kiln_train::{ClassAverage, Confusion, ConfusionMatrix, F1, FBeta, Metric, Output, Precision, Recall};
use proptest::prelude::*;

const EXACT: f64 = 1e-15;

/// Scores whose highest is that of the predicted class.
fn outputs(classes: usize, labels: &[i32], predicted: &[i32]) -> Output<Cpu> {
    let n = labels.len();
    let mut scores = vec![-1.0; n * classes];
    for (row, &class) in predicted.iter().enumerate() {
        scores[row * classes + class as usize] = 0.5;
    }
    output().with_scores(tensor(&scores, &[n, classes]), &indices(labels, &[n]))
}

fn average(name: &str) -> ClassAverage {
    match name {
        "binary" => ClassAverage::Binary(1),
        "micro" => ClassAverage::Micro,
        "macro" => ClassAverage::Macro,
        "weighted" => ClassAverage::Weighted,
        other => panic!("no average {other}"),
    }
}

#[test]
fn averages_equal_those_of_scikit_learn() {
    for case in golden("metrics", "confusions") {
        let classes = case["classes"].as_u64().unwrap() as usize;
        let (labels, predicted) = (integers(&case["labels"]), integers(&case["predicted"]));
        let confusion = Confusion::of(classes, &sizes(&case["labels"]), &sizes(&case["predicted"])).unwrap();
        for value in case["values"].as_array().unwrap() {
            let (average, beta) = (
                average(value["average"].as_str().unwrap()),
                value["beta"].as_f64().unwrap(),
            );
            let expected = ["precision", "recall", "f"].map(|name| value[name].as_f64().unwrap());
            let scores = confusion.averaged(beta, average);
            for (found, expected) in [scores.precision, scores.recall, scores.f].into_iter().zip(expected) {
                assert_near(found, expected, EXACT);
            }
            let mut metrics: [Box<dyn Metric<Cpu>>; 3] = [
                Box::new(Precision::new(classes, average)),
                Box::new(Recall::new(classes, average)),
                Box::new(FBeta::new(classes, beta, average)),
            ];
            for (metric, expected) in metrics.iter_mut().zip(expected) {
                let found = measured(&mut **metric, labels.len(), 7, |from, to| {
                    outputs(classes, &labels[from..to], &predicted[from..to])
                });
                assert_near(found, expected, EXACT);
            }
        }
    }
}

#[test]
fn names_are_those_of_scikit_learns_scorers() {
    let name = |metric: &dyn Metric<Cpu>| metric.name();
    assert_eq!(name(&F1::new(2, ClassAverage::Binary(1))), "f1");
    assert_eq!(name(&F1::new(3, ClassAverage::Macro)), "f1_macro");
    assert_eq!(name(&FBeta::new(3, 0.5, ClassAverage::Micro)), "f0.5_micro");
    assert_eq!(name(&Precision::new(3, ClassAverage::Weighted)), "precision_weighted");
    assert_eq!(name(&Recall::new(3, ClassAverage::Weighted)), "recall_weighted");
}

#[test]
fn one_score_per_sample_is_compared_with_the_threshold() {
    for shape in [&[4usize][..], &[4, 1]] {
        let scores = tensor(&[-1.0, 0.0, 0.5, 2.0], shape);
        let output = output().with_scores(scores, &indices(&[0, 1, 1, 1], &[4]));
        let mut f1 = F1::new(2, ClassAverage::Binary(1)).threshold(0.0);
        assert_near(measured(&mut f1, 4, 4, |_, _| output.clone()), 0.8, EXACT);
        assert_eq!(f1.counts().unwrap().count(1, 0), 1);
        assert!(Metric::<Cpu>::measure(&F1::new(3, ClassAverage::Macro).threshold(0.0), &output).is_err());
    }
    let other = output().with_scores(tensor(&[0.0; 3], &[3]), &indices(&[0; 4], &[4]));
    assert!(Metric::<Cpu>::measure(&F1::new(2, ClassAverage::Macro).threshold(0.0), &other).is_err());
}

#[test]
fn tokens_are_counted_one_by_one_without_those_ignored() {
    let scores = tensor(&[1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0], &[2, 2, 2]);
    let output = output().with_scores(scores, &indices(&[0, -100, 1, 1], &[2, 2]));
    let mut confusion = ConfusionMatrix::new(2).ignore_index(-100);
    assert_eq!(measured(&mut confusion, 2, 2, |_, _| output.clone()), 0.75);
    let counts: Vec<u64> = confusion.counts().unwrap().rows().flatten().copied().collect();
    assert_eq!(counts, [1, 0, 1, 1]);
}

#[test]
fn classes_out_of_range_are_refused() {
    assert!(Confusion::of(2, &[0, 2], &[0, 1]).is_err());
    assert!(Confusion::of(2, &[0, 1], &[0, 2]).is_err());
    assert!(Confusion::of(2, &[0, 1], &[0]).is_err());
    let labels = indices(&[0, 3], &[2]);
    let output = output().with_scores(tensor(&[0.0; 6], &[2, 3]), &labels);
    assert!(Metric::<Cpu>::measure(&F1::new(3, ClassAverage::Macro), &output).is_err());
    assert!(Metric::<Cpu>::measure(&F1::new(2, ClassAverage::Macro), &outputs(3, &[0, 1], &[2, 2])).is_err());
}

#[test]
fn without_samples_the_scores_are_zero() {
    let confusion = Confusion::of(3, &[], &[]).unwrap();
    for average in [
        ClassAverage::Binary(1),
        ClassAverage::Micro,
        ClassAverage::Macro,
        ClassAverage::Weighted,
    ] {
        let scores = confusion.averaged(1.0, average);
        assert_eq!((scores.precision, scores.recall, scores.f), (0.0, 0.0, 0.0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn batches_and_order_do_not_matter(
        (classes, mut pairs) in (2usize..6).prop_flat_map(|c| {
            (Just(c), prop::collection::vec((0..c as i32, 0..c as i32), 1..40))
        }),
        size in 1usize..20,
    ) {
        let value = |pairs: &[(i32, i32)], size| {
            let mut metric = FBeta::new(classes, 2.0, ClassAverage::Macro);
            measured(&mut metric, pairs.len(), size, |from, to| {
                let (labels, predicted): (Vec<_>, Vec<_>) = pairs[from..to].iter().copied().unzip();
                outputs(classes, &labels, &predicted)
            })
        };
        let whole = value(&pairs, pairs.len());
        prop_assert!((0.0..=1.0).contains(&whole));
        prop_assert_eq!(value(&pairs, size), whole);
        pairs.reverse();
        prop_assert_eq!(value(&pairs, size), whole);
        // Micro averages of one class for each sample are the accuracy.
        let (labels, predicted): (Vec<usize>, Vec<usize>) =
            pairs.iter().map(|&(l, p)| (l as usize, p as usize)).unzip();
        let micro = Confusion::of(classes, &labels, &predicted).unwrap().averaged(1.0, ClassAverage::Micro);
        let right = pairs.iter().filter(|(l, p)| l == p).count() as f64 / pairs.len() as f64;
        prop_assert!((micro.f - right).abs() < EXACT && micro.precision == right && micro.recall == right);
    }
}
