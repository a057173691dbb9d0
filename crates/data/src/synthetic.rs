//! Synthetic data of any shape, for benches and for trying a model before its data is at hand.

use crate::dataset::check_index;
use crate::{DataError, Dataset, Result, Sample, streams};
use kiln_core::Shape;
use kiln_core::philox::Key;

/// Samples drawn from Philox when they are read: pixel values 0 to 255 of any shape, each with a class.
///
/// In a learnable dataset every input is the picture of its class mixed with noise, three parts to one; in a random one
/// it is noise that has nothing to do with the class. Sample `i` is a pure function of (seed, part, i) and takes no
/// memory until it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    count: usize,
    shape: Shape,
    classes: u32,
    seed: u64,
    part: u32,
    learnable: bool,
}

impl Synthetic {
    /// Creates `count` learnable samples of `shape` (images: `[H, W, C]`) in `classes` classes.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for 0 classes or more than 2³¹ − 1, [`DataError::Tensor`] for a shape whose
    /// size overflows.
    pub fn images(count: usize, shape: &[usize], classes: usize, seed: u64) -> Result<Self> {
        let valid = u32::try_from(classes).ok().filter(|&c| c > 0 && c <= i32::MAX as u32);
        Ok(Synthetic {
            count,
            shape: Shape::new(shape)?,
            classes: valid.ok_or_else(|| DataError::invalid("synthetic", "classes", classes, "1 to 2³¹ − 1"))?,
            seed,
            part: 0,
            learnable: true,
        })
    }

    /// Makes every input pure noise, so that nothing can be learned.
    pub fn random(mut self) -> Self {
        self.learnable = false;
        self
    }

    /// Selects a part of the data: the same classes, other samples. By convention part 0 is for training, 1 for testing.
    pub fn part(mut self, part: u32) -> Self {
        self.part = part;
        self
    }
}

/// The first `n` bytes of the Philox blocks from `base` on; a block gives sixteen bytes.
fn bytes(key: Key, base: u64, n: usize) -> impl Iterator<Item = u8> {
    let blocks = (0..n.div_ceil(16) as u64).map(move |b| key.block(base.wrapping_add(b)));
    blocks.flatten().flat_map(u32::to_le_bytes).take(n)
}

impl Dataset for Synthetic {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.count
    }

    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.count)?;
        let key = Key::new(self.seed, streams::SYNTHETIC, self.part);
        let n = self.shape.size();
        // Each sample has its own range of blocks from `base` on; the first decides the label, the others the noise.
        let base = (index as u64).wrapping_mul(n.div_ceil(16) as u64 + 1);
        let label = key.below(base, self.classes);
        sample.fill(self.shape, std::iter::repeat_n(0.0, n))?;
        let noise = bytes(key, base.wrapping_add(1), n);
        if self.learnable {
            let prototype = bytes(Key::new(self.seed, streams::PROTOTYPE, label), 0, n);
            for ((x, p), e) in sample.input.iter_mut().zip(prototype).zip(noise) {
                *x = f32::from(((3 * u16::from(p) + u16::from(e)) / 4) as u8);
            }
        } else {
            for (x, e) in sample.input.iter_mut().zip(noise) {
                *x = f32::from(e);
            }
        }
        sample.label = label as i32;
        sample.targets.clear();
        Ok(())
    }

    fn shape(&self) -> Option<Shape> {
        Some(self.shape)
    }

    fn classes(&self) -> Option<usize> {
        Some(self.classes as usize)
    }
}
