//! Metrics, computed on the device batch by batch, and summed there or gathered on the host.

mod accuracy;
mod answers;
mod bits;
mod confusion;
mod counting;
mod detection;
mod edits;
mod eigen;
mod entities;
mod error_rate;
mod f_score;
mod fid;
mod frechet;
mod perplexity;
mod ranking;
mod regression;
mod roc;
mod running;
mod wide;

pub use accuracy::{Accuracy, TopK};
pub use answers::squad_scores;
pub use bits::BitsPerCharacter;
pub use confusion::{Confusion, ConfusionMatrix};
pub use detection::{Detection, DetectionEval, DetectionSummary, GroundTruth, MeanAveragePrecision};
pub use edits::{Edits, character_edits, edit_distance, edits, word_edits};
pub use entities::{Entity, EntityF1, entities};
pub use error_rate::ErrorRate;
pub use f_score::{ClassAverage, ClassScores, F1, FBeta, Precision, Recall};
pub use fid::FrechetDistance;
pub use frechet::{FeatureStatistics, frechet_distance};
pub use perplexity::{Perplexity, perplexity};
pub use ranking::{average_precision, one_vs_rest, roc_auc};
pub use regression::{Mae, Mse, R2, Rmse, mean_absolute_error, mean_squared_error, r2_score};
pub use roc::{AveragePrecision, RocAuc};
pub use running::Running;

pub(crate) use running::Mark;

use crate::Output;
use kiln_core::{Backend, Error, Result};
use kiln_nn::{State, Tensor};

/// The way in which the terms of batches become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The terms are added on the device, and the sum is read once.
    Sum,
    /// The term of each batch is read and given to [`Metric::observe`]. That waits for the device, so such a metric is measured
    /// in validation only, unless [`Metric::in_training`] says otherwise.
    Gather,
}

/// A metric over an epoch, computed from what the steps hand out ([`Output::values`]).
pub trait Metric<B: Backend> {
    /// The name in the history, such as `accuracy`.
    fn name(&self) -> String;

    /// The names of the values that it is computed from. Steps that do not hand out all of them are not measured.
    fn reads(&self) -> &[&'static str] {
        &["scores", "labels"]
    }

    /// Computes the term of a batch, without a graph: a tensor of f32 or f64 that, for [`Reduction::Sum`], has the same shape for
    /// every batch. It is called in steps that may be recorded and replayed, so it must not read from the device.
    ///
    /// # Errors
    /// An error for values of another shape.
    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>>;

    /// Adds the term of a batch to `sum`, for [`Reduction::Sum`]; what [`Metric::measure`] computes, for a metric that can add it in fewer
    /// launches. It is called in place of it from the second batch on.
    ///
    /// # Errors
    /// As [`Metric::measure`].
    fn add_to(&self, output: &Output<B>, sum: &State<B>) -> Result<()> {
        sum.add(&self.measure(output)?)
    }

    /// The way in which the terms of batches become one value.
    fn reduction(&self) -> Reduction {
        Reduction::Sum
    }

    /// True to measure the metric in training too.
    fn in_training(&self) -> bool {
        self.reduction() == Reduction::Sum
    }

    /// Adds the term of a batch, row-major, for [`Reduction::Gather`].
    fn observe(&mut self, term: &[f64], shape: &[usize]) {
        let _ = (term, shape);
    }

    /// Computes the value from the sum over all batches, row-major, and the number of their samples; a metric that gathers
    /// computes it from what it has observed, and forgets that. Without batches the value is NaN.
    fn value(&mut self, sum: &[f64], samples: u64) -> f64;

    /// The error for which [`value`](Metric::value) has returned NaN, such as a score that is NaN or a label out of range. It is
    /// returned once; the pass that asks fails with it.
    fn failure(&mut self) -> Option<Error> {
        None
    }

    /// Further values that [`value`](Metric::value) has computed along with the one that it returns, by name; NaN before.
    fn details(&self) -> Vec<(String, f64)> {
        Vec::new()
    }
}

/// Forwards every method to the metric in the box.
impl<B: Backend, M: Metric<B> + ?Sized> Metric<B> for Box<M> {
    fn name(&self) -> String {
        (**self).name()
    }
    fn reads(&self) -> &[&'static str] {
        (**self).reads()
    }
    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        (**self).measure(output)
    }
    fn add_to(&self, output: &Output<B>, sum: &State<B>) -> Result<()> {
        (**self).add_to(output, sum)
    }
    fn reduction(&self) -> Reduction {
        (**self).reduction()
    }
    fn in_training(&self) -> bool {
        (**self).in_training()
    }
    fn observe(&mut self, term: &[f64], shape: &[usize]) {
        (**self).observe(term, shape);
    }
    fn value(&mut self, sum: &[f64], samples: u64) -> f64 {
        (**self).value(sum, samples)
    }
    fn failure(&mut self) -> Option<Error> {
        (**self).failure()
    }
    fn details(&self) -> Vec<(String, f64)> {
        (**self).details()
    }
}
