//! The area under the ROC curve and the average precision, from scores gathered batch by batch.

use super::ranking::{average_precision, one_vs_rest, roc_auc};
use super::wide::wide;
use super::{Metric, Reduction};
use crate::Output;
use kiln_core::{Backend, Error, Result};
use kiln_nn::Tensor;

/// The largest distance from 1 of a sum of probabilities, rounded to half precision.
const APART: f64 = 1e-2;

/// The scores and labels of the batches.
#[derive(Debug, Clone, Default, PartialEq)]
struct Gathered {
    logits: bool,
    classes: usize,
    scores: Vec<f64>,
    labels: Vec<f64>,
    error: Option<Error>,
}

impl Gathered {
    /// Scores `[N, classes]` and the labels beside them, `[N, classes + 1]`.
    fn measure<B: Backend>(&self, op: &'static str, output: &Output<B>) -> Result<Tensor<B>> {
        let (scores, labels) = (output.floats("scores")?, output.integers("labels")?);
        let classes = match scores.shape().strip_prefix(labels.shape().dims()) {
            Some([]) => 1,
            Some(&[classes]) if classes > 0 => classes,
            _ => {
                return Err(Error::ShapeMismatch {
                    op,
                    lhs: *labels.shape(),
                    rhs: *scores.shape(),
                });
            }
        };
        let rows = labels.size();
        let scores = wide(&scores.reshape(&[rows, classes])?)?;
        let scores = match self.logits && classes > 1 {
            true => scores.softmax(-1)?,
            false => scores,
        };
        let labels = labels.to_float(scores.dtype())?.reshape(&[rows, 1])?;
        Tensor::concat(&[&scores, &labels], 1)
    }

    fn observe(&mut self, op: &'static str, term: &[f64], shape: &[usize]) {
        let &[_, width] = shape else { return };
        let classes = width - 1;
        if !self.labels.is_empty() && classes != self.classes {
            let expected = format!("{}, as in the batches before", self.classes);
            self.error
                .get_or_insert_with(|| Error::invalid(op, "classes", classes, expected));
            return;
        }
        self.classes = classes;
        for row in term.chunks_exact(width) {
            self.scores.extend_from_slice(&row[..classes]);
            self.labels.push(row[classes]);
        }
    }

    /// Computes the value, and forgets what was gathered. NaN, and an error that is kept, if it cannot be computed.
    fn value(&mut self, op: &'static str, measure: fn(&[f64], &[bool]) -> Result<f64>) -> f64 {
        let (scores, labels) = (std::mem::take(&mut self.scores), std::mem::take(&mut self.labels));
        let value = match self.error {
            None => evaluate(op, &scores, &labels, self.classes, measure),
            Some(_) => return f64::NAN,
        };
        value.unwrap_or_else(|error| {
            self.error = Some(error);
            f64::NAN
        })
    }
}

fn evaluate(
    op: &'static str,
    scores: &[f64],
    labels: &[f64],
    columns: usize,
    measure: fn(&[f64], &[bool]) -> Result<f64>,
) -> Result<f64> {
    let columns = columns.max(1);
    let classes = columns.max(2);
    let in_range = |&label: &f64| label >= 0.0 && label < classes as f64;
    if let Some(position) = labels.iter().position(|label| !in_range(label)) {
        return Err(Error::IndexOutOfRange {
            op,
            index: labels[position] as i64,
            position,
            size: classes,
        });
    }
    if columns > 1 {
        let mut sums = scores.chunks_exact(columns).map(|row| row.iter().sum::<f64>());
        if let Some(sum) = sums.find(|sum| !sum.is_nan() && (sum - 1.0).abs() > APART) {
            let expected = "probabilities, which sum to 1 in each row; `from_logits` takes logits";
            return Err(Error::invalid(
                op,
                "scores",
                format!("a row that sums to {sum}"),
                expected,
            ));
        }
    }
    if columns > 2 {
        let labels: Vec<usize> = labels.iter().map(|&label| label as usize).collect();
        return one_vs_rest(scores, &labels, columns, measure);
    }
    let positive: Vec<bool> = labels.iter().map(|&label| label == 1.0).collect();
    let scores: Vec<f64> = scores.chunks_exact(columns).map(|row| row[columns - 1]).collect();
    measure(&scores, &positive)
}

macro_rules! ranked {
    ($(#[$doc:meta])* $metric:ident, $name:literal, $measure:ident) => {
        $(#[$doc])*
        ///
        /// It reads `scores` and `labels`. Scores of the shape of the labels, or with a last axis of 1, are those of class 1 of
        /// two, in any units. Scores `[…, classes]` are probabilities: of two classes the second column counts, of more the
        /// mean of each class against all others ([`one_vs_rest`]). Batches are gathered, so the metric waits for the device.
        ///
        /// It is an error if a score is NaN, if a label is out of range, or if the probabilities of a sample do not sum to 1.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $metric(Gathered);

        impl $metric {
            #[doc = concat!("Creates the metric, named `", $name, "`.")]
            pub fn new() -> Self {
                Self::default()
            }

            /// Creates the metric for scores `[…, classes]` that are logits: it takes their softmax first.
            pub fn from_logits() -> Self {
                $metric(Gathered {
                    logits: true,
                    ..Gathered::default()
                })
            }
        }

        impl<B: Backend> Metric<B> for $metric {
            fn name(&self) -> String {
                $name.to_string()
            }

            fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
                self.0.measure($name, output)
            }

            fn reduction(&self) -> Reduction {
                Reduction::Gather
            }

            fn observe(&mut self, term: &[f64], shape: &[usize]) {
                self.0.observe($name, term, shape);
            }

            fn value(&mut self, _: &[f64], _: u64) -> f64 {
                self.0.value($name, $measure)
            }

            fn failure(&mut self) -> Option<Error> {
                self.0.error.take()
            }
        }
    };
}

ranked!(
    /// The area under the ROC curve (`sklearn.metrics.roc_auc_score`, of more than two classes with `multi_class="ovr"`).
    RocAuc,
    "roc_auc",
    roc_auc
);
ranked!(
    /// The average precision, the area under the curve of precision over recall (`sklearn.metrics.average_precision_score`).
    AveragePrecision,
    "average_precision",
    average_precision
);
