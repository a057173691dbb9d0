//! Inputs of ops that are saved for the gradient, or computed again in the backward pass.

use crate::tensor::{Node, Reader, Saved};
use crate::{Backend, DType, Result, Shape, Tensor};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// True where norms and activations are computed again.
    static ON: Cell<bool> = const { Cell::new(false) };
}

/// Puts the switch back when dropped, also when a panic passes through.
struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        ON.set(self.0);
    }
}

/// Runs `f` so that products and convolutions do not keep an input that is the result of a norm or of an activation: the backward pass
/// computes it again from what the norm or the activation has saved, by one op, or on the way where the gradient of a linear layer does so.
/// Results have the same bits. See selective activation
/// recomputation in Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022.
///
/// It takes activations whose gradient reads their input, such as [`Tensor::gelu`] (where only a [linear layer](Tensor::linear) reads the
/// result, that is computed again without this function too, by the layer's gradient itself), layer norms of residual streams
/// ([`Tensor::residual_norm`]), and batch norms of the layer [`BatchNorm`](crate::layers::BatchNorm) in training, with the residual and
/// the ReLU behind them: of a residual network the results of convolutions are kept, and its blocks are computed again in a chain. What the
/// first convolution casts of a batch in mixed precision is cast again, so that the batch has to live on.
///
/// ```
/// use kiln_nn::autograd::recompute_activations;
/// # use kiln_nn::{Activation, DType, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::full(&cpu, &[2, 3], DType::F32, 0.5)?.requires_grad();
/// let w = Tensor::full(&cpu, &[4, 3], DType::F32, 0.1)?.requires_grad();
/// let loss = || x.gelu()?.linear(&w, None, Activation::None)?.sum(&[], false);
/// let (kept, again) = (loss()?.backward()?, recompute_activations(loss)?.backward()?);
/// assert_eq!(kept.get(&w).unwrap().to_vec::<f32>()?, again.get(&w).unwrap().to_vec::<f32>()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Those of `f`.
pub fn recompute_activations<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    let _restore = Restore(ON.replace(true));
    f()
}

/// True inside of [`recompute_activations`].
pub(crate) fn recomputes() -> bool {
    ON.get()
}

/// An input that a rule reads.
pub(crate) enum SavedInput<B: Backend> {
    Kept(Tensor<B>),
    /// The cast of a tensor to this dtype, where the tensor has no gradient and lives on, as a batch does.
    Cast(Tensor<B>, DType),
    /// The result of a node that can compute it again, under this shape, and the node of the input itself.
    Again {
        of: Reader<B>,
        shape: Shape,
        node: Arc<Node<B>>,
    },
}

impl<B: Backend> SavedInput<B> {
    /// `x` for the rule of an op that reads it.
    pub(crate) fn new(x: &Tensor<B>) -> Self {
        let node = x.node().filter(|_| recomputes());
        match node.and_then(|node| Some((node, node.recomputed_by()?))) {
            Some((node, of)) => SavedInput::Again {
                of: Reader::new(of),
                shape: *x.shape(),
                node: node.clone(),
            },
            None => SavedInput::Kept(x.clone()),
        }
    }

    /// `x`, which is `uncast` or its cast.
    pub(crate) fn of_cast(x: &Tensor<B>, uncast: &Tensor<B>) -> Self {
        match recomputes() && x.dtype() != uncast.dtype() && !uncast.is_tracked() {
            true => SavedInput::Cast(uncast.clone(), x.dtype()),
            false => SavedInput::new(x),
        }
    }

    /// As [`new`](Self::new), for a rule that makes `x` again where it multiplies by the slope of the activation that made `x`, if
    /// `remakes` is true: then such an `x` is not kept, unless another op reads it as well.
    pub(crate) fn remade(x: &Tensor<B>, remakes: impl FnOnce() -> bool) -> Self {
        let made = |node: &&Arc<Node<B>>| {
            let activation = || node.activation().is_some_and(|slope| slope.input.is_some());
            !recomputes() && !node.is_read() && activation() && remakes()
        };
        match x.node().filter(made) {
            Some(node) => SavedInput::Again {
                of: Reader::only(node.clone()),
                shape: *x.shape(),
                node: node.clone(),
            },
            None => Self::new(x),
        }
    }

    /// The values from which the input can be computed again; `None` if it was kept, or if that was done.
    pub(crate) fn absent(&self) -> Option<Arc<Saved<B>>> {
        match self {
            SavedInput::Kept(_) | SavedInput::Cast(..) => None,
            SavedInput::Again { of, .. } => of.absent(),
        }
    }

    /// Gives the input that a rule has made again to others that will read it.
    pub(crate) fn made(&self, x: Tensor<B>) {
        if let SavedInput::Again { of, .. } = self {
            of.made(x);
        }
    }

    pub(crate) fn shape(&self) -> &Shape {
        match self {
            SavedInput::Kept(x) | SavedInput::Cast(x, _) => x.shape(),
            SavedInput::Again { shape, .. } => shape,
        }
    }

    /// The input, computed again if it was not kept.
    pub(crate) fn tensor(&self) -> Result<Tensor<B>> {
        match self {
            SavedInput::Kept(x) => Ok(x.clone()),
            SavedInput::Cast(x, dtype) => x.to_dtype(*dtype),
            SavedInput::Again { of, shape, node } => Ok(of.read()?.with(*shape, Some(node.clone()))),
        }
    }
}

/// An input that a rule reads only to compute its output again.
pub(crate) enum RecomputedFrom<B: Backend> {
    Kept(Tensor<B>),
    /// The node that can compute it again, up to its shape.
    Again(Arc<Node<B>>),
}

impl<B: Backend> RecomputedFrom<B> {
    /// `x` for the rule of an op that may compute its output again; `None` if it will not.
    pub(crate) fn new(x: &Tensor<B>) -> Option<Self> {
        let of = || x.node().and_then(|node| node.recomputed_by());
        recomputes().then(|| of().map_or_else(|| Self::Kept(x.clone()), Self::Again))
    }

    /// The node, if the input is computed again.
    pub(crate) fn node(&self) -> Option<&Arc<Node<B>>> {
        match self {
            Self::Kept(_) => None,
            Self::Again(node) => Some(node),
        }
    }

    /// The input, computed again if it was not kept; untracked.
    pub(crate) fn read(&self) -> Result<Tensor<B>> {
        match self {
            Self::Kept(x) => Ok(x.detach()),
            Self::Again(node) => node.computed_again(),
        }
    }

    /// The input: the one that was kept, or what the node has computed.
    pub(crate) fn tensor<'a>(&'a self, again: Option<&'a Tensor<B>>) -> Option<&'a Tensor<B>> {
        match self {
            Self::Kept(x) => Some(x),
            Self::Again(_) => again,
        }
    }
}
