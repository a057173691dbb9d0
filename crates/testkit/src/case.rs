//! One call of a public op, on any backend, with its oracle.

use crate::Array;
use crate::compare::Rounding;
use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;
use std::fmt::Debug;

/// The proofs that apply to an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Values only: an op without a gradient.
    Forward,
    /// Values and first gradients.
    Gradient,
    /// Values, gradients, and gradients of gradients.
    SecondGradient,
}

/// One call of an op. Integer arguments are part of the case; its differentiable arguments are `inputs`.
pub trait Case: Debug {
    /// The differentiable inputs.
    fn inputs(&self) -> Vec<Array>;

    /// The call through the public interface.
    ///
    /// # Errors
    /// What the op returns; a valid case has none.
    fn call<B: Backend>(&self, backend: &B, inputs: &[Tensor<B>]) -> Result<Tensor<B>>;

    /// The same result in f64, computed as the formula is written.
    fn oracle(&self, inputs: &[Array]) -> Array;

    /// The proofs that apply.
    fn proof(&self) -> Proof {
        Proof::SecondGradient
    }

    /// True if gradients in this half dtype are proved too. They are not where rounding takes a result across a jump of a derivative.
    fn proves_half(&self, _dtype: DType) -> bool {
        true
    }

    /// The rounding error that a result may have, where `want` is the exact result: by default one rounding of the result.
    fn rounding(&self, _inputs: &[Array], want: &Array) -> Rounding {
        Rounding::relative(1.0, want)
    }

    /// The magnitude of the terms of a gradient, seeds of at most 1.5 included, if they cancel within one derivative: the
    /// terms of tanh's 1 − y² are about 1, however small the difference is. Terms that cancel between several outputs are
    /// measured.
    fn slope_terms(&self, _inputs: &[Array]) -> f64 {
        0.0
    }
}
