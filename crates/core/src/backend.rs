//! The one bound of everything above this crate.

use crate::Runtime;
use crate::ops::*;

/// A device with every op family. Implemented for whatever implements the families; nothing implements it by hand.
///
/// Ops write into a destination that the caller allocated and never allocate outputs themselves. Arguments were
/// checked when their parameter struct was built: a backend checks only what it alone can see (index values, memory).
pub trait Backend:
    Runtime
    + ElementwiseOps
    + ReduceOps
    + MatmulOps
    + ConvOps
    + PoolOps
    + ConvPoolOps
    + NormOps
    + SoftmaxOps
    + AttentionOps
    + LossOps
    + IndexOps
    + RandomOps
    + OptimOps
{
}

impl<T> Backend for T where
    T: Runtime
        + ElementwiseOps
        + ReduceOps
        + MatmulOps
        + ConvOps
        + PoolOps
        + ConvPoolOps
        + NormOps
        + SoftmaxOps
        + AttentionOps
        + LossOps
        + IndexOps
        + RandomOps
        + OptimOps
{
}
