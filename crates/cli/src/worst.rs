//! The samples of a classifier that it took for another class, those with the largest loss first.

use crate::error::Result;
use kiln_core::Backend;
use kiln_models::{Batches, Net};

/// A sample that was taken for another class.
pub(crate) struct Worst {
    pub(crate) index: usize,
    pub(crate) label: usize,
    pub(crate) predicted: usize,
    /// The probabilities of both.
    pub(crate) of_label: f64,
    pub(crate) of_predicted: f64,
    pub(crate) loss: f64,
}

/// The labels of samples beside the classes that a classifier predicted, and its worst mistakes.
pub(crate) struct Judged {
    /// Their classes, and what they were taken for, in the order of the data.
    pub(crate) labels: Vec<usize>,
    pub(crate) predicted: Vec<usize>,
    /// Those that were taken for another class, with the largest loss first.
    pub(crate) worst: Vec<Worst>,
}

/// The cross-entropy of a sample, with its label, the class of its highest score and the probabilities of the two.
fn judge(index: usize, logits: &[f64], label: usize) -> Worst {
    let (mut predicted, mut highest) = (0, f64::NEG_INFINITY);
    for (class, &logit) in logits.iter().enumerate() {
        if logit > highest {
            (predicted, highest) = (class, logit);
        }
    }
    let sum: f64 = logits.iter().map(|logit| (logit - highest).exp()).sum();
    let probability = |class: usize| logits.get(class).map_or(f64::NAN, |l| (l - highest).exp() / sum);
    Worst {
        index,
        label,
        predicted,
        of_label: probability(label),
        of_predicted: probability(predicted),
        loss: sum.ln() + highest - logits.get(label).copied().unwrap_or(f64::NAN),
    }
}

impl Judged {
    /// Runs a network in evaluation mode over samples, and keeps at most so many of the worst.
    pub(crate) fn by<B: Backend>(
        net: &Net<B>,
        backend: &B,
        batches: Batches,
        classes: usize,
        most: usize,
    ) -> Result<Self> {
        let (mut labels, mut predicted, mut worst) = (Vec::new(), Vec::new(), Vec::new());
        net.each_batch(backend, batches, &mut |batch| {
            let output = batch.measure()?;
            let logits = output.floats("scores")?.to_f64()?;
            for (logits, label) in logits.chunks(classes).zip(output.integers("labels")?.to_vec::<i32>()?) {
                let sample = judge(labels.len(), logits, label as usize);
                labels.push(sample.label);
                predicted.push(sample.predicted);
                if sample.label != sample.predicted {
                    worst.push(sample);
                }
            }
            worst.sort_by(|a: &Worst, b| b.loss.total_cmp(&a.loss));
            worst.truncate(most);
            Ok(true)
        })?;
        Ok(Judged {
            labels,
            predicted,
            worst,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_of_a_sample_is_its_cross_entropy() {
        let sample = judge(3, &[1000.0, 1000.0 + 2f64.ln(), 0.0], 0);
        assert_eq!((sample.index, sample.label, sample.predicted), (3, 0, 1));
        assert!((sample.of_label - 1.0 / 3.0).abs() < 1e-9 && (sample.of_predicted - 2.0 / 3.0).abs() < 1e-9);
        assert!((sample.loss - 3f64.ln()).abs() < 1e-9);
    }
}
