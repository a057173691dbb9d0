//! The Philox streams of this crate, in one place so that no two uses share one.
//!
//! They lie in the [spaces](kiln_core::philox::spaces) of this crate.

use kiln_core::philox::spaces;

/// The order of an epoch; the step is the epoch.
pub(crate) const SHUFFLE: u32 = *spaces::DATA.start();
/// A random split.
pub(crate) const SPLIT: u32 = *spaces::DATA.start() + 1;
/// Synthetic samples; the step is the part.
pub(crate) const SYNTHETIC: u32 = *spaces::DATA.start() + 2;
/// What the classes of a synthetic dataset look like.
pub(crate) const PROTOTYPE: u32 = *spaces::DATA.start() + 3;
/// Transforms: stage paths are added to this; the step is the epoch.
pub(crate) const TRANSFORM: u32 = *spaces::TRANSFORMS.start();
