//! N-gram language models over labels.

mod arpa;

use crate::Result;
use kiln_core::Error;
use std::collections::HashMap;

/// A language model that a [`BeamSearch`](crate::BeamSearch) can ask.
pub trait LanguageModel {
    /// The natural logarithm of the probability of a label, or of the end with `None`, behind the labels of a text so far.
    fn log_prob(&self, context: &[usize], label: Option<usize>) -> f64;
}

/// An n-gram model with interpolated Kneser–Ney smoothing, one discount for each order (Chen & Goodman, "An empirical study of smoothing
/// techniques for language modeling", 1999), in the form of back-off: behind a context that it has seen, what has been seen there has its
/// own probability, and everything else that behind the context without its first label times a factor.
#[derive(Debug, Clone)]
pub struct NGram {
    order: usize,
    labels: usize,
    /// The probabilities of n-grams, and the factors of those that are contexts, as logarithms.
    grams: HashMap<Vec<usize>, Entry>,
    /// ln p of a label that was not seen at all.
    unseen: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    log_prob: f64,
    back_off: f64,
}

/// Counts of n-grams of one length.
type Counts = HashMap<Vec<usize>, u64>;

impl NGram {
    /// A model of n-grams of up to `order` labels, each below `labels`, from texts. Probabilities sum to 1 over all labels and the end.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an order of 0, no texts, or a label that is not below `labels`.
    pub fn train<'t>(order: usize, labels: usize, texts: impl IntoIterator<Item = &'t [usize]>) -> Result<Self> {
        const OP: &str = "NGram::train";
        if order == 0 {
            return Err(Error::invalid(OP, "order", order, "at least 1").into());
        }
        let mut counts = vec![Counts::new(); order];
        for text in texts {
            if let Some(label) = text.iter().find(|label| **label >= labels) {
                return Err(Error::invalid(OP, "texts", label, format!("labels below {labels}")).into());
            }
            let whole: Vec<usize> = [&[start(labels)], text, &[labels]].concat();
            for end in 1..whole.len() {
                for (n, counts) in counts.iter_mut().enumerate().take(end + 1) {
                    *counts.entry(whole[end - n..=end].to_vec()).or_default() += 1;
                }
            }
        }
        if counts[0].is_empty() {
            return Err(Error::invalid(OP, "texts", "none", "at least one").into());
        }
        // A shorter n-gram counts by the labels that have stood before it, unless nothing can.
        for n in 0..order - 1 {
            let mut before = Counts::new();
            for gram in counts[n + 1].keys() {
                *before.entry(gram[1..].to_vec()).or_default() += 1;
            }
            for (gram, count) in &mut counts[n] {
                if gram[0] != start(labels) {
                    *count = before.get(gram).copied().unwrap_or(*count);
                }
            }
        }
        let mut model = NGram {
            order,
            labels,
            grams: HashMap::new(),
            unseen: 0.0,
        };
        for counts in &counts {
            model.add(counts);
        }
        Ok(model)
    }

    /// Adds the n-grams of the next length.
    fn add(&mut self, counts: &Counts) {
        let discount = discount(counts);
        // For each context the sum of the counts behind it, and how many labels there are.
        let mut totals: HashMap<&[usize], (u64, u64)> = HashMap::new();
        for (gram, count) in counts {
            let total = totals.entry(&gram[..gram.len() - 1]).or_default();
            *total = (total.0 + count, total.1 + 1);
        }
        for (context, (total, types)) in &totals {
            let factor = (discount * *types as f64 / *total as f64).ln();
            match context.is_empty() {
                true => self.unseen = factor - (self.labels as f64 + 1.0).ln(),
                false => self.grams.entry(context.to_vec()).or_default().back_off = factor,
            }
        }
        let shorter = |gram: &[usize]| match gram.len() {
            1 => self.unseen,
            n => {
                let factor = self.grams.get(&gram[..n - 1]).map_or(0.0, |entry| entry.back_off);
                factor + self.of(&gram[1..])
            }
        };
        let own = |(gram, count): (&Vec<usize>, &u64)| {
            let total = totals[&gram[..gram.len() - 1]].0 as f64;
            let kept = (*count as f64 - discount) / total;
            (gram.clone(), (kept + shorter(gram).exp()).ln())
        };
        let all: Vec<_> = counts.iter().map(own).collect();
        for (gram, log_prob) in all {
            self.grams.entry(gram).or_default().log_prob = log_prob;
        }
    }

    /// ln p of the last of these labels behind those before it.
    fn of(&self, gram: &[usize]) -> f64 {
        let mut factors = 0.0;
        for first in 0..gram.len() {
            let gram = &gram[first..];
            if let Some(entry) = self.grams.get(gram) {
                return factors + entry.log_prob;
            }
            factors += self
                .grams
                .get(&gram[..gram.len() - 1])
                .map_or(0.0, |entry| entry.back_off);
        }
        factors + self.unseen
    }

    /// The perplexity of a text per label, its end counted as one.
    pub fn perplexity(&self, text: &[usize]) -> f64 {
        let each = (0..=text.len()).map(|i| self.log_prob(&text[..i], text.get(i).copied()));
        (-each.sum::<f64>() / (text.len() + 1) as f64).exp()
    }
}

/// The label that stands for the beginning, behind that of the end.
fn start(labels: usize) -> usize {
    labels + 1
}

/// `n₁/(n₁ + 2n₂)` for the numbers of n-grams that count once and twice, away from 0 and 1.
fn discount(counts: &Counts) -> f64 {
    let times = |n: u64| counts.values().filter(|count| **count == n).count() as f64;
    let (once, twice) = (times(1), times(2));
    match once > 0.0 {
        true => (once / (once + 2.0 * twice)).clamp(0.1, 0.9),
        false => 0.5,
    }
}

impl LanguageModel for NGram {
    fn log_prob(&self, context: &[usize], label: Option<usize>) -> f64 {
        let most = self.order - 1;
        let mut gram = Vec::with_capacity(self.order);
        if context.len() < most {
            gram.push(start(self.labels));
        }
        gram.extend(&context[context.len().saturating_sub(most)..]);
        gram.push(label.unwrap_or(self.labels));
        self.of(&gram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Behind every context, of texts and of none, all labels and the end have a probability of 1 together.
        #[test]
        fn probabilities_sum_to_one(
            order in 1usize..5,
            texts in prop::collection::vec(prop::collection::vec(0usize..4, 0..8), 1..6),
            context in prop::collection::vec(0usize..5, 0..6),
        ) {
            let model = NGram::train(order, 5, texts.iter().map(Vec::as_slice)).unwrap();
            let labels = (0..5).map(Some).chain([None]);
            let sum: f64 = labels.map(|label| model.log_prob(&context, label).exp()).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
        }
    }

    #[test]
    fn longer_contexts_know_more() {
        let text: Vec<usize> = (0..60).map(|i| [0, 1, 2, 0, 2, 1][i % 6]).collect();
        let perplexity = |order| NGram::train(order, 3, [&text[..]]).unwrap().perplexity(&text);
        assert!(perplexity(3) < perplexity(2) && perplexity(2) < perplexity(1));
        assert!(perplexity(3) < 1.3);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert!(NGram::train(0, 3, [&[1usize][..]]).is_err());
        assert!(NGram::train(2, 3, [&[3usize][..]]).is_err());
        assert!(NGram::train(2, 3, []).is_err());
    }
}
