//! Tensors with gradients, layers, losses and optimizers, generic over a backend.
//!
//! Generic items have the one bound `B: Backend`; no backend is named.
//!
//! ```
//! use kiln_cpu::Cpu;
//! use kiln_nn::layers::{Conv2d, Dropout, Flatten, Linear, MaxPool2d, Relu};
//! use kiln_nn::optim::{Adam, Optimizer, Schedule};
//! use kiln_nn::{Backend, DType, Indices, Init, Layer, Module, Result, Rng, Sequential, Tensor};
//!
//! #[derive(Module)]
//! struct Net<B: Backend> {
//!     features: Sequential<B>,
//!     head: Linear<B>,
//! }
//!
//! impl<B: Backend> Layer<B> for Net<B> {
//!     fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
//!         let x = self.features.forward(x)?;
//!         self.head.forward(&x)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let cpu = Cpu::new();
//! let init = &mut Init::new(&cpu, 42);
//! let features = Sequential::new()
//!     .push(Conv2d::builder(1, 8, 3).same().build(init)?)
//!     .push(Relu)
//!     .push(MaxPool2d::new(2))
//!     .push(Flatten::default())
//!     .push(Dropout::new(init, 0.1)?);
//! let mut model = Net { features, head: Linear::new(init, 8 * 4 * 4, 10)? };
//!
//! let images = Tensor::rand(&cpu, &[16, 8, 8, 1], DType::F32, &mut Rng::new(42))?;
//! let labels = Indices::from_slice(&cpu, &[7i32; 16], &[16])?;
//! let mut adam = Adam::new(1e-2);
//! let schedule = Schedule::one_cycle(1e-2, 20);
//! for step in 0..20 {
//!     schedule.apply(step, &mut adam)?;
//!     let loss = model.forward(&images)?.cross_entropy(&labels)?;
//!     let mut grads = loss.backward()?;
//!     grads.clip_norm(model.parameters(), 1.0)?;
//!     adam.step(&mut model, &grads)?;
//! }
//! model.eval();
//! assert!(model.forward(&images)?.cross_entropy(&labels)?.item()? < 0.1);
//! # Ok(())
//! # }
//! ```

// The derive macro writes paths that begin with `kiln_nn`, inside of this crate too.
extern crate self as kiln_nn;
// `#[compiled_once]` without a `use` in every file.
#[macro_use]
extern crate kiln_derive;

mod array;
pub mod autograd;
pub mod detection;
mod indices;
pub mod init;
mod instances;
pub mod layers;
pub mod lora;
mod memory;
pub mod module;
pub mod ops;
pub mod optim;
mod predict;
pub mod prelude;
mod rng;
mod snapshot;
mod tensor;
pub mod trace;
pub mod watch;
pub mod weights;

pub use autograd::{Gradients, autocast, autocast_dtype, grad, is_grad_enabled, no_grad};
pub use indices::Indices;
pub use init::{Init, Initializer, Scheme};
pub use instances::instances;
pub use layers::{Layer, Sequential};
pub use module::{Counter, Entry, EntryMut, Mode, Module, Param, State, Walk, WalkMut, Walkable};
pub use ops::index::{Ellipsis, NewAxis, Pad, Step};
pub use ops::loss::{CrossEntropyOptions, CtcLossOptions, Reduction, TripletOptions};
pub use ops::{AttentionOptions, DropoutDraw, KeyValueCache, Rotary};
pub use optim::Optimizer;
pub use predict::{Samples, predict};
pub use rng::{Rng, Stream};
pub use snapshot::StorageSnapshot;
pub use tensor::Tensor;
pub use weights::{Layout, LoadOptions, LoadReport, WeightsError};

pub use kiln_core::ops::{Activation, Padding, Window};
pub use kiln_core::{Backend, DType, Error, Result, Shape};
/// Implements [`Walkable`], and by it [`Module`], for a struct whose fields are modules.
pub use kiln_derive::Module;

/// Compiles and runs the README's example as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
