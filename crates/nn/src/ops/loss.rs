//! Losses, with PyTorch's formulas and reductions.

mod cross_entropy;
mod pointwise;

pub use cross_entropy::CrossEntropyOptions;

use crate::{Backend, Result, Tensor};

/// What becomes of the losses of single elements or rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their mean (a weighted loss: the weighted mean).
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// They stay as they are.
    None,
}

impl Reduction {
    fn apply<B: Backend>(self, losses: &Tensor<B>) -> Result<Tensor<B>> {
        match self {
            Reduction::Mean => losses.mean(&[], false),
            Reduction::Sum => losses.sum(&[], false),
            Reduction::None => Ok(losses.clone()),
        }
    }

    /// As [`Reduction::apply`], the mean being `Σ losses / Σ weights`.
    fn weighted<B: Backend>(self, losses: &Tensor<B>, weights: &Tensor<B>) -> Result<Tensor<B>> {
        match self {
            Reduction::Mean => losses.sum(&[], false)?.div(&weights.sum(&[], false)?),
            other => other.apply(losses),
        }
    }
}
