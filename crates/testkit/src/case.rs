//! One call of a public op, on any backend, with its oracle.

use crate::{Array, Tolerance};
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

    /// How far f32 may be from the oracle.
    fn tolerance(&self) -> Tolerance {
        Tolerance::F32
    }

    /// How often a result in half precision is rounded on its way: 1 for an op that computes in f32 and stores once,
    /// more for one that is composed of several. 0 leaves half precision out.
    fn roundings(&self) -> f64 {
        1.0
    }

    /// Where there is more than one rounding: the size of intermediate results, which may be larger than what is left
    /// of them.
    fn magnitude(&self) -> f64 {
        1.0
    }

    /// Floating-point operations and bytes moved by one call, for benches; zero where nobody asks.
    fn cost(&self) -> (u64, u64) {
        (0, 0)
    }
}
