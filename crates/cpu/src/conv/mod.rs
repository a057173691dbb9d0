//! Convolution kernels: products over gathered rows for dense convolutions, direct loops for depthwise ones, and the
//! definition itself, which tests compare them with.

pub(crate) mod dense;
pub(crate) mod depthwise;
mod gather;
pub(crate) mod geometry;
#[cfg(test)]
mod naive;
mod shallow;
#[cfg(test)]
mod tests;

pub(crate) use geometry::Geometry;
