//! Metrics: computed on the device batch by batch, read once.

mod accuracy;
mod confusion;
mod sum;

pub use accuracy::{Accuracy, TopK};
pub use confusion::{Confusion, ConfusionMatrix};

use crate::Batch;
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;

/// Something measured over an epoch.
///
/// [`update`](Metric::update) must not read from the device: it runs once per batch, and reading waits.
pub trait Metric<B: Backend> {
    /// The name in the history: `accuracy`.
    fn name(&self) -> String;

    /// Forgets the batches so far. Every pass over data begins with it, because the one before may have ended with an
    /// error, short of [`finish`](Metric::finish).
    fn reset(&mut self);

    /// Takes a batch with the model's scores `[N, classes]`, untracked.
    ///
    /// # Errors
    /// Scores of another shape.
    fn update(&mut self, scores: &Tensor<B>, batch: &Batch<B>) -> Result<()>;

    /// The value over all batches since the last call or [`reset`](Metric::reset), then starts anew. NaN without batches.
    ///
    /// # Errors
    /// The device.
    fn finish(&mut self) -> Result<f64>;
}
