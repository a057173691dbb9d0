//! The base crate of Kiln: shapes, dtypes, errors, op parameters and the [`Backend`] trait.
//!
//! This crate contains no code for a particular device. A backend implements the op families of [`ops`]; all code above
//! is generic over `B: Backend`.

mod backend;
pub mod checks;
mod cost;
mod dtype;
mod error;
pub mod host;
mod observer;
mod op;
pub mod ops;
pub mod philox;
mod runtime;
mod shape;

pub use backend::Backend;
pub use cost::Cost;
pub use dtype::{DType, Element, Float};
pub use error::{Error, ModuleId, Origin, Result};
pub use observer::{Observer, Scope};
pub use runtime::{Buffer, Interrupt, MemoryStats, Runtime};
pub use shape::{MAX_RANK, Shape};
