//! Metrics: computed on the device batch by batch, summed there, read once.

mod accuracy;
mod confusion;
mod running;

pub use accuracy::{Accuracy, TopK};
pub use confusion::{Confusion, ConfusionMatrix};
pub use running::Running;

use crate::Batch;
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;

/// Something measured over an epoch: a function of sums over its batches.
pub trait Metric<B: Backend> {
    /// The name in the history: `accuracy`.
    fn name(&self) -> String;

    /// The term that a batch adds to the sum, from the model's scores `[N, classes]`, untracked: a tensor of f32 of the same
    /// shape for every batch. It is called by steps that may be recorded and replayed, so it must not read from the
    /// device.
    ///
    /// # Errors
    /// Scores of another shape.
    fn measure(&self, scores: &Tensor<B>, batch: &Batch<B>) -> Result<Tensor<B>>;

    /// The value, given the sum of what all batches added, row-major, and their samples. NaN without batches, where the
    /// sum is empty.
    fn value(&mut self, sum: &[f64], samples: u64) -> f64;
}
