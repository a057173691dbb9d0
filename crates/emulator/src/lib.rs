//! A CUDA driver on the CPU: it implements `libcuda` and runs **the PTX that nvcc made**.
//!
//! A program becomes a [`Program`] once per module; [`Kernel`]s are decoded at their first launch and run by [`run`].
//! Device memory is host memory that [`memory::Memory`] knows: every access of a kernel is checked against it.

mod check;
mod cubin;
mod decode;
pub mod driver;
mod exec;
mod fatbin;
mod fault;
mod image;
mod kernel;
mod lz4;
pub mod memory;
mod ptx;
mod system;

pub use decode::{Kernel, Program, Relocation, Variable};
pub use fault::{Fault, FaultKind};
pub use kernel::{Launch, LoadError, Options, Param, WORKSPACE, run};
pub use system::{System, Text};
