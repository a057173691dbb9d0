//! Bilinear resizing with antialiasing.

use super::image::Decoded;
use crate::error::reserve;
use crate::{DataError, Result};
use kiln_core::Shape;

/// Resizes an image to `height` × `width` with a triangle filter, whose support grows with the scale when shrinking, as
/// Pillow's `BILINEAR` and PyTorch's `interpolate(mode="bilinear", antialias=True)` do. Sums are kept in f32 and
/// rounded once, to the nearest integer.
///
/// # Errors
/// [`DataError::InvalidArgument`] for a size of 0 or an image whose bytes do not fit its shape,
/// [`DataError::Tensor`] for a size that overflows, [`DataError::OutOfMemory`].
pub fn resize_bilinear(image: &Decoded, height: usize, width: usize) -> Result<Decoded> {
    if height == 0 || width == 0 {
        return Err(DataError::invalid(
            "resize",
            "size",
            format!("{height}×{width}"),
            "at least 1×1",
        ));
    }
    let c = image.channels;
    let source = Shape::new(&[image.height, image.width, c])?;
    if source.size() == 0 || source.size() != image.pixels.len() {
        let found = format!("{source} with {} bytes", image.pixels.len());
        return Err(DataError::invalid(
            "resize",
            "image",
            found,
            "at least one pixel, as many bytes as its shape",
        ));
    }
    if (height, width) == (image.height, image.width) {
        return Ok(image.clone());
    }
    let across = taps(image.width, width)?;
    let down = taps(image.height, height)?;
    let mut rows: Vec<f32> = Vec::new();
    reserve(
        &mut rows,
        Shape::new(&[image.height, width, c])?.size(),
        "a resized image",
    )?;
    for row in image.pixels.chunks_exact(image.width * c) {
        for tap in &across {
            for channel in 0..c {
                let pixels = row[tap.first * c + channel..].iter().step_by(c);
                rows.push(tap.weights.iter().zip(pixels).map(|(w, &p)| w * f32::from(p)).sum());
            }
        }
    }
    let mut pixels = Vec::new();
    reserve(&mut pixels, Shape::new(&[height, width, c])?.size(), "a resized image")?;
    for tap in &down {
        for x in 0..width * c {
            let column = rows[tap.first * width * c + x..].iter().step_by(width * c);
            let value: f32 = tap.weights.iter().zip(column).map(|(w, &p)| w * p).sum();
            // `as u8` saturates at 0 and 255.
            pixels.push((value + 0.5) as u8);
        }
    }
    Ok(Decoded {
        height,
        width,
        channels: c,
        pixels,
    })
}

/// The source pixels from `first` on, and their weights, that one output pixel averages.
struct Tap {
    first: usize,
    weights: Vec<f32>,
}

fn taps(from: usize, to: usize) -> Result<Vec<Tap>> {
    let mut taps = Vec::new();
    reserve(&mut taps, to, "resize weights")?;
    let scale = from as f64 / to as f64;
    let support = scale.max(1.0);
    for i in 0..to {
        let centre = (i as f64 + 0.5) * scale;
        let first = (centre - support + 0.5).max(0.0) as usize;
        let last = ((centre + support + 0.5) as usize).min(from);
        let mut weights = Vec::new();
        reserve(&mut weights, last - first, "resize weights")?;
        let triangle = |j: usize| (1.0 - ((j as f64 + 0.5 - centre) / support).abs()).max(0.0);
        let total: f64 = (first..last).map(triangle).sum();
        weights.extend((first..last).map(|j| (triangle(j) / total) as f32));
        taps.push(Tap { first, weights });
    }
    Ok(taps)
}
