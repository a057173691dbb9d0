//! Transforms of single samples. The random ones draw from Philox.
//!
//! Every draw is a pure function of (seed, epoch, sample index, place of the transform in its [`Compose`]), so batches
//! do not depend on the number of workers, and a resumed run draws the same numbers. Only integer arithmetic,
//! individually rounded f32 operations and square roots are used, so that a device can reproduce the results bit for bit.

mod augment;
mod frame;
mod frames;
mod objects;
mod scale;
mod sound;
mod typos;

pub use augment::{Crop, Erase, Flip};
pub use frame::{RandomResizedCrop, ResizeCenterCrop};
pub use frames::Frames;
pub use objects::{FlipObjects, Light, Mosaic};
pub use scale::{Normalise, ToFloat};
pub use sound::{LogMel, SpecAugment, Speed};
pub use typos::Typos;

use crate::{ByteImage, DataError, Result, Sample, streams};
use kiln_core::philox::{Key, uniform};

/// The logarithm of the number of draws per sample and transform: a sample's draws are blocks `index · 2²⁰ ..`.
const DRAWS_LOG2: u32 = 20;
/// One more than the number of stages of a [`Compose`] that draw different numbers; 0 marks the end of a path.
const STAGES: u32 = 64;

/// The source of a transform's random numbers for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    seed: u64,
    epoch: u64,
    index: u64,
    path: u32,
}

impl Draw {
    /// The draws of sample `index` in an epoch (of which the lower 32 bits count) of the run with this seed.
    pub fn new(seed: u64, epoch: u64, index: usize) -> Self {
        Draw {
            seed,
            epoch,
            index: index as u64,
            path: 0,
        }
    }

    /// The draws of stage `stage` of a [`Compose`]. Up to 63 stages, nested up to three deep, draw different numbers.
    pub fn stage(self, stage: usize) -> Self {
        let path = self
            .path
            .wrapping_mul(STAGES)
            .wrapping_add(1 + stage as u32 % (STAGES - 1));
        Draw { path, ..self }
    }

    fn key(&self) -> Key {
        // Three levels of six bits do not overlap the bits of the stream.
        Key::new(
            self.seed,
            streams::TRANSFORM | (self.path & 0x00ff_ffff),
            self.epoch as u32,
        )
    }

    /// A key for this sample and stage alone, made of its draw 0, for what draws by a key.
    pub(crate) fn own_key(&self) -> Key {
        let block = self.key().block(self.block(0));
        let seed = u64::from(block[0]) | u64::from(block[1]) << 32;
        Key::new(seed, streams::TRANSFORM, self.epoch as u32)
    }

    fn block(&self, draw: u32) -> u64 {
        (self.index << DRAWS_LOG2).wrapping_add(u64::from(draw))
    }

    /// Draw number `draw` (below 2²⁰) of this sample, uniform on `[0, 1)`.
    pub fn uniform(&self, draw: u32) -> f32 {
        uniform(self.key().block(self.block(draw))[0])
    }

    /// Draw number `draw` (below 2²⁰) of this sample, a uniform integer in `0..bound`; 0 for a bound of 0.
    pub fn below(&self, draw: u32, bound: u32) -> u32 {
        self.key().below(self.block(draw), bound)
    }
}

/// A transform of a sample. Closures `Fn(&mut S, &Draw) -> Result<()>` do.
///
/// A transform is a pure function of the sample and the draw. It reuses buffers through [`Sample::rewrite`].
pub trait Transform<S = Sample>: Send + Sync {
    /// Transforms `sample` in place.
    ///
    /// # Errors
    /// [`DataError::Shape`](crate::DataError::Shape) for a sample of a shape that the transform does not accept.
    fn apply(&self, sample: &mut S, draw: &Draw) -> Result<()>;

    /// Does to an image of bytes on a device what [`apply`](Transform::apply) does to a sample on the host, with the same draws:
    /// for samples of [`DeviceImages`](crate::DeviceImages). A transform that changes pixels one by one, without a draw, applies
    /// itself to [`ByteImage::values`].
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`](crate::DataError::InvalidArgument) for a transform that is not made on devices, as it is
    /// unless it says otherwise; those of `apply`.
    fn on_bytes(&self, image: &mut ByteImage, draw: &Draw) -> Result<()> {
        let _ = (image, draw);
        let expected =
            "one that devices make of bytes, such as Crop, Flip, ToFloat and Normalise; make others on the host";
        Err(DataError::invalid(
            "device images",
            "transform",
            std::any::type_name::<Self>(),
            expected,
        ))
    }
}

impl<S, F: Fn(&mut S, &Draw) -> Result<()> + Send + Sync> Transform<S> for F {
    fn apply(&self, sample: &mut S, draw: &Draw) -> Result<()> {
        self(sample, draw)
    }
}

/// A chain of transforms, each with draws of its own (torchvision's `Compose`).
pub struct Compose<S = Sample> {
    stages: Vec<Box<dyn Transform<S>>>,
}

impl<S> Default for Compose<S> {
    fn default() -> Self {
        Compose { stages: Vec::new() }
    }
}

impl<S> Compose<S> {
    /// Creates an empty chain.
    pub fn new() -> Self {
        Compose::default()
    }

    /// Appends a transform.
    pub fn then(mut self, transform: impl Transform<S> + 'static) -> Self {
        self.stages.push(Box::new(transform));
        self
    }
}

impl<S> Transform<S> for Compose<S> {
    fn apply(&self, sample: &mut S, draw: &Draw) -> Result<()> {
        for (i, stage) in self.stages.iter().enumerate() {
            stage.apply(sample, &draw.stage(i))?;
        }
        Ok(())
    }

    fn on_bytes(&self, image: &mut ByteImage, draw: &Draw) -> Result<()> {
        for (i, stage) in self.stages.iter().enumerate() {
            stage.on_bytes(image, &draw.stage(i))?;
        }
        Ok(())
    }
}

impl<S> std::fmt::Debug for Compose<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compose({} stages)", self.stages.len())
    }
}
