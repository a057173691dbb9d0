//! Areas under curves, compared with scikit-learn.

use crate::golden::{assert_near, difference, floats, golden, indices, measured, output, sizes, tensor, values};
use kiln_train::{AveragePrecision, Metric, Output, RocAuc, average_precision, one_vs_rest, roc_auc};
use proptest::prelude::*;

const EXACT: f64 = 1e-14;

fn outputs(scores: &[f64], labels: &[usize], classes: usize) -> Output<kiln_cpu::Cpu> {
    let labels: Vec<i32> = labels.iter().map(|&l| l as i32).collect();
    let shape = [labels.len(), classes];
    let shape = if classes == 1 { &shape[..1] } else { &shape[..] };
    output().with_scores(tensor(scores, shape), &indices(&labels, &[labels.len()]))
}

#[test]
fn areas_of_two_classes_equal_those_of_scikit_learn() {
    for case in golden("metrics", "binary") {
        let (scores, labels) = (floats(&case["scores"]), sizes(&case["labels"]));
        let positive: Vec<bool> = labels.iter().map(|&l| l == 1).collect();
        let (auc, ap) = (case["auc"].as_f64().unwrap(), case["ap"].as_f64().unwrap());
        assert_near(roc_auc(&scores, &positive).unwrap(), auc, EXACT);
        assert_near(average_precision(&scores, &positive).unwrap(), ap, EXACT);
        let batch = |from, to| outputs(&scores[from..to], &labels[from..to], 1);
        assert_near(measured(&mut RocAuc::new(), labels.len(), 7, batch), auc, EXACT);
        assert_near(
            measured(&mut AveragePrecision::new(), labels.len(), 7, batch),
            ap,
            EXACT,
        );
    }
}

#[test]
fn areas_of_classes_equal_those_of_scikit_learn() {
    for case in golden("metrics", "classes") {
        let classes = case["classes"].as_u64().unwrap() as usize;
        let (scores, labels) = (floats(&case["scores"]), sizes(&case["labels"]));
        let (auc, ap) = (case["auc"].as_f64().unwrap(), case["ap"].as_f64().unwrap());
        let logits = case["logits"].as_bool().unwrap();
        let batch = |from, to| outputs(&scores[from * classes..to * classes], &labels[from..to], classes);
        let (mut roc, mut precision) = match logits {
            true => (RocAuc::from_logits(), AveragePrecision::from_logits()),
            false => (RocAuc::new(), AveragePrecision::new()),
        };
        assert_near(measured(&mut roc, labels.len(), 16, batch), auc, EXACT);
        assert_near(measured(&mut precision, labels.len(), 16, batch), ap, EXACT);
        if classes > 2 && !logits {
            assert_near(one_vs_rest(&scores, &labels, classes, roc_auc).unwrap(), auc, EXACT);
            assert_near(
                one_vs_rest(&scores, &labels, classes, average_precision).unwrap(),
                ap,
                EXACT,
            );
        }
    }
}

#[test]
fn one_kind_of_samples_has_no_area() {
    assert!(roc_auc(&[0.1, 0.2], &[true, true]).unwrap().is_nan());
    assert!(roc_auc(&[], &[]).unwrap().is_nan());
    assert_eq!(average_precision(&[0.1, 0.2], &[false, false]).unwrap(), 0.0);
    assert!(one_vs_rest(&[0.5, 0.25, 0.25], &[1], 3, roc_auc).unwrap().is_nan());
    assert!(measured(&mut RocAuc::new(), 2, 1, |_, _| outputs(&[0.5], &[1], 1)).is_nan());
}

#[test]
fn faulty_scores_and_labels_are_errors() {
    assert!(roc_auc(&[0.1], &[true, false]).is_err());
    assert!(average_precision(&[f64::NAN, 1.0], &[true, false]).is_err());
    assert!(one_vs_rest(&[0.5; 6], &[0, 3], 3, roc_auc).is_err());
    assert!(one_vs_rest(&[0.5; 5], &[0, 1], 3, roc_auc).is_err());
    let error = |scores: &[f64], labels: &[usize], classes| {
        let (mut metric, batch) = (RocAuc::new(), |_, _| outputs(scores, labels, classes));
        let error = values(&mut metric, 2, 2, batch).unwrap_err();
        // The next pass is measured as if there had been none before.
        let good = measured(&mut metric, 2, 2, |_, _| outputs(&[0.1, 0.2], &[0, 1], 1));
        assert_eq!(good, 1.0);
        error.to_string()
    };
    assert!(error(&[f64::NAN, 1.0], &[0, 1], 1).contains("NaN at sample 0"));
    assert!(error(&[0.5, 1.0], &[0, 2], 1).contains("index 2 at position 1"));
    assert!(error(&[3.0, 1.0, -2.0, 0.5], &[0, 1], 2).contains("from_logits"));
    let other = output().with_scores(tensor(&[0.0; 6], &[3, 2]), &indices(&[0, 1], &[2]));
    assert!(Metric::<kiln_cpu::Cpu>::measure(&RocAuc::new(), &other).is_err());
    let mixed = |from, _| {
        if from == 0 {
            outputs(&[0.1], &[0], 1)
        } else {
            outputs(&[0.5; 2], &[1], 2)
        }
    };
    assert!(values(&mut RocAuc::new(), 2, 1, mixed).is_err());
}

/// The share of pairs in the right order.
fn pairs(samples: &[(i8, bool)]) -> f64 {
    let of = |kind| samples.iter().filter(move |s| s.1 == kind);
    let one = |p: i8, n: i8| f64::from(p > n) + f64::from(p == n) / 2.0;
    let sum: f64 = of(true).flat_map(|p| of(false).map(move |n| one(p.0, n.0))).sum();
    sum / (of(true).count() * of(false).count()) as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_area_is_the_share_of_ordered_pairs_in_any_batches(
        samples in prop::collection::vec((-5i8..5, any::<bool>()), 1..40),
        size in 1usize..20,
    ) {
        let scores: Vec<f64> = samples.iter().map(|s| f64::from(s.0)).collect();
        let positive: Vec<bool> = samples.iter().map(|s| s.1).collect();
        let labels: Vec<usize> = positive.iter().map(|&p| usize::from(p)).collect();
        let area = roc_auc(&scores, &positive).unwrap();
        prop_assert!(difference(area, pairs(&samples)) < EXACT);
        let negated: Vec<f64> = scores.iter().map(|s| -s).collect();
        prop_assert!(difference(roc_auc(&negated, &positive).unwrap(), 1.0 - area) < EXACT);
        let precision = average_precision(&scores, &positive).unwrap();
        prop_assert!((0.0..=1.0 + EXACT).contains(&precision));
        let batch = |from, to| outputs(&scores[from..to], &labels[from..to], 1);
        let found = measured(&mut RocAuc::new(), samples.len(), size, batch);
        prop_assert_eq!(found.to_bits(), area.to_bits());
        let reversed = |v: &[f64]| v.iter().rev().copied().collect::<Vec<_>>();
        let labels: Vec<bool> = positive.iter().rev().copied().collect();
        prop_assert_eq!(average_precision(&reversed(&scores), &labels).unwrap(), precision);
    }
}
