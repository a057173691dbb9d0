//! The CPU backend: correct first, then fast.
//!
//! Threads come from rayon. Matrix products and convolutions share micro-kernels of their own for AVX-512, AVX2 and
//! portable code, chosen at run time. Work is split into chunks whose number depends on the shapes alone, and partial results are
//! combined in order, so the same seed gives the same bits at any number of threads.

mod block;
mod blocks;
mod buffer;
mod conv;
mod dispatch;
mod epilogue;
mod gemm;
mod math;
pub mod measure;
mod ops;
mod parallel;
mod pool;
mod real;
mod rows;
mod runtime;
mod scalar;
mod tile;
mod wide;

pub use buffer::CpuBuffer;
pub use runtime::Cpu;
