//! The kinds of inputs and outputs.

use kiln_core::philox::{Key, spaces};
use kiln_data::{Arrays, Dataset, Labels, Result, Sample, Synthetic};
use kiln_nn::Shape;
use std::sync::Arc;

/// The shape of a network's input, without the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Images `[H, W, C]`.
    Images([usize; 3]),
    /// Sequences of this many i32 token ids.
    Tokens(usize),
}

impl InputKind {
    /// The word for a sample: `image`, `window`.
    pub const fn noun(self) -> &'static str {
        match self {
            InputKind::Images(_) => "image",
            InputKind::Tokens(_) => "window",
        }
    }

    /// Bytes of one input on a device: values of f32, or ids of i32.
    pub const fn bytes(self) -> usize {
        match self {
            InputKind::Images([h, w, c]) => 4 * h * w * c,
            InputKind::Tokens(length) => 4 * length,
        }
    }

    /// Samples that are made up, of `classes` classes: images with pixels from 0 to 255 that can be learned, of which part 0 is
    /// for training and part 1 for testing; windows of random tokens `[T + 1]`.
    ///
    /// # Errors
    /// No classes, sizes that overflow.
    pub fn made_up(
        self,
        count: usize,
        classes: usize,
        seed: u64,
        part: u32,
    ) -> Result<Arc<dyn Dataset<Sample = Sample>>> {
        match self {
            InputKind::Images(shape) => Ok(Arc::new(Synthetic::images(count, &shape, classes, seed)?.part(part))),
            InputKind::Tokens(length) => {
                let window = length.saturating_add(1);
                let bound = u32::try_from(classes).unwrap_or(u32::MAX).max(1);
                let key = Key::new(seed, *spaces::SAMPLING.start() + 1, part);
                let ids = (0..count.saturating_mul(window) as u64).map(|i| key.below(i, bound) as f32);
                let labels = Labels::Classes(vec![0; count], 1);
                Ok(Arc::new(Arrays::new(Shape::new(&[window])?, ids.collect(), labels)?))
            }
        }
    }
}

impl std::fmt::Display for InputKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            InputKind::Images([h, w, c]) => write!(f, "images {h}x{w}x{c}"),
            InputKind::Tokens(length) => write!(f, "sequences of {length} characters"),
        }
    }
}

/// What a network computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Logits of this many classes.
    Classes(usize),
    /// Logits of the next of this many characters; a network for a text has as many as the text.
    Characters(usize),
    /// Images like its inputs.
    Images,
}

impl OutputKind {
    /// Number of classes or characters, the last dimension of the logits; `None` for images.
    pub const fn classes(self) -> Option<usize> {
        match self {
            OutputKind::Classes(n) | OutputKind::Characters(n) => Some(n),
            OutputKind::Images => None,
        }
    }
}

impl std::fmt::Display for OutputKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OutputKind::Classes(n) => write!(f, "{n} classes"),
            OutputKind::Characters(n) => write!(f, "{n} characters, or those of the text"),
            OutputKind::Images => f.write_str("images like them"),
        }
    }
}
