//! The driver API: the functions that `libcuda.so.1` exports.
//!
//! Every exported function passes through `boundary`, which catches panics. The state of the driver is one value behind
//! a mutex (`state`); work runs without it (`schedule`).

#[macro_use]
mod boundary;

mod alloc;
mod capture;
mod config;
mod console;
mod context;
mod copy;
mod counters;
mod device;
mod error;
mod error_text;
mod event;
mod function;
mod get_proc_address;
mod graph;
mod graph_exec;
mod graph_nodes;
mod hints;
mod host;
mod host_access;
mod jit;
mod json_lines;
mod launch;
mod library;
mod link;
mod memcpy_2d_3d;
mod module;
mod objects;
mod page_guard;
mod peer;
mod pointer;
mod pool;
mod programs;
mod run_work;
mod schedule;
mod state;
mod stream;
mod tensor_map;
mod trace;
mod types;
mod unsupported;

pub use alloc::*;
pub use capture::*;
pub use config::{Config, Order};
pub use context::*;
pub use copy::*;
pub use device::*;
pub use error::*;
pub use error_text::*;
pub use event::*;
pub use function::*;
pub use get_proc_address::*;
pub use graph::*;
pub use graph_exec::*;
pub use graph_nodes::*;
pub use hints::*;
pub use host::*;
pub use launch::*;
pub use library::*;
pub use link::*;
pub use memcpy_2d_3d::*;
pub use module::*;
pub use peer::*;
pub use pointer::*;
pub use pool::*;
pub use stream::*;
pub use tensor_map::*;
pub use types::*;

/// The number of findings since the driver started: faults of kernels, races and uninitialised reads.
#[allow(non_snake_case, reason = "named as the functions of C are")]
#[unsafe(no_mangle)]
pub extern "C" fn kilnEmulatorFindings() -> u64 {
    state::driver().map_or(0, state::Driver::findings)
}
