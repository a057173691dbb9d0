//! The memory of buffers: aligned blocks, an allocator that keeps those that are given back, and the buffer itself.

mod aligned;
mod allocator;
mod buffer;

pub(crate) use allocator::Pool;
pub use buffer::CpuBuffer;
