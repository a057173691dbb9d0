//! Runs kernels of PTX modules on the CPU.
//!
//! A PTX text becomes a [`Program`]; its [`Kernel`]s are decoded at their first launch and run by [`run`]. Device memory is
//! host memory that [`memory::Memory`] knows: every access of a kernel is checked against it. With [`Options::check`]
//! kernels are also watched for races and for reads of memory that nothing has written; [`run_counted`] counts what they do.

mod check;
mod count;
mod decode;
mod error;
mod exec;
mod fault;
mod launch;
mod limits;
mod machine;
pub mod memory;
mod program;
mod run;
mod sync;
mod system;
mod tensor_map;

pub use count::{Access, AccessClass, Counters, Loop, Place, Spread, Traffic, Wait};
pub use decode::{Relocation, Variable};
pub use error::LoadError;
pub use fault::{Fault, FaultKind};
pub use launch::{Launch, Options, Param, WORKSPACE};
pub use limits::MOST_LOCAL;
pub use program::{Kernel, Program};
pub use run::{run, run_counted};
pub use system::{System, Text};
pub use tensor_map::{TensorMap, TensorMapError};
