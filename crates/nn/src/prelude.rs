//! The names that a program of models and training uses, in one import: `use kiln_nn::prelude::*`.
//!
//! ```
//! use kiln_nn::prelude::*;
//!
//! #[derive(Module)]
//! struct Mlp<B: Backend> {
//!     fc1: Linear<B>,
//!     fc2: Linear<B>,
//! }
//!
//! impl<B: Backend> Layer<B> for Mlp<B> {
//!     fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
//!         self.fc2.forward(&self.fc1.forward(x)?.relu()?)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let cpu = kiln_cpu::Cpu::new();
//! let init = &mut Init::new(&cpu, 0);
//! let mut model = Mlp { fc1: Linear::new(init, 4, 16)?, fc2: Linear::new(init, 16, 1)? };
//! let x = Tensor::randn(&cpu, &[8, 4], DType::F32, &mut Rng::new(0))?;
//! let y = x.sum(&[1], true)?;
//! let loss = model.forward(&x)?.mse_loss(&y, Reduction::Mean)?;
//! Sgd::new(0.1).step(&mut model, &loss.backward()?)?;
//! # Ok(())
//! # }
//! ```

pub use crate::layers::*;
pub use crate::ops::{GridMode, GridOptions, GridPadding, Interpolation};
pub use crate::optim::*;
pub use crate::{
    Activation, AttentionOptions, Backend, CrossEntropyOptions, DType, Ellipsis, Error, Gradients, Indices, Init,
    Initializer, Module, NewAxis, Pad, Padding, Param, Reduction, Result, Rng, Rotary, Shape, State, Step, Tensor,
    TripletOptions, Window, grad, no_grad,
};
