//! Images as samples, and the files that they are read from.

use super::card::{FileOptions, Request};
use super::facts::Facts;
use super::kinds::{MadeUp, SampleKind};
use super::opened::{Opened, Shared};
use crate::{DataError, Decoded, ImageLimits, Result, Sample, Synthetic, decode_image, resize_bilinear};
use kiln_core::Shape;
use std::path::Path;
use std::sync::Arc;

/// Images `[H, W, C]` of raw pixels from 0 to 255, most with a class.
pub static IMAGES: SampleKind = SampleKind {
    name: "images",
    noun: "image",
    describe: |shape| {
        let sides: Vec<String> = shape.iter().map(usize::to_string).collect();
        format!("images {}", sides.join("x"))
    },
    batch: 32,
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

/// Images that are made up: part 0 to train on, part 1 to measure on.
fn part(made: &MadeUp<'_>, part: u32, count: usize) -> Result<Synthetic> {
    Ok(Synthetic::images(count, made.shape, made.outputs, made.seed)?.part(part))
}

/// The dimensions of a network's input that is an image.
pub(super) fn dimensions(shape: &[usize]) -> Result<[usize; 3]> {
    let shown = || format!("{shape:?}");
    shape
        .try_into()
        .map_err(|_| DataError::shape("images", shown(), "an image [H, W, C]"))
}

/// The shape to which images are scaled, of which the first one has the shape that `first` finds: its own, if it is a square that the network
/// can be built for, else the largest such square that it covers.
pub(super) fn wanted(request: &Request<'_>, first: impl FnOnce() -> Result<[usize; 3]>) -> Result<[usize; 3]> {
    let input = dimensions(request.shape)?;
    if request.sides.is_empty() {
        return Ok(input);
    }
    let [h, w, c] = first()?;
    let covered = request.sides.iter().filter(|&&side| side <= h.min(w)).max();
    Ok(covered.map_or(input, |&side| [side, side, c]))
}

/// The image in a file, scaled to the network's input unless it keeps its size.
pub(super) fn scaled(path: &Path, options: &FileOptions<'_>) -> Result<Vec<Sample>> {
    let [h, w, c] = dimensions(options.shape)?;
    let mut image = decode_image(path, c, &ImageLimits::default())?;
    if !options.own_size {
        image = resize_bilinear(&image, h, w)?;
    }
    Ok(vec![sample(&image)?])
}

/// An image as a sample.
pub(super) fn sample(image: &Decoded) -> Result<Sample> {
    let mut sample = Sample::default();
    let shape = Shape::new(&[image.height, image.width, image.channels])?;
    sample.fill(shape, image.pixels.iter().map(|&pixel| f32::from(pixel)))?;
    Ok(sample)
}

/// Refuses classes other than those that a network was trained on, if these are known.
pub(super) fn check_classes(found: &[impl AsRef<str>], path: &Path, facts: Option<&Facts>) -> Result<()> {
    let Some(known) = facts.and_then(|facts| facts.names(Facts::CLASSES)) else {
        return Ok(());
    };
    let found: Vec<&str> = found.iter().map(AsRef::as_ref).collect();
    match known.iter().eq(&found) {
        true => Ok(()),
        false => Err(DataError::Classes {
            path: path.to_path_buf(),
            found: found.join(", "),
            expected: known.join(", "),
        }),
    }
}
