//! The types that sums are kept in, as the dense ops need them: with the kernels of every algorithm.

use crate::fused_pool::FusedPool;
use crate::winograd::Winograd;
use kiln_core::Float;

/// f32 or f64: a type that sums are kept in.
pub(crate) trait Scalar: Winograd + FusedPool {}
impl<A: Winograd + FusedPool> Scalar for A {}

/// A stored float whose accumulator is a [`Scalar`]: every float there is.
pub(crate) trait Stored: Float<Acc: Scalar> {}
impl<T: Float<Acc: Scalar>> Stored for T {}
