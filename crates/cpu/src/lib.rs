//! The CPU backend: correct first, then fast.
//!
//! Threads come from rayon. Matrix products and convolutions share micro-kernels of their own for AVX-512, AVX2 and
//! portable code, chosen at run time. Work is split into chunks whose number depends on the shapes alone, and partial results are
//! combined in order, so the same seed gives the same bits at any number of threads.
//!
//! A child of `fork` has none of its parent's threads. Ops work there all the same, with threads of the child's own, if the
//! parent had made a [`Cpu`] before it forked, so that the two can be told apart; a fork while another thread is inside an op
//! may leave that op's locks taken. The data loader's workers stay behind too: a child begins its own epoch.

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

pub use memory::CpuBuffer;
pub use runtime::{Cpu, CpuBuilder};
pub use simd::machine::{Cache, Machine};
