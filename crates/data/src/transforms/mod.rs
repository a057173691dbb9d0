//! Transforms of single samples, random ones drawn from Philox.
//!
//! Every draw is a pure function of (seed, epoch, sample index, place of the transform in its [`Compose`]): batches do
//! not depend on the number of workers, and a resumed run sees what it would have seen. Only integer arithmetic,
//! individually rounded f32 operations and square roots are used, so that a device can repeat them bit for bit.

mod augment;
mod scale;

pub use augment::{Crop, Erase, Flip};
pub use scale::{Normalise, ToFloat};

use crate::{Result, Sample, streams};
use kiln_core::philox::{Key, uniform};

/// Draws per sample and transform: a sample's draws are blocks `index · 2²⁰ ..`, its place in the counter's 64 bits.
const DRAWS_LOG2: u32 = 20;
/// Stages of a [`Compose`] that are told apart.
const STAGES: u32 = 64;

/// Where a transform's random numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    seed: u64,
    epoch: u64,
    index: u64,
    path: u32,
}

impl Draw {
    /// The draws of sample `index` in an epoch (its lower 32 bits) of the run with this seed.
    pub fn new(seed: u64, epoch: u64, index: usize) -> Self {
        Draw {
            seed,
            epoch,
            index: index as u64,
            path: 0,
        }
    }

    /// The draws of stage `stage` inside this one: other numbers for each of up to 63 stages, nested up to three deep.
    pub fn stage(self, stage: usize) -> Self {
        let path = self
            .path
            .wrapping_mul(STAGES)
            .wrapping_add(1 + stage as u32 % (STAGES - 1));
        Draw { path, ..self }
    }

    fn key(&self) -> Key {
        // Three levels of six bits and the stream's own bits do not meet.
        Key::new(
            self.seed,
            streams::TRANSFORM | (self.path & 0x00ff_ffff),
            self.epoch as u32,
        )
    }

    fn block(&self, draw: u32) -> u64 {
        (self.index << DRAWS_LOG2).wrapping_add(u64::from(draw))
    }

    /// Draw number `draw` of this sample (below 2²⁰), uniform on `[0, 1)`.
    pub fn uniform(&self, draw: u32) -> f32 {
        uniform(self.key().block(self.block(draw))[0])
    }

    /// Draw number `draw` of this sample (below 2²⁰), a uniform integer in `0..bound`; 0 for a bound of 0.
    pub fn below(&self, draw: u32, bound: u32) -> u32 {
        self.key().below(self.block(draw), bound)
    }
}

/// A change to a sample.
///
/// A pure function of the sample and the draw. Buffers of the sample are reused through [`Sample::rewrite`].
pub trait Transform: Send + Sync {
    /// Changes `sample` in place.
    ///
    /// # Errors
    /// [`DataError::Shape`](crate::DataError::Shape) for a sample that the transform cannot take.
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()>;
}

/// Transforms one after the other, each with draws of its own.
#[derive(Default)]
pub struct Compose {
    stages: Vec<Box<dyn Transform>>,
}

impl Compose {
    /// No transform.
    pub fn new() -> Self {
        Compose::default()
    }

    /// Adds a stage at the end.
    pub fn then(mut self, transform: impl Transform + 'static) -> Self {
        self.stages.push(Box::new(transform));
        self
    }
}

impl Transform for Compose {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        for (i, stage) in self.stages.iter().enumerate() {
            stage.apply(sample, &draw.stage(i))?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Compose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compose({} stages)", self.stages.len())
    }
}
