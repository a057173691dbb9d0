//! Metrics, computed and summed on the device batch by batch and read once.

mod accuracy;
mod confusion;
mod running;

pub use accuracy::{Accuracy, TopK};
pub use confusion::{Confusion, ConfusionMatrix};
pub use running::Running;

use crate::Batch;
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;

/// A metric over an epoch: a function of a sum over its batches.
pub trait Metric<B: Backend> {
    /// The name in the history, such as `accuracy`.
    fn name(&self) -> String;

    /// Computes the term that a batch adds to the sum, from the model's scores `[N, classes]`, without a graph: a tensor of
    /// f32 that has the same shape for every batch. It is called in steps that may be recorded and replayed, so it must not
    /// read from the device.
    ///
    /// # Errors
    /// An error for scores of another shape.
    fn measure(&self, scores: &Tensor<B>, batch: &Batch<B>) -> Result<Tensor<B>>;

    /// Computes the value from the sum over all batches, row-major, and the number of their samples. Without batches the sum
    /// is empty and the value is NaN.
    fn value(&mut self, sum: &[f64], samples: u64) -> f64;
}
