//! Random transforms of images `[H, W, C]` and of clips `[T, H, W, C]`, whose frames are changed alike.

use super::{Draw, Transform};
use crate::{ByteImage, DataError, Result, Sample};
use kiln_core::Shape;

/// Pads every side with a value and cuts out a window of fixed size at a random place, of all frames of a clip the same (torchvision's `RandomCrop`). The
/// usual augmentation of CIFAR has `padding` 4 and `size` 32×32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crop {
    /// The height and width of the window.
    pub size: (usize, usize),
    /// The number of pixels added on every side.
    pub padding: usize,
    /// The value of the padding. 0 is black before [`Normalise`](super::Normalise) and the mean after it.
    pub fill: f32,
}

impl Crop {
    /// Crops to `height` × `width` after padding with zeros.
    pub fn new(height: usize, width: usize, padding: usize) -> Self {
        Crop {
            size: (height, width),
            padding,
            fill: 0.0,
        }
    }

    /// The number of places where the window can start along a side; `None` if it does not fit.
    fn places(&self, side: usize, window: usize) -> Option<u32> {
        let padded = self.padding.checked_mul(2)?.checked_add(side)?;
        u32::try_from(padded.checked_sub(window)?.checked_add(1)?).ok()
    }

    /// Draws the top left corner of the window in a padded image.
    fn corner(&self, (h, w): (usize, usize), draw: &Draw) -> Result<(usize, usize)> {
        let (ch, cw) = self.size;
        let (Some(rows), Some(columns)) = (self.places(h, ch), self.places(w, cw)) else {
            let expected = format!("at least {ch}×{cw} with a padding of {}", self.padding);
            return Err(DataError::shape("crop", format!("{h}×{w}"), expected));
        };
        Ok((draw.below(0, rows) as usize, draw.below(1, columns) as usize))
    }
}

impl Transform for Crop {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let [frames, h, w, c] = sample.frames("crop")?;
        let (ch, cw) = self.size;
        let (top, left) = self.corner((h, w), draw)?;
        let shape = match sample.shape.rank() {
            4 => Shape::new(&[frames, ch, cw, c])?,
            _ => Shape::new(&[ch, cw, c])?,
        };
        // Window columns `from..to` lie on the image: window column x shows image column left + x − padding.
        let from = self.padding.saturating_sub(left).min(cw);
        let to = (w + self.padding).saturating_sub(left).clamp(from, cw);
        sample.rewrite(shape, |images, out| {
            if ch * cw * c == 0 {
                return;
            }
            if self.fill != 0.0 {
                out.fill(self.fill);
            }
            for (frame, out) in out.chunks_exact_mut(ch * cw * c).enumerate() {
                let image = &images[frame * h * w * c..][..h * w * c];
                for (y, row) in out.chunks_exact_mut(cw * c).enumerate() {
                    let Some(source) = (top + y).checked_sub(self.padding).filter(|&s| s < h && from < to) else {
                        continue;
                    };
                    let start = (source * w + left + from - self.padding) * c;
                    row[from * c..to * c].copy_from_slice(&image[start..start + (to - from) * c]);
                }
            }
        })
    }

    fn on_bytes(&self, image: &mut ByteImage, draw: &Draw) -> Result<()> {
        let (top, left) = self.corner(image.size(), draw)?;
        if self.padding > 0 && !image.pad(self.fill) {
            let expected = "0 for a crop of a crop that a device makes";
            return Err(DataError::invalid("crop", "padding", self.padding, expected));
        }
        // The size of a padded side fits 32 bits.
        let padding = self.padding as i64;
        image.crop((top as i64 - padding, left as i64 - padding), self.size);
        Ok(())
    }
}

/// Mirrors the rows of an image of some width and channels, neither of them 0.
pub(super) fn mirror(image: &mut [f32], width: usize, channels: usize) {
    for row in image.chunks_exact_mut(width * channels) {
        // Reversing the whole row also reverses the channels of each pixel, so they are reversed back.
        row.reverse();
        row.chunks_exact_mut(channels).for_each(<[f32]>::reverse);
    }
}

/// Mirrors left and right with a given probability, all frames of a clip or none (torchvision's `RandomHorizontalFlip`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flip {
    probability: f32,
}

impl Flip {
    /// Creates a flip with this probability.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] outside `0..=1`.
    pub fn new(probability: f32) -> Result<Self> {
        check_probability("flip", probability)?;
        Ok(Flip { probability })
    }
}

impl Transform for Flip {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let [.., w, c] = sample.frames("flip")?;
        if w * c == 0 || draw.uniform(0) >= self.probability {
            return Ok(());
        }
        mirror(&mut sample.input, w, c);
        Ok(())
    }

    fn on_bytes(&self, image: &mut ByteImage, draw: &Draw) -> Result<()> {
        if draw.uniform(0) < self.probability {
            image.mirror();
        }
        Ok(())
    }
}

/// Overwrites a random rectangle with a value (Zhong et al., "Random Erasing Data Augmentation", 2017, Algorithm 1).
///
/// The rectangle's share of the image's area and its aspect ratio (height over width) are drawn uniformly. A rectangle
/// that does not fit is drawn again; after ten failed attempts the image stays as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Erase {
    probability: f32,
    area: (f32, f32),
    aspect: (f32, f32),
    value: f32,
}

impl Erase {
    const TRIES: u32 = 10;

    /// Erases with this probability. The area is 0.02 to 0.33 of the image, the aspect ratio 0.3 to 3.3, the value 0.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a probability outside `0..=1`.
    pub fn new(probability: f32) -> Result<Self> {
        check_probability("erase", probability)?;
        Ok(Erase {
            probability,
            area: (0.02, 0.33),
            aspect: (0.3, 3.3),
            value: 0.0,
        })
    }

    /// Sets the bounds of the erased share of the area, in `0..=1`, and of the aspect ratio, height over width.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for bounds that are not finite or not in order, areas outside `0..=1`, aspects
    /// of 0 or less.
    pub fn bounds(mut self, area: (f32, f32), aspect: (f32, f32)) -> Result<Self> {
        if !(0.0 <= area.0 && area.0 <= area.1 && area.1 <= 1.0) {
            return Err(DataError::invalid(
                "erase",
                "area",
                format!("{area:?}"),
                "0 ≤ low ≤ high ≤ 1",
            ));
        }
        if !(0.0 < aspect.0 && aspect.0 <= aspect.1 && aspect.1.is_finite()) {
            return Err(DataError::invalid(
                "erase",
                "aspect",
                format!("{aspect:?}"),
                "0 < low ≤ high, finite",
            ));
        }
        (self.area, self.aspect) = (area, aspect);
        Ok(self)
    }

    /// Sets the value written into the rectangle.
    pub fn value(mut self, value: f32) -> Self {
        self.value = value;
        self
    }

    /// Draws the rectangle (top, left, height, width) to erase; `None` to leave the image as it is.
    fn rectangle(&self, h: usize, w: usize, draw: &Draw) -> Option<[usize; 4]> {
        if draw.uniform(0) >= self.probability {
            return None;
        }
        let between = |n: u32, (low, high): (f32, f32)| low + (high - low) * draw.uniform(n);
        (0..Self::TRIES).find_map(|attempt| {
            let n = 1 + 4 * attempt;
            let area = between(n, self.area) * (h * w) as f32;
            let aspect = between(n + 1, self.aspect);
            let (eh, ew) = ((area * aspect).sqrt() as usize, (area / aspect).sqrt() as usize);
            if eh == 0 || ew == 0 || eh > h || ew > w {
                return None;
            }
            let place =
                |n, side: usize, size: usize| Some(draw.below(n, u32::try_from(side - size + 1).ok()?) as usize);
            Some([place(n + 2, h, eh)?, place(n + 3, w, ew)?, eh, ew])
        })
    }
}

impl Transform for Erase {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let [h, w, c] = sample.image("erase")?;
        if let Some([top, left, eh, ew]) = self.rectangle(h, w, draw) {
            for y in top..top + eh {
                sample.input[(y * w + left) * c..(y * w + left + ew) * c].fill(self.value);
            }
        }
        Ok(())
    }
}

fn check_probability(what: &'static str, probability: f32) -> Result<()> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    Err(DataError::invalid(what, "probability", probability, "0 to 1"))
}
