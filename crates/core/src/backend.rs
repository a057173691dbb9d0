//! The one bound of everything above this crate.

use crate::Runtime;
use crate::ops::*;

/// A device with its ops. Implemented for whatever implements the op families; nothing implements it by hand.
///
/// A backend has to have the [primitives](crate::ops::Op::PRIMITIVES), which are the functions without a default body, and may
/// have any of the [fused ops](crate::ops::Op::FUSED): `kiln-nn` asks [`Runtime::supports`], and composes what is not there.
/// `Reference` in `kiln-testkit` is a backend of primitives alone.
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
