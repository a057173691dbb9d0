//! The confusion matrix.

use super::Metric;
use super::counting::{self, Counting};
use crate::Output;
use kiln_core::{Backend, Error, Result};
use kiln_nn::Tensor;

/// A confusion matrix: the number of samples of each class `label` whose highest score was for each class `predicted`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    counts: Vec<u64>,
}

impl Confusion {
    /// Counts pairs of a true class and a predicted class, both below `classes`.
    ///
    /// ```
    /// let confusion = kiln_train::Confusion::of(3, &[0, 2, 2], &[0, 2, 1])?;
    /// assert_eq!((confusion.count(2, 2), confusion.count(2, 1)), (1, 1));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Slices of different lengths, a class out of range.
    pub fn of(classes: usize, labels: &[usize], predicted: &[usize]) -> Result<Self> {
        if labels.len() != predicted.len() {
            let expected = format!("one for each of the {} labels", labels.len());
            return Err(Error::invalid("confusion", "predictions", predicted.len(), expected));
        }
        let mut counts = vec![0; classes * classes];
        for (position, (&label, &predicted)) in labels.iter().zip(predicted).enumerate() {
            let class = label.max(predicted);
            if class >= classes {
                return Err(Error::IndexOutOfRange {
                    op: "confusion",
                    index: class as i64,
                    position,
                    size: classes,
                });
            }
            counts[label * classes + predicted] += 1;
        }
        Ok(Confusion { classes, counts })
    }

    /// The matrix of counts that were summed on the device.
    pub(super) fn from_sum(classes: usize, sum: &[f64]) -> Self {
        let mut counts: Vec<u64> = sum.iter().map(|&c| c as u64).collect();
        counts.resize(classes * classes, 0);
        Confusion { classes, counts }
    }

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
#[derive(Debug, Clone, PartialEq)]
pub struct ConfusionMatrix {
    counting: Counting,
    last: Option<Confusion>,
}

impl ConfusionMatrix {
    /// Creates the metric, named `balanced_accuracy`, for `classes` classes.
    pub fn new(classes: usize) -> Self {
        ConfusionMatrix {
            counting: Counting::new(classes),
            last: None,
        }
    }

    counting::options!(counting);

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
        self.counting.measure(output)
    }

    fn value(&mut self, sum: &[f64], _: u64) -> f64 {
        let confusion = Confusion::from_sum(self.counting.classes(), sum);
        let value = confusion.balanced_accuracy();
        self.last = Some(confusion);
        value
    }
}
