//! Convolution kernels: products over the windows of images for dense convolutions, direct loops for depthwise ones, and the
//! definition itself, which tests compare them with.

mod axis;
pub(crate) mod chosen;
pub(crate) mod dense;
pub(crate) mod depthwise;
pub(crate) mod few;
pub(crate) mod geometry;
#[cfg(test)]
mod naive;
mod padded;
pub(crate) mod planar;
pub(crate) mod pooled;
mod runs;
mod scatter;
#[cfg(test)]
mod tests;
mod widen;
mod windows;
pub(crate) mod winograd;

pub(crate) use geometry::Geometry;
