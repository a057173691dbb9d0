//! Losses, with PyTorch's formulas and reductions.
//!
//! A loss of half precision is computed in f32, from its operands to the end of its reduction, and rounded once, and so
//! are its gradients: a mean divides them by the batch, and without the loss scale, which is multiplied in later, they could
//! underflow in half precision. (PyTorch's autocast runs losses in f32 for the same reason.)

mod cross_entropy;
mod ctc;
mod likelihood;
mod linear_cross_entropy;
mod margin;
mod pointwise;

pub use cross_entropy::CrossEntropyOptions;
pub use ctc::CtcLossOptions;
pub use margin::TripletOptions;

use crate::autograd::autocast_dtype;
use crate::ops::reduce::acc_dtype;
use crate::tensor::same_dtype;
use crate::{Backend, DType, Result, Tensor};

/// A tensor in the dtype that a loss is computed in.
fn widened<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    x.to_dtype(acc_dtype(x.dtype()))
}

/// A loss in the dtype of its input `x`; inside of [`autocast`](crate::autocast) in the f32 that it was computed in.
fn narrowed<B: Backend>(loss: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    match autocast_dtype() {
        Some(_) => Ok(loss.clone()),
        None => loss.to_dtype(x.dtype()),
    }
}

/// Refuses operands of different dtypes, except inside of [`autocast`](crate::autocast), where they are widened.
fn agree<B: Backend>(op: &'static str, x: &Tensor<B>, other: &Tensor<B>) -> Result<()> {
    let narrow = |t: &Tensor<B>| t.dtype() != DType::F64;
    match autocast_dtype() {
        Some(_) if narrow(x) && narrow(other) => Ok(()),
        _ => same_dtype(op, x, other),
    }
}

/// The reduction of the losses of single elements or rows (`reduction` of PyTorch's losses).
///
/// ```
/// # use kiln_nn::{DType, Reduction, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let (x, t) = (Tensor::zeros(&cpu, &[2], DType::F32)?, Tensor::from_slice(&cpu, &[1f32, 3.0], &[2])?);
/// assert_eq!(x.mse_loss(&t, Reduction::None)?.to_vec::<f32>()?, [1.0, 9.0]);
/// assert_eq!(x.mse_loss(&t, Reduction::Mean)?.item()?, 5.0);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their mean, a scalar `[]`; of a weighted loss, the weighted mean.
    #[default]
    Mean,
    /// Their sum, a scalar `[]`.
    Sum,
    /// No reduction: one loss for each element or row.
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

    /// As [`Reduction::apply`], but the mean is `Σ losses / Σ weights`.
    fn weighted<B: Backend>(self, losses: &Tensor<B>, weights: &Tensor<B>) -> Result<Tensor<B>> {
        match self {
            Reduction::Mean => losses.sum(&[], false)?.div(&weights.sum(&[], false)?),
            other => other.apply(losses),
        }
    }
}
