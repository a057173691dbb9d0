//! Errors for results that are NaN or infinite, which name the first layer with such values.

use crate::error::Error;
use kiln_core::{Backend, Result};
use kiln_files::shown;
use kiln_nn::trace::first_non_finite;
use kiln_nn::{Tensor, no_grad};

/// The error for a model with finite weights whose logits or loss for an input are NaN or infinite.
pub(crate) fn overflow<B: Backend>(forward: impl FnOnce() -> Result<Tensor<B>>, what: &str) -> Result<Error> {
    let (output, first) = first_non_finite(|| no_grad(forward));
    output?;
    let found = match first {
        Some(layer) => format!(
            "the output of `{}` ({}) is the first that is not",
            shown(&layer.path),
            layer.kind
        ),
        None => "so is the output of every layer, but what is computed from it is not".to_string(),
    };
    Ok(Error::failure(format!("{what}: the weights are finite, {found}"))
        .help("such weights come from training that diverged; train again with a lower --lr or with --clip-norm 1"))
}
