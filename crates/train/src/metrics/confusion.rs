//! The confusion matrix.

use super::Metric;
use crate::Output;
use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;

/// A confusion matrix: the number of samples of each class `label` whose highest score was for each class `predicted`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    counts: Vec<u64>,
}

impl Confusion {
    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The number of samples of class `label` that were predicted as `predicted`; 0 outside the classes.
    pub fn count(&self, label: usize, predicted: usize) -> u64 {
        if label >= self.classes || predicted >= self.classes {
            return 0;
        }
        self.counts[label * self.classes + predicted]
    }

    /// The rows of the matrix, one per label.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks(self.classes.max(1))
    }

    /// The recall of each class, the share of its samples that were predicted correctly; NaN for a class without samples.
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

/// A metric that counts a confusion matrix on the device, as the product of one-hot labels and one-hot predictions. Its
/// value is the balanced accuracy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix {
    classes: usize,
    last: Option<Confusion>,
}

impl ConfusionMatrix {
    /// Creates the metric, named `balanced_accuracy`, for `classes` classes.
    pub fn new(classes: usize) -> Self {
        ConfusionMatrix { classes, last: None }
    }

    /// The confusion matrix of the last epoch or evaluation; `None` before the first.
    pub fn counts(&self) -> Option<&Confusion> {
        self.last.as_ref()
    }
}

impl<B: Backend> Metric<B> for ConfusionMatrix {
    fn name(&self) -> String {
        "balanced_accuracy".to_string()
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let predicted = output.floats("scores")?.argmax(-1, false)?;
        let predicted = predicted.one_hot(self.classes, DType::F32)?;
        let labels = output.integers("labels")?.one_hot(self.classes, DType::F32)?;
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
