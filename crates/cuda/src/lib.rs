//! The CUDA backend: every op of [`kiln_core::Backend`] as a launch of one of Kiln's own kernels.
//!
//! ```no_run
//! use kiln_core::Runtime;
//! let cuda = kiln_cuda::Cuda::new(0)?;
//! let x = cuda.upload(&[1.0f32, 2.0, 3.0])?;
//! assert_eq!(cuda.download::<f32>(&x)?, [1.0, 2.0, 3.0]);
//! # Ok::<(), kiln_core::Error>(())
//! ```
//!
//! A [`Cuda`] owns one compute stream; ops return as soon as they are queued there, and `download` and `sync` wait. An
//! error that only a kernel can see (an index outside its range) is reported by the next of those. [`Options::blocking`]
//! waits after every op, so that an error names the op it came from. Computations are in f32 and deterministic: the same
//! call gives the same bits on the same device.

mod buffer;
mod error;
mod fault;
mod finish;
mod launch;
mod ops;
mod own;
mod runtime;
mod tensor_tile;
mod tensors;
mod transfer;

pub use buffer::CudaBuffer;
pub use kiln_device::Geometry;
pub use ops::{attention, conv, matmul, norm, reduce, residual, softmax};
pub use own::KernelArg;
pub use runtime::{Cuda, CudaGraph, Options};
pub use tensor_tile::Multiprocessors;
