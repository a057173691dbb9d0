//! Tensors with gradients, layers, losses and optimizers, generic over a backend.
//!
//! Everything here says `B: Backend` and nothing more; no backend is named.

// The derive macro names this crate by its outside name, here too.
#[allow(unused_extern_crates)]
extern crate self as kiln_nn;

pub mod autograd;
mod indices;
pub mod init;
pub mod layers;
pub mod module;
pub mod ops;
pub mod optim;
mod tensor;
pub mod trace;
pub mod weights;

pub use autograd::{Gradients, grad, is_grad_enabled, no_grad};
pub use indices::Indices;
pub use init::{Init, Initializer, Scheme};
pub use layers::{Layer, Sequential};
pub use module::{Counter, Entry, EntryMut, Mode, Module, Param, State, Walk, WalkMut};
pub use ops::loss::{CrossEntropyOptions, Reduction};
pub use optim::Optimizer;
pub use tensor::Tensor;
pub use weights::{Layout, LoadOptions, LoadReport, WeightsError};

pub use kiln_core::{Backend, DType, Error, Result, Shape};
/// Implements [`Module`] for a struct whose fields are modules.
pub use kiln_derive::Module;
