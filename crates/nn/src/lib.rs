//! Tensors with gradients, layers, losses and optimizers, generic over a backend.
//!
//! Everything here says `B: Backend` and nothing more; no backend is named.

// Layers, optimizers and files extend this list; ops are methods of `Tensor` and `Indices`.
pub mod autograd;
mod indices;
pub mod ops;
mod tensor;

pub use autograd::{Gradients, grad, is_grad_enabled, no_grad};
pub use indices::Indices;
pub use tensor::Tensor;

pub use kiln_core::{Backend, DType, Error, Result, Shape};
