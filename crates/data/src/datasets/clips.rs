//! Clips as samples, and the files that they are read from.

use super::card::FileOptions;
use super::facts::Facts;
use super::kinds::{MadeUp, SampleKind};
use super::opened::{Opened, Shared};
use crate::{ClipOptions, DataError, ImageLimits, Result, Sample, Synthetic, decode_clip};
use std::path::Path;
use std::sync::Arc;

/// Clips `[F, H, W, C]` of raw pixels from 0 to 255, with a class: as many frames as the network takes, or more, of which
/// [`Frames`](crate::Frames) takes some.
pub static CLIPS: SampleKind = SampleKind {
    name: "clips",
    noun: "clip",
    describe: |shape| {
        let sides: Vec<String> = shape.iter().map(usize::to_string).collect();
        format!("clips {}", sides.join("x"))
    },
    batch: 8,
    samples: |made| Ok(Arc::new(part(made, 0, made.count)?)),
    synthetic: |made| {
        let shared = |part_of: u32, count| -> Result<Shared> { Ok(Arc::new(part(made, part_of, count)?)) };
        Ok(Opened {
            train: shared(0, made.count)?,
            test: shared(1, made.held_back())?,
            facts: Facts::default(),
        })
    },
};

/// Clips that are made up: part 0 to train on, part 1 to measure on.
fn part(made: &MadeUp<'_>, part: u32, count: usize) -> Result<Synthetic> {
    Ok(Synthetic::images(count, made.shape, made.outputs, made.seed)?.part(part))
}

/// The dimensions of a network's input that is a clip.
pub(super) fn dimensions(shape: &[usize]) -> Result<[usize; 4]> {
    let shown = || format!("{shape:?}");
    shape
        .try_into()
        .map_err(|_| DataError::shape("clips", shown(), "a clip [T, H, W, C]"))
}

/// The way in which clips are read for a network's input.
pub(super) fn options(shape: &[usize]) -> Result<ClipOptions> {
    let [frames, height, width, channels] = dimensions(shape)?;
    Ok(ClipOptions {
        frames,
        size: (height, width),
        channels,
        limits: ImageLimits::default(),
    })
}

/// The clip in a file or a folder of frames.
pub(super) fn read(path: &Path, of: &FileOptions<'_>) -> Result<Vec<Sample>> {
    let mut sample = Sample::default();
    decode_clip(path, &options(of.shape)?)?.fill(&mut sample)?;
    Ok(vec![sample])
}
