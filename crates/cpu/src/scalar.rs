//! The accumulation types of the dense ops, which have the kernels of every algorithm.

use crate::conv::depthwise::Depthwise;
use crate::fused_pool::FusedPool;
use crate::winograd::Winograd;
use kiln_core::Float;

/// f32 and f64, the accumulation types.
pub(crate) trait Scalar: Winograd + FusedPool + Depthwise {}
impl<A: Winograd + FusedPool + Depthwise> Scalar for A {}

/// A float type whose accumulation type is a [`Scalar`]: f32, f64, bf16 and f16.
pub(crate) trait Stored: Float<Acc: Scalar> {}
impl<T: Float<Acc: Scalar>> Stored for T {}
