//! Counts pairs of label and prediction on the device.

use crate::Output;
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Indices, Tensor};

/// The way in which predictions are made from scores, and the labels that count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Counting {
    classes: usize,
    threshold: Option<f64>,
    ignored: Option<i32>,
}

impl Counting {
    pub(super) fn new(classes: usize) -> Self {
        Counting {
            classes,
            threshold: None,
            ignored: None,
        }
    }

    pub(super) fn with_threshold(self, threshold: f64) -> Self {
        Counting {
            threshold: Some(threshold),
            ..self
        }
    }

    pub(super) fn without(self, label: i32) -> Self {
        Counting {
            ignored: Some(label),
            ..self
        }
    }

    pub(super) fn classes(&self) -> usize {
        self.classes
    }

    /// The confusion matrix of a batch, `[classes, classes]` with a row per label: one-hot labels times one-hot predictions.
    pub(super) fn measure<B: Backend>(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let labels = output.integers("labels")?;
        let predicted = self.predicted(output.floats("scores")?, labels)?;
        let flat = |classes: &Indices<B>| classes.reshape(&[classes.size()]);
        let (labels, predicted) = (flat(labels)?, flat(&predicted)?);
        let predicted = predicted.one_hot(self.classes, DType::F32)?;
        let labels = match self.ignored {
            None => labels.one_hot(self.classes, DType::F32)?,
            Some(ignored) => {
                let counts = labels.ne(ignored)?.to_float(DType::F32)?;
                let labels = labels.masked_fill(&labels.eq(ignored)?, 0)?;
                let counts = counts.reshape(&[labels.size(), 1])?;
                labels.one_hot(self.classes, DType::F32)?.mul(&counts)?
            }
        };
        labels.matmul_t(&predicted, true, false)
    }

    fn predicted<B: Backend>(&self, scores: &Tensor<B>, labels: &Indices<B>) -> Result<Indices<B>> {
        let Some(threshold) = self.threshold else {
            let predicted = scores.argmax(-1, false)?;
            return match predicted.shape() == labels.shape() {
                true => Ok(predicted),
                false => Err(Error::ShapeMismatch {
                    op: "confusion",
                    lhs: *labels.shape(),
                    rhs: *predicted.shape(),
                }),
            };
        };
        if self.classes != 2 {
            return Err(Error::invalid(
                "confusion",
                "classes",
                self.classes,
                "2 with a threshold",
            ));
        }
        let shape = scores.shape().dims();
        if shape != labels.shape().dims() && shape != [labels.shape().dims(), &[1]].concat() {
            return Err(Error::ShapeMismatch {
                op: "confusion",
                lhs: *labels.shape(),
                rhs: *scores.shape(),
            });
        }
        scores.gt_scalar(threshold)?.to_i32()
    }
}

/// The options of a metric that counts, as methods.
macro_rules! options {
    ($($counting:tt)+) => {
        /// Reads one score for each sample, of the shape of the labels or with a last axis of 1, and predicts class 1 where it is
        /// above `threshold`: 0 for logits, 0.5 for probabilities. There must be two classes.
        pub fn threshold(mut self, threshold: f64) -> Self {
            self.$($counting)+ = self.$($counting)+.with_threshold(threshold);
            self
        }

        /// Leaves out the samples of this label, such as −100 for the padding of token labels.
        pub fn ignore_index(mut self, label: i32) -> Self {
            self.$($counting)+ = self.$($counting)+.without(label);
            self
        }
    };
}

pub(super) use options;
