//! The kinds of samples.

use super::opened::{Opened, Shared};
use crate::Result;

/// Samples that are made up.
#[derive(Clone, Copy, Debug)]
pub struct MadeUp<'a> {
    /// The shape of the network's input: `[H, W, C]` of images, `[T, H, W, C]` of clips, `[T]` of windows of text, `[F]` of rows, `[T, F]` of
    /// speech.
    pub shape: &'a [usize],
    /// The number of classes, characters or numbers to predict, at least 1.
    pub outputs: usize,
    /// Samples to train on.
    pub count: usize,
    /// They are a pure function of the seed and their index.
    pub seed: u64,
}

impl MadeUp<'_> {
    /// The number of samples that are held back: a fifth.
    pub fn held_back(&self) -> usize {
        self.count.div_ceil(5)
    }
}

/// A kind of samples, which a dataset gives and a network takes. A dataset with samples of a new kind has it in its file.
#[derive(Debug)]
pub struct SampleKind {
    /// The name in records: `images`.
    pub name: &'static str,
    /// The word for a sample: `image`, `window`, `row`.
    pub noun: &'static str,
    /// Describes inputs of this shape: `images 28x28x1`.
    pub describe: fn(&[usize]) -> String,
    /// Samples of a batch in which the time of a step is measured.
    pub batch: u32,
    /// Raw samples of these sizes, to train on, for steps that are measured.
    pub samples: fn(&MadeUp<'_>) -> Result<Shared>,
    /// A dataset of these sizes that can be learned, with samples held back: what a network is tried with that has no data yet.
    pub synthetic: fn(&MadeUp<'_>) -> Result<Opened>,
}

impl PartialEq for SampleKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
