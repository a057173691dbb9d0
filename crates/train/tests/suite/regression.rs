//! Errors of regression, compared with scikit-learn, and perplexity, compared with SciPy.

use crate::golden::{assert_near, difference, floats, golden, indices, integers, measured, output, sizes, tensor};
use kiln_cpu::Cpu;
use kiln_train::{
    Mae, Metric, Mse, Output, Perplexity, R2, Rmse, mean_absolute_error, mean_squared_error, perplexity, r2_score,
};
use proptest::prelude::*;

const EXACT: f64 = 1e-12;

/// The rows from `from` to `to` of values of this shape.
fn outputs(predictions: &[f64], targets: &[f64], shape: &[usize], from: usize, to: usize) -> Output<Cpu> {
    let each: usize = shape[1..].iter().product();
    let shape = [&[to - from], &shape[1..]].concat();
    let rows = |values: &[f64]| tensor(&values[from * each..to * each], &shape);
    output().with_predictions(rows(predictions), rows(targets))
}

#[test]
fn errors_equal_those_of_scikit_learn() {
    for case in golden("metrics", "regression") {
        let (predictions, targets) = (floats(&case["predictions"]), floats(&case["targets"]));
        let shape = sizes(&case["shape"]);
        let expected = |name: &str| case[name].as_f64().unwrap();
        let host = [
            mean_squared_error(&predictions, &targets).unwrap(),
            mean_absolute_error(&predictions, &targets).unwrap(),
            r2_score(&predictions, &targets, targets.len() / shape[0]).unwrap(),
        ];
        for (found, name) in host.into_iter().zip(["mse", "mae", "r2"]) {
            assert_near(found, expected(name), EXACT);
        }
        let metrics: [&mut dyn Metric<Cpu>; 4] = [&mut Mse::new(), &mut Mae::new(), &mut Rmse::new(), &mut R2::new()];
        for metric in metrics {
            for size in [5, shape[0]] {
                let found = measured(metric, shape[0], size, |from, to| {
                    outputs(&predictions, &targets, &shape, from, to)
                });
                assert_near(found, expected(&metric.name()), EXACT);
            }
        }
    }
}

#[test]
fn shapes_that_differ_are_refused() {
    let other = output().with_predictions(tensor(&[0.0; 3], &[3, 1]), tensor(&[0.0; 3], &[3]));
    let metrics: [&dyn Metric<Cpu>; 4] = [&Mse::new(), &Mae::new(), &Rmse::new(), &R2::new()];
    for metric in metrics {
        assert!(metric.measure(&other).is_err());
    }
    assert!(mean_squared_error(&[0.0], &[]).is_err());
    assert!(mean_absolute_error(&[0.0], &[]).is_err());
    assert!(r2_score(&[0.0; 3], &[0.0; 3], 2).is_err() && r2_score(&[], &[], 0).is_err());
}

#[test]
fn few_samples_have_no_determination() {
    assert!(r2_score(&[1.0], &[2.0], 1).unwrap().is_nan());
    assert!(r2_score(&[], &[], 1).unwrap().is_nan());
    assert!(mean_squared_error(&[], &[]).unwrap().is_nan());
    let one = |_, _| outputs(&[1.0], &[2.0], &[1], 0, 1);
    assert!(measured(&mut R2::new(), 1, 1, one).is_nan());
    // Constant targets whose mean is rounded.
    let constant = |from, to| outputs(&[0.1; 7], &[0.1; 7], &[7], from, to);
    assert_eq!(measured(&mut R2::new(), 7, 3, constant), 1.0);
    let wrong = |from, to| outputs(&[0.2; 7], &[0.1; 7], &[7], from, to);
    assert_eq!(measured(&mut R2::new(), 7, 3, wrong), 0.0);
}

#[test]
fn perplexity_equals_that_of_scipy() {
    for case in golden("metrics", "perplexity") {
        let (scores, labels) = (floats(&case["scores"]), integers(&case["labels"]));
        let &[n, t, v] = &sizes(&case["shape"])[..] else {
            panic!()
        };
        for size in [1, 2, n] {
            let found = measured(&mut Perplexity::new(), n, size, |from, to| {
                let scores = tensor(&scores[from * t * v..to * t * v], &[to - from, t, v]);
                output().with_scores(scores, &indices(&labels[from * t..to * t], &[to - from, t]))
            });
            // Losses are computed in f32.
            assert_near(found, case["value"].as_f64().unwrap(), 1e-6);
        }
    }
}

#[test]
fn ignored_tokens_have_no_perplexity() {
    let logits = tensor(&[0.0; 12], &[3, 4]);
    let of = |labels: &[i32], metric: &mut Perplexity| {
        measured(metric, 3, 3, |_, _| {
            output().with_scores(logits.clone(), &indices(labels, &[3]))
        })
    };
    assert_near(of(&[0, 1, -100], &mut Perplexity::new()), 4.0, 1e-6);
    assert_near(of(&[0, 1, 3], &mut Perplexity::new().ignore_index(0)), 4.0, 1e-6);
    assert!(of(&[-100; 3], &mut Perplexity::new()).is_nan());
    assert!(perplexity(&[]).is_nan());
    assert_eq!(perplexity(&[0.0; 3]), 1.0);
    let output = output().with_scores(logits, &indices(&[0, 1, 4], &[3]));
    assert!(Metric::<Cpu>::measure(&Perplexity::new(), &output).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn batches_and_order_do_not_matter(
        mut pairs in prop::collection::vec((-100i32..100, -100i32..100), 2..50),
        offset in prop::sample::select(vec![0.0, 1000.0, -65536.0]),
        size in 1usize..20,
    ) {
        let split = |pairs: &[(i32, i32)]| -> (Vec<f64>, Vec<f64>) {
            pairs.iter().map(|&(p, t)| (offset + f64::from(p) / 16.0, offset + f64::from(t) / 16.0)).unzip()
        };
        let all = |pairs: &[(i32, i32)], size: usize| {
            let (predictions, targets) = split(pairs);
            let batch = |from, to| outputs(&predictions, &targets, &[pairs.len()], from, to);
            let metrics: [&mut dyn Metric<Cpu>; 4] =
                [&mut Mse::new(), &mut Mae::new(), &mut Rmse::new(), &mut R2::new()];
            metrics.map(|metric| measured(metric, pairs.len(), size, batch))
        };
        let (predictions, targets) = split(&pairs);
        let whole = all(&pairs, pairs.len());
        // The mean of targets far from 0 is known to fewer digits than their spread.
        let tolerance = [EXACT, EXACT, EXACT, 1e-9];
        prop_assert!(difference(whole[3], r2_score(&predictions, &targets, 1).unwrap()) < tolerance[3]);
        prop_assert!(whole[1] <= whole[2] * (1.0 + EXACT) && whole[3] <= 1.0);
        let parts = all(&pairs, size);
        pairs.reverse();
        for found in [parts, all(&pairs, size)] {
            for i in 0..4 {
                prop_assert!(difference(found[i], whole[i]) < tolerance[i], "{} {}", found[i], whole[i]);
            }
        }
    }
}
