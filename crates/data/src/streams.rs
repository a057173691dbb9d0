//! The Philox streams of this crate, in one place so that no two uses share one.
//!
//! Their upper byte is `0xDA`: streams of parameters and layers count from 0.

/// The order of an epoch; the step is the epoch.
pub(crate) const SHUFFLE: u32 = 0xDA00_0000;
/// A random split.
pub(crate) const SPLIT: u32 = 0xDA00_0001;
/// Synthetic samples; the step is the part.
pub(crate) const SYNTHETIC: u32 = 0xDA00_0002;
/// What the classes of a synthetic dataset look like.
pub(crate) const PROTOTYPE: u32 = 0xDA00_0003;
/// Transforms: stage paths are added to this; the step is the epoch.
pub(crate) const TRANSFORM: u32 = 0xDB00_0000;
