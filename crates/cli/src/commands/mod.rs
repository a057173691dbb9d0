//! One file per command.

pub(crate) mod average;
pub(crate) mod devices;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod find_lr;
pub(crate) mod generate;
pub(crate) mod models;
pub(crate) mod predict;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod summary;
pub(crate) mod sweep;
pub(crate) mod train;
pub(crate) mod verify_resume;

use kiln_core::{Backend, Result};
use kiln_data::LabelledOn;
use kiln_models::Net;
use kiln_train::Output;

/// The loss of a batch, for images with the logits, which accuracies are computed from.
fn objective<B: Backend>(net: &Net<B>, batch: &LabelledOn<B>) -> Result<Output<B>> {
    let (loss, logits) = net.loss(&batch.inputs, &batch.labels)?;
    let output = Output::new(loss);
    Ok(match net {
        Net::Images(_) => output.with_scores(logits, &batch.labels),
        Net::Tokens(_) => output,
    })
}
