//! Parts of a tensor, for ops that read less than all of it.

use crate::Tensor;
use kiln_core::{Backend, Result, Shape};
use std::ops::Range;

/// The part of a tensor that an op reads: the gradient of the op belongs there, and the gradient of the rest is zero.
///
/// A rule that names a part ([`Rule::part`]) returns a gradient of the part's shape. The backward pass adds it to the one
/// gradient of the whole tensor, so the cost of `n` parts is proportional to their elements, not to `n` times those of
/// the whole.
pub trait Part<B: Backend>: Send + Sync + 'static {
    /// The shape of the whole tensor.
    fn whole(&self) -> Shape;

    /// An axis and a range of its entries that contains the part. `None` if the part may name an element more than
    /// once, as an index tensor may.
    fn within(&self) -> Option<(usize, Range<usize>)>;

    /// Adds `grad` to the part of `whole`, in place. `zero` is true if nothing was added to the part before; a part with
    /// a range ([`within`](Part::within)) must then be overwritten, because a part as large as the whole is given
    /// uninitialised memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), an error of the device.
    fn add(&self, grad: &Tensor<B>, whole: &mut B::Buffer, zero: bool) -> Result<()>;

    /// Reads this part of a tensor of the whole's shape, by a differentiable op.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), an error of the device.
    fn of(&self, whole: &Tensor<B>) -> Result<Tensor<B>>;
}
