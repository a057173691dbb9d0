//! One file per command.

pub(crate) mod devices;
pub(crate) mod eval;
pub(crate) mod predict;
pub(crate) mod profile;
pub(crate) mod summary;
pub(crate) mod train;

use kiln_core::{Backend, Result};
use kiln_nn::Layer;
use kiln_train::{Batch, Output};

/// The loss of a classifier: cross-entropy of its logits.
fn classify<B: Backend, M: Layer<B>>(model: &M, batch: &Batch<B>) -> Result<Output<B>> {
    let logits = model.forward(&batch.inputs)?;
    Ok(Output::new(logits.cross_entropy(&batch.labels)?).with_scores(logits))
}
