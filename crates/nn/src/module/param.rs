//! Parameters: the tensors that training changes.

use crate::{Backend, DType, Result, Tensor};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// The order of a parameter's dimensions compared with PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ParamLayout {
    /// As in PyTorch.
    #[default]
    Same,
    /// A convolution's kernel: `[O, k…, I]` here, `[O, I, k…]` in PyTorch (for transposed ones `O` and `I` swap).
    Kernel,
}

/// The identity of a parameter, independent of its name. It stays the same when the parameter moves, takes other values
/// or another dtype, or is frozen and unfrozen. It is not saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(u64);

impl ParamId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        ParamId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A tensor that an optimizer may change: a leaf of every graph that it is part of (`torch.nn.Parameter`). It
/// dereferences to its [`Tensor`].
pub struct Param<B: Backend> {
    id: ParamId,
    tensor: Tensor<B>,
    trainable: bool,
    layout: ParamLayout,
}

impl<B: Backend> Param<B> {
    /// A trainable parameter that starts with the values of `tensor`.
    pub fn new(tensor: Tensor<B>) -> Self {
        Param {
            id: ParamId::next(),
            tensor: tensor.requires_grad(),
            trainable: true,
            layout: ParamLayout::Same,
        }
    }

    /// A trainable convolution kernel ([`ParamLayout::Kernel`]) that starts with the values of `tensor`.
    pub fn kernel(tensor: Tensor<B>) -> Self {
        Param {
            layout: ParamLayout::Kernel,
            ..Param::new(tensor)
        }
    }

    /// The identity of this parameter. ([`Tensor::id`] is the id of its node in the graph, which can change.)
    pub fn identity(&self) -> ParamId {
        self.id
    }

    /// The tensor; tracked while the parameter trains.
    pub fn tensor(&self) -> &Tensor<B> {
        &self.tensor
    }

    /// The order of the dimensions compared with PyTorch's.
    pub fn layout(&self) -> ParamLayout {
        self.layout
    }

    /// True if gradients are computed for this parameter and optimizers change it.
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// Freezes or unfreezes the parameter. Graphs recorded before keep what they recorded.
    pub fn set_trainable(&mut self, trainable: bool) {
        if trainable != self.trainable {
            self.trainable = trainable;
            self.tensor = if trainable {
                self.tensor.requires_grad()
            } else {
                self.tensor.detach()
            };
        }
    }

    /// Overwrites the values in place.
    ///
    /// # Errors
    /// A tensor of another shape or dtype.
    pub fn assign(&mut self, values: &Tensor<B>) -> Result<()> {
        self.tensor.assign(values)
    }

    /// Converts to another float dtype. The parameter becomes a new leaf.
    ///
    /// # Errors
    /// A dtype that the backend does not compute in.
    pub fn to_dtype(&mut self, dtype: DType) -> Result<()> {
        if dtype != self.dtype() {
            let values = self.tensor.detach().to_dtype(dtype)?;
            self.tensor = if self.trainable { values.requires_grad() } else { values };
        }
        Ok(())
    }

    /// The memory, for an optimizer's update.
    pub(crate) fn buffer_mut(&mut self) -> Result<&mut B::Buffer> {
        self.tensor.buffer_mut()
    }
}

impl<B: Backend> Deref for Param<B> {
    type Target = Tensor<B>;
    fn deref(&self) -> &Tensor<B> {
        &self.tensor
    }
}

impl<B: Backend> AsRef<Tensor<B>> for Param<B> {
    fn as_ref(&self) -> &Tensor<B> {
        &self.tensor
    }
}

impl<B: Backend> fmt::Debug for Param<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Param({}, {})", self.tensor.shape(), self.tensor.dtype())
    }
}
