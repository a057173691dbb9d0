//! One call of a public op, on any backend, with its oracle.

use crate::Array;
use crate::compare::Rounding;
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;
use std::fmt::Debug;

/// Which proofs apply to an op.
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

    /// The same in f64, written as the formula reads.
    fn oracle(&self, inputs: &[Array]) -> Array;

    /// Which proofs apply.
    fn proof(&self) -> Proof {
        Proof::SecondGradient
    }

    /// The error that rounding may leave in a result, which is `want` where nothing is rounded: one rounding of the result,
    /// unless the case says otherwise.
    fn rounding(&self, _inputs: &[Array], want: &Array) -> Rounding {
        Rounding::relative(1.0, want)
    }

    /// The size of the terms of a gradient, seeds of at most 1.5 included, where they cancel inside of a slope: 1 − y² of
    /// tanh is made of ones, however small it is. Terms that cancel between several outputs are measured.
    fn slope_terms(&self, _inputs: &[Array]) -> f64 {
        0.0
    }
}
