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
    resize_window(image, (0, 0), (image.height, image.width), (height, width))
}

/// Resizes the middle of an image to `height` × `width`: the largest window of these proportions, as torchvision's `Resize` of the
/// shorter side and `CenterCrop` cut it.
///
/// # Errors
/// As [`resize_bilinear`].
pub(crate) fn resize_middle(image: &Decoded, height: usize, width: usize) -> Result<Decoded> {
    let (h, w) = (image.height as u128, image.width as u128);
    let (to_h, to_w) = (height.max(1) as u128, width.max(1) as u128);
    let of = |a: u128, b: u128, c: u128, most: usize| (((a * b + c / 2) / c) as usize).clamp(1, most.max(1));
    let size = match h * to_w > w * to_h {
        true => (of(w, to_h, to_w, image.height), image.width),
        false => (image.height, of(h, to_w, to_h, image.width)),
    };
    let corner = (
        image.height.saturating_sub(size.0) / 2,
        image.width.saturating_sub(size.1) / 2,
    );
    resize_window(image, corner, size, (height, width))
}

/// Resizes the window of `size` = (height, width) pixels from `corner` on to as many as `to` says.
fn resize_window(image: &Decoded, corner: (usize, usize), size: (usize, usize), to: (usize, usize)) -> Result<Decoded> {
    let (height, width) = to;
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
    if to == (image.height, image.width) && size == to {
        return Ok(image.clone());
    }
    let scaling = Scaling::of_window(corner, size, to)?;
    let mut pixels = Vec::new();
    reserve(&mut pixels, Shape::new(&[height, width, c])?.size(), "a resized image")?;
    scaling.apply(&image.pixels, image.width, c, |byte| pixels.push(byte))?;
    Ok(Decoded {
        height,
        width,
        channels: c,
        pixels,
    })
}

/// The scaling of a window of an image: the rows and the columns of the image that each row and column of the result averages.
pub(crate) struct Scaling {
    down: Vec<Tap>,
    across: Vec<Tap>,
}

impl Scaling {
    /// The scaling of the `size` = (height, width) pixels from `corner` on to as many as `to` says.
    pub(crate) fn of_window(corner: (usize, usize), size: (usize, usize), to: (usize, usize)) -> Result<Self> {
        let side = |first: usize, from: usize, to: usize| -> Result<Vec<Tap>> {
            let mut taps = taps(from, to)?;
            taps.iter_mut().for_each(|tap| tap.first += first);
            Ok(taps)
        };
        Ok(Scaling {
            across: side(corner.1, size.1, to.1)?,
            down: side(corner.0, size.0, to.0)?,
        })
    }

    /// The part of the result of `size` = (height, width) from `corner` on.
    pub(crate) fn cropped(mut self, corner: (usize, usize), size: (usize, usize)) -> Self {
        let crop = |taps: &mut Vec<Tap>, first: usize, count: usize| {
            taps.truncate(first + count);
            taps.drain(..first);
        };
        crop(&mut self.down, corner.0, size.0);
        crop(&mut self.across, corner.1, size.1);
        self
    }

    /// Scales an image of pixels from 0 to 255, `width` of them in a row, of `c` channels, and hands over the bytes of the result in order.
    pub(crate) fn apply<T: Copy + Into<f32>>(
        &self,
        image: &[T],
        width: usize,
        c: usize,
        mut put: impl FnMut(u8),
    ) -> Result<()> {
        let first = self.down.iter().map(|tap| tap.first).min().unwrap_or(0);
        let last = self
            .down
            .iter()
            .map(|tap| tap.first + tap.weights.len())
            .max()
            .unwrap_or(0);
        let row = self.across.len() * c;
        let mut rows: Vec<f32> = Vec::new();
        reserve(&mut rows, Shape::new(&[last - first, row])?.size(), "a resized image")?;
        for source in image[first * width * c..last * width * c].chunks_exact(width * c) {
            for tap in &self.across {
                for channel in 0..c {
                    let pixels = source[tap.first * c + channel..].iter().step_by(c);
                    rows.push(
                        tap.weights
                            .iter()
                            .zip(pixels)
                            .map(|(w, &p)| w * Into::<f32>::into(p))
                            .sum(),
                    );
                }
            }
        }
        for tap in &self.down {
            for x in 0..row {
                let column = rows[(tap.first - first) * row + x..].iter().step_by(row);
                let value: f32 = tap.weights.iter().zip(column).map(|(w, &p)| w * p).sum();
                // `as u8` saturates at 0 and 255.
                put((value + 0.5) as u8);
            }
        }
        Ok(())
    }
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
