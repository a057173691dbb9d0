//! A profiler for training steps: a backend that runs another one and records its ops.
//!
//! [`Profiled`] runs every op by the backend inside of it and records when the op began and ended, its least cost
//! ([`Cost`](kiln_core::Cost)), and the layer that called it, in the forward pass or for a gradient. The record is a
//! [`Timeline`], which gives rows by layer ([`Timeline::rows`]) or a trace for a viewer ([`Timeline::chrome_trace`]).
//!
//! ```
//! use kiln_core::{Backend, DType, Result};
//! use kiln_cpu::Cpu;
//! use kiln_nn::layers::{Linear, Relu};
//! use kiln_nn::{Init, Layer, Sequential, Tensor};
//! use kiln_profile::Profiled;
//!
//! # fn main() -> Result<()> {
//! let watched = Profiled::new(&Cpu::new());
//! let init = &mut Init::new(&watched, 0);
//! let model = Sequential::new().push(Linear::new(init, 8, 4)?).push(Relu);
//! let x = Tensor::ones(&watched, &[16, 8], DType::F32)?;
//! for _ in 0..3 {
//!     watched.step(|| -> Result<()> {
//!         let loss = watched.part("model", || model.forward(&x))?.mean(&[], false)?;
//!         watched.part("backward", || loss.backward())?;
//!         Ok(())
//!     })?;
//! }
//! let timeline = watched.timeline();
//! // At 1e11 operations and 1e10 bytes a second.
//! let rows = timeline.rows(&|cost| cost.seconds(1e11, 1e10));
//! let linear = rows.iter().find(|r| r.name == "0").unwrap();
//! assert_eq!((linear.kind, linear.calls), ("Linear", 1));
//! assert_eq!((linear.forward.cost.flops, linear.backward.cost.flops), (2 * 16 * 8 * 4, 2 * 16 * 8 * 4));
//! assert!(linear.forward.seconds > 0.0 && linear.floor() > 0.0);
//! # Ok(())
//! # }
//! ```
//!
//! The least time that an op can take follows from the highest rates of its device ([`Rates`]), which are measured.
//!
//! A profiled step waits for the device after every op, so on a GPU it runs op by op, without overlap and not as a
//! captured graph. Everything outside of [`Profiled::step`] runs as on the backend inside: to measure the cost of
//! profiling, time the same step there.

mod backend;
mod chrome;
mod ops;
mod processor;
mod rates;
mod record;
mod rows;

pub use backend::Profiled;
pub use processor::multiply_adds;
pub use rates::Rates;
pub use record::{Detail, Mark, ScopeInfo, Step, Timeline};
pub use rows::{Row, Share};
