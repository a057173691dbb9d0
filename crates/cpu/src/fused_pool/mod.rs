//! Convolutions followed by 2×2 max pooling with stride 2, as one op: the results of a pooled window stay in registers
//! until the largest is known, and gradients are computed from the largest alone.
//!
//! ```text
//! forward             the largest result of each window, with its place
//! argmax_grad         both gradients, from the largest results alone
//! microkernel         the loops over windows in registers     argmax_microkernel  the same for gradients
//! select              the largest of vectors, and where it was
//! planar              the largest of each window where the convolution goes plane by plane
//! kernels             the micro-kernels of this machine
//! ```

pub(crate) mod argmax_grad;
mod argmax_microkernel;
pub(crate) mod forward;
mod kernels;
mod microkernel;
mod planar;
mod select;
#[cfg(test)]
mod tests;

pub(crate) use argmax_microkernel::Lines;
pub(crate) use kernels::{FusedPool, PoolKernels};
pub(crate) use microkernel::{PoolGeometry, WindowTaps};
