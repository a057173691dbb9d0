//! Reverse-mode differentiation.
//!
//! An op that meets a tracked input leaves a [`Node`] with a [`Rule`]: given the gradient of the op's output, the rule
//! returns the gradients of its inputs. [`Tensor::backward`](crate::Tensor::backward) visits nodes in reverse order of
//! their creation and adds the gradients that rules return, in one place (`autograd/sum.rs`); the gradient of an op that reads
//! a [`Part`] of its input is added to that part of the input's gradient. Rules are written in differentiable ops, so with
//! `create_graph` the gradients are tracked in turn and can be differentiated again; a fused op whose backward kernel
//! is not differentiable gives, in that case, the gradient of its composed definition (see [`vjp`]).

mod autocast;
mod backward;
mod function;
mod functional;
mod gradients;
mod kernel;
mod leaf_casts;
mod mode;
pub(crate) mod recompute;
mod saved_input;
mod sum;
mod vjp;

pub(crate) use crate::tensor::NormSums;
pub use crate::tensor::{Node, NodeId, NormOfInput, Part, Recompute, Rule, RuleContext, Slope};
pub(crate) use autocast::{Cast, forget_cast};
pub use autocast::{autocast, autocast_dtype};
pub use backward::grad;
pub use function::function;
pub use functional::{hessian, hvp, jacobian, jvp};
pub use gradients::Gradients;
pub use kernel::{KernelInput, kernel};
pub use mode::{is_grad_enabled, no_grad, with_grad};
pub use recompute::{checkpoint_layers, checkpoint_layers_told, checkpointable};
pub use saved_input::recompute_activations;
pub(crate) use saved_input::{RecomputedFrom, SavedInput};
pub(crate) use vjp::checkpoint_as;
pub use vjp::{checkpoint, vjp};
