//! The CPU backend.
//!
//! Threads come from rayon. Matrix products and convolutions have micro-kernels for AVX-512, AVX2 and portable code, chosen
//! at run time. Work is split into chunks that depend on the shapes alone, and partial results are combined in order, so
//! the same seed gives the same bits on any number of threads.
//!
//! After `fork` the child has none of its parent's threads. Ops still work there, with threads of the child's own, if the
//! parent made a [`Cpu`] before it forked. If another thread was inside an op during the fork, locks of that op may stay
//! taken. The workers of a data loader are not there either: a child has to start its own epoch.

mod algorithms;
mod conv;
mod dispatch;
mod epilogue;
mod fork;
mod fused_pool;
mod gemm;
mod interrupt;
mod memory;
mod ops;
mod parallel;
mod pointwise;
mod runtime;
mod scalar;
mod simd;
mod winograd;

pub use gemm::blocking::Blocking;
pub use memory::CpuBuffer;
pub use runtime::{Cpu, CpuBuilder};
pub use simd::machine::{Cache, Machine};

/// Compiles and runs the README's example as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
