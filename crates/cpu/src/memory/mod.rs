//! The memory of buffers: aligned blocks, a caching allocator, and the buffer itself.

mod aligned;
mod allocator;
mod buffer;

pub(crate) use allocator::Pool;
pub use buffer::CpuBuffer;
