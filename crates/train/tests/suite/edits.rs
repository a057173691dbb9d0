//! Edits and error rates, compared with jiwer.

use crate::golden::{golden, indices, output, values};
use kiln_cpu::Cpu;
use kiln_train::{Edits, ErrorRate, Metric, Output, character_edits, edit_distance, edits, word_edits};
use proptest::prelude::*;
use serde_json::Value;

fn assert_counts(found: Edits, expected: &Value) {
    let count = |name: &str| expected[name].as_u64().unwrap();
    let expected_edits = Edits {
        substitutions: count("substitutions"),
        insertions: count("insertions"),
        deletions: count("deletions"),
        hits: count("hits"),
    };
    assert_eq!(found, expected_edits);
    assert_eq!(found.rate(), expected["rate"].as_f64().unwrap());
}

/// Sequences padded with −1 by `extra` more than needed, and their lengths.
fn padded(sequences: &[Vec<i32>], extra: usize) -> (Vec<i32>, usize, Vec<i32>) {
    let width = sequences.iter().map(Vec::len).max().unwrap_or(0) + extra;
    let row = |s: &Vec<i32>| {
        s.iter()
            .copied()
            .chain(std::iter::repeat(-1))
            .take(width)
            .collect::<Vec<_>>()
    };
    let lengths = sequences.iter().map(|s| s.len() as i32).collect();
    (sequences.iter().flat_map(row).collect(), width, lengths)
}

fn outputs(references: &[Vec<i32>], hypotheses: &[Vec<i32>]) -> Output<Cpu> {
    let n = references.len();
    let (r, r_width, r_lengths) = padded(references, 1);
    let (h, h_width, h_lengths) = padded(hypotheses, 0);
    output()
        .with("references", indices(&r, &[n, r_width]))
        .with("reference_lengths", indices(&r_lengths, &[n]))
        .with("hypotheses", indices(&h, &[n, h_width]))
        .with("hypothesis_lengths", indices(&h_lengths, &[n]))
}

fn decode(ids: &[i32]) -> String {
    ids.iter().filter_map(|&id| char::from_u32(id as u32)).collect()
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t.as_str().unwrap().to_string())
        .collect()
}

#[test]
fn error_rates_equal_those_of_jiwer() {
    for case in golden("metrics", "edits") {
        let (references, hypotheses) = (texts(&case["references"]), texts(&case["hypotheses"]));
        let pairs = || references.iter().zip(&hypotheses);
        assert_counts(pairs().map(|(r, h)| word_edits(r, h)).sum(), &case["words"]);
        assert_counts(pairs().map(|(r, h)| character_edits(r, h)).sum(), &case["characters"]);
        let ids = |texts: &[String]| -> Vec<Vec<i32>> {
            texts.iter().map(|t| t.chars().map(|c| c as i32).collect()).collect()
        };
        let (r, h) = (ids(&references), ids(&hypotheses));
        for (mut metric, part) in [
            (ErrorRate::words(decode), "words"),
            (ErrorRate::characters(decode), "characters"),
        ] {
            let name = Metric::<Cpu>::name(&metric);
            let values = values(&mut metric, r.len(), 3, |from, to| outputs(&r[from..to], &h[from..to])).unwrap();
            assert_counts(*metric.edits().unwrap(), &case[part]);
            assert_eq!(values[&name], case[part]["rate"].as_f64().unwrap());
            assert_eq!(
                values[&format!("{name}_deletions")],
                case[part]["deletions"].as_f64().unwrap()
            );
        }
    }
}

#[test]
fn empty_sequences_are_insertions_or_deletions() {
    assert_eq!(edits::<i32>(&[], &[]), Edits::default());
    assert_eq!((edits(&[], &[1, 2]).insertions, edits(&[], &[1, 2]).rate()), (2, 2.0));
    assert_eq!((edits(&[1, 2], &[]).deletions, edits(&[1, 2], &[]).rate()), (2, 1.0));
    assert_eq!(edit_distance(&[1], &[]), 1);
    let mut metric = ErrorRate::tokens().named("cer");
    let values = values(&mut metric, 1, 1, |_, _| outputs(&[vec![]], &[vec![]])).unwrap();
    assert_eq!(values["cer"], 0.0);
}

#[test]
fn faulty_lengths_are_errors() {
    for (reference, hypothesis) in [(3, 1), (-1, 1), (1, 3)] {
        let batch = |_, _| {
            output()
                .with("references", indices(&[1, 2], &[1, 2]))
                .with("reference_lengths", indices(&[reference], &[1]))
                .with("hypotheses", indices(&[1, 2], &[1, 2]))
                .with("hypothesis_lengths", indices(&[hypothesis], &[1]))
        };
        let error = values(&mut ErrorRate::tokens(), 1, 1, batch).unwrap_err().to_string();
        assert!(error.contains("_lengths") && error.contains("0 to 2"), "{error}");
    }
    let other = |lengths: usize, shape: &[usize]| {
        output()
            .with("references", indices(&[1, 2], shape))
            .with("reference_lengths", indices(&vec![1; lengths], &[lengths]))
            .with("hypotheses", indices(&[1, 2], &[1, 2]))
            .with("hypothesis_lengths", indices(&[1], &[1]))
    };
    for faulty in [other(2, &[1, 2]), other(1, &[2]), other(2, &[2, 1])] {
        assert!(Metric::<Cpu>::measure(&ErrorRate::tokens(), &faulty).is_err());
    }
}

/// The distance by its definition.
fn naive(x: &[i32], y: &[i32]) -> usize {
    match (x, y) {
        ([], rest) | (rest, []) => rest.len(),
        ([a, x1 @ ..], [b, y1 @ ..]) if a == b => naive(x1, y1),
        ([_, x1 @ ..], [_, y1 @ ..]) => 1 + naive(x1, y1).min(naive(x1, y)).min(naive(x, y1)),
    }
}

fn sequence(most: usize) -> impl Strategy<Value = Vec<i32>> {
    prop::collection::vec(0..4, 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_distance_is_the_least_number_of_edits(x in sequence(7), y in sequence(7), z in sequence(7)) {
        let distance = edit_distance(&x, &y);
        prop_assert_eq!(distance, naive(&x, &y));
        let edits = edits(&x, &y);
        prop_assert_eq!(edits.distance() as usize, distance);
        prop_assert_eq!(edits.reference_length() as usize, x.len());
        prop_assert_eq!((edits.hits + edits.substitutions + edits.insertions) as usize, y.len());
        prop_assert_eq!(edit_distance(&y, &x), distance);
        prop_assert!(distance <= edit_distance(&x, &z) + edit_distance(&z, &y));
    }

    #[test]
    fn batches_and_order_do_not_matter(
        mut pairs in prop::collection::vec((sequence(9), sequence(9)), 1..12),
        size in 1usize..6,
    ) {
        let total: Edits = pairs.iter().map(|(r, h)| edits(r, h)).sum();
        for size in [size, pairs.len()] {
            let mut metric = ErrorRate::tokens();
            let batch = |from, to| {
                let (r, h): (Vec<_>, Vec<_>) = pairs[from..to].iter().cloned().unzip();
                outputs(&r, &h)
            };
            let values = values(&mut metric, pairs.len(), size, batch).unwrap();
            prop_assert_eq!(values["token_error_rate"], total.rate());
            prop_assert_eq!(*metric.edits().unwrap(), total);
            pairs.reverse();
        }
    }
}
