//! Counts of which class is taken for which.

use super::Metric;
use crate::Batch;
use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;

/// The number of times that a sample of class `label` got the highest score for class `predicted`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    counts: Vec<u64>,
}

impl Confusion {
    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Samples of class `label` that were taken for `predicted`; 0 outside the classes.
    pub fn count(&self, label: usize, predicted: usize) -> u64 {
        if label >= self.classes || predicted >= self.classes {
            return 0;
        }
        self.counts[label * self.classes + predicted]
    }

    /// One row per label.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks(self.classes.max(1))
    }

    /// The share of each class's samples that were recognised (recall); NaN for a class without samples.
    pub fn recall(&self) -> Vec<f64> {
        let share = |(i, row): (usize, &[u64])| row[i] as f64 / row.iter().sum::<u64>() as f64;
        self.rows().enumerate().map(share).collect()
    }

    /// The mean recall of the classes that have samples.
    pub fn balanced_accuracy(&self) -> f64 {
        let recall: Vec<f64> = self.recall().into_iter().filter(|r| !r.is_nan()).collect();
        recall.iter().sum::<f64>() / recall.len() as f64
    }
}

/// Counts, on the device, which class is taken for which: the product of one-hot labels and one-hot predictions.
/// As a metric it is the balanced accuracy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix {
    classes: usize,
    last: Option<Confusion>,
}

impl ConfusionMatrix {
    /// Named `balanced_accuracy`, over `classes` classes.
    pub fn new(classes: usize) -> Self {
        ConfusionMatrix { classes, last: None }
    }

    /// The counts of the last pass over data.
    pub fn counts(&self) -> Option<&Confusion> {
        self.last.as_ref()
    }
}

impl<B: Backend> Metric<B> for ConfusionMatrix {
    fn name(&self) -> String {
        "balanced_accuracy".to_string()
    }

    fn measure(&self, scores: &Tensor<B>, batch: &Batch<B>) -> Result<Tensor<B>> {
        let predicted = scores.argmax(-1, false)?.one_hot(self.classes, DType::F32)?;
        let labels = batch.labels.one_hot(self.classes, DType::F32)?;
        labels.matmul_t(&predicted, true, false)
    }

    fn value(&mut self, sum: &[f64], _: u64) -> f64 {
        let mut counts: Vec<u64> = sum.iter().map(|&c| c as u64).collect();
        counts.resize(self.classes * self.classes, 0);
        let confusion = Confusion {
            classes: self.classes,
            counts,
        };
        let value = confusion.balanced_accuracy();
        self.last = Some(confusion);
        value
    }
}
