//! The Philox streams of this crate, in one place so that no two uses share one. They lie in this crate's
//! [spaces](kiln_core::philox::spaces).

use kiln_core::philox::spaces;

/// The shuffled order of an epoch; Philox's step is the epoch.
pub(crate) const SHUFFLE: u32 = *spaces::DATA.start();
/// A random split.
pub(crate) const SPLIT: u32 = *spaces::DATA.start() + 1;
/// Noise and labels of synthetic samples; the step is the part.
pub(crate) const SYNTHETIC: u32 = *spaces::DATA.start() + 2;
/// The picture of each class of a synthetic dataset; the step is the class.
pub(crate) const PROTOTYPE: u32 = *spaces::DATA.start() + 3;
/// The order of batches that samplers shuffle; the step is the epoch.
pub(crate) const BATCHES: u32 = *spaces::DATA.start() + 4;
/// Samples drawn by their weights; the step is the epoch.
pub(crate) const WEIGHTED: u32 = *spaces::DATA.start() + 5;
/// The lines of a made-up text.
pub(crate) const SUMS: u32 = *spaces::DATA.start() + 6;
/// The rows of a made-up table; the step is the part.
pub(crate) const ROWS: u32 = *spaces::DATA.start() + 7;
/// Made-up speech; the step is the part.
pub(crate) const SPEECH: u32 = *spaces::DATA.start() + 8;
/// Made-up images with objects; the step is the part.
pub(crate) const OBJECTS: u32 = *spaces::DATA.start() + 9;
/// Scenes of sprites; the step is the part.
pub(crate) const SCENES: u32 = *spaces::DATA.start() + 10;
/// Clips of moving sprites; the step is the part.
pub(crate) const MOTIONS: u32 = *spaces::DATA.start() + 11;
/// Transforms; the path of stages is added to this, and the step is the epoch.
pub(crate) const TRANSFORM: u32 = *spaces::TRANSFORMS.start();
