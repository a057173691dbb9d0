//! [`Backend`], the trait bound of all code above this crate.

use crate::Runtime;
use crate::ops::*;

/// A device with its ops. A blanket implementation covers every type that implements the op families.
///
/// A backend must implement the [primitives](crate::ops::Op::PRIMITIVES), the functions without a default body, and may
/// implement any of the [fused ops](crate::ops::Op::FUSED). `kiln-nn` asks [`Runtime::supports`] and composes missing ops
/// of primitives. `Reference` in `kiln-testkit` is a backend of primitives alone.
///
/// Ops write into a destination that the caller allocated and never allocate outputs themselves. Every op first calls the
/// function of its name in [`checks`](crate::checks) and returns its errors; the backend itself checks what only it can
/// see (index values, memory).
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
    + IntegerOps
    + RandomOps
    + RecurrentOps
    + OptimOps
    + ImageOps
    + ResidualOps
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
        + IntegerOps
        + RandomOps
        + RecurrentOps
        + OptimOps
        + ImageOps
        + ResidualOps
{
}
