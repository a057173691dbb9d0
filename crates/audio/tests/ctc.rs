//! Decoding against every labeling.

use kiln_audio::{AudioError, BeamSearch, Hypothesis, LanguageModel, NGram, ctc_greedy};
use kiln_core::Error;
use proptest::prelude::*;
use std::collections::HashMap;

/// Merges repetitions and leaves blanks out.
fn collapsed(classes: &[usize], blank: usize) -> Vec<usize> {
    let mut classes = classes.to_vec();
    classes.dedup();
    classes.retain(|c| *c != blank);
    classes
}

/// The logarithm of the probability of every labeling: the sum over its alignments.
fn by_listing(log_probs: &[f32], classes: usize, blank: usize) -> HashMap<Vec<usize>, f64> {
    let steps = log_probs.len() / classes;
    let mut found: HashMap<Vec<usize>, f64> = HashMap::new();
    for number in 0..classes.pow(steps as u32) {
        let alignment: Vec<usize> = (0..steps).map(|t| number / classes.pow(t as u32) % classes).collect();
        let p: f64 = alignment
            .iter()
            .enumerate()
            .map(|(t, c)| f64::from(log_probs[t * classes + c]))
            .sum();
        *found.entry(collapsed(&alignment, blank)).or_default() += p.exp();
    }
    found.into_iter().map(|(labels, p)| (labels, p.ln())).collect()
}

fn log_probs(steps: usize, classes: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-4f32..2.0, steps * classes).prop_map(move |mut x| {
        for row in x.chunks_exact_mut(classes) {
            let sum: f32 = row.iter().map(|x| x.exp()).sum();
            row.iter_mut().for_each(|x| *x -= sum.ln());
        }
        x
    })
}

proptest! {
    /// A beam that is wide enough finds all labelings, with their probabilities, and ranks them by the score.
    #[test]
    fn a_wide_beam_finds_everything(
        (classes, x) in (2usize..4, 0usize..6).prop_flat_map(|(classes, steps)| (Just(classes), log_probs(steps, classes))),
        blank in 0usize..2,
        with_model in any::<bool>(),
    ) {
        let texts = [vec![0, 1, 2], vec![1, 1], vec![2, 0, 1]];
        let model = NGram::train(3, 3, texts.iter().map(Vec::as_slice)).unwrap();
        let model: Option<&dyn LanguageModel> = if with_model { Some(&model) } else { None };
        let search = BeamSearch { width: 1000, blank, lm_weight: 0.7, label_bonus: 0.3 };
        let found = search.decode(&x, classes, model).unwrap();
        let listed = by_listing(&x, classes, blank);
        prop_assert_eq!(found.len(), listed.len());
        for Hypothesis { labels, log_prob, score } in &found {
            prop_assert!((log_prob - listed[labels]).abs() < 1e-9);
            let told = |i: usize| model.map_or(0.0, |m| m.log_prob(&labels[..i], labels.get(i).copied()));
            let lm: f64 = (0..=labels.len()).map(told).sum();
            let want = listed[labels] + 0.7 * lm + 0.3 * labels.len() as f64;
            prop_assert!((score - want).abs() < 1e-9, "{:?}: {} and {}", labels, score, want);
        }
        prop_assert!(found.is_sorted_by(|a, b| a.score >= b.score));
    }

    /// A narrow beam finds no more than there is, and the same each time.
    #[test]
    fn narrow_beams(width in 1usize..6, x in log_probs(6, 3)) {
        let search = BeamSearch { width, ..BeamSearch::default() };
        let found = search.decode(&x, 3, None).unwrap();
        prop_assert!(!found.is_empty() && found.len() <= width);
        let listed = by_listing(&x, 3, 0);
        for hypothesis in &found {
            prop_assert!(hypothesis.log_prob <= listed[&hypothesis.labels] + 1e-9);
        }
        prop_assert_eq!(&found, &search.decode(&x, 3, None).unwrap());
    }

    #[test]
    fn greedy_is_the_best_alignment(x in log_probs(9, 4), blank in 0usize..4) {
        let best = |row: &[f32]| (0..4).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        let alignment: Vec<usize> = x.chunks_exact(4).map(best).collect();
        prop_assert_eq!(ctc_greedy(&x, 4, blank).unwrap(), collapsed(&alignment, blank));
    }
}

#[test]
fn a_language_model_decides_between_equals() {
    let text = [1, 2, 1, 2, 1, 2];
    let model = NGram::train(2, 3, [&text[..]]).unwrap();
    // Label 1, and then 1 or 2 behind a blank that are as likely.
    let [sure, never, even] = [0.0, f32::NEG_INFINITY, 0.5f32.ln()];
    let x = [never, sure, never, sure, never, never, never, even, even];
    let search = BeamSearch::default();
    let best = &search.decode(&x, 3, Some(&model)).unwrap()[0];
    assert_eq!(best.labels, [1, 2]);
    assert!((best.log_prob - 0.5f64.ln()).abs() < 1e-6);
}

#[test]
fn wrong_arguments_are_refused() {
    let argument = |e: AudioError| match e {
        AudioError::Argument(Error::InvalidArgument { argument, .. }) => argument,
        e => panic!("{e}"),
    };
    assert_eq!(argument(ctc_greedy(&[0.0; 4], 2, 2).unwrap_err()), "blank");
    assert_eq!(argument(ctc_greedy(&[0.0; 5], 2, 0).unwrap_err()), "log_probs");
    let search = BeamSearch {
        width: 0,
        ..BeamSearch::default()
    };
    assert_eq!(argument(search.decode(&[0.0; 4], 2, None).unwrap_err()), "width");
    assert!(ctc_greedy(&[], 2, 0).unwrap().is_empty());
}
