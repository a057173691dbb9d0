//! Transforms of values that keep the shape.

use super::{Draw, Transform};
use crate::{ByteImage, DataError, Result, Sample};

/// Divides by 255, as torchvision's `ToTensor` does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToFloat;

impl Transform for ToFloat {
    fn apply(&self, sample: &mut Sample, _: &Draw) -> Result<()> {
        for x in &mut sample.input {
            *x /= 255.0;
        }
        Ok(())
    }

    fn on_bytes(&self, image: &mut ByteImage, draw: &Draw) -> Result<()> {
        self.apply(image.values(), draw)
    }
}

/// Computes `(x − mean[c]) / deviation[c]` for each channel `c`, the last axis (torchvision's `Normalize`).
#[derive(Debug, Clone, PartialEq)]
pub struct Normalise {
    mean: Vec<f32>,
    deviation: Vec<f32>,
}

impl Normalise {
    /// Creates the transform from a mean and a standard deviation per channel, or one of each for all channels.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] unless there are as many means as deviations, at least one, all finite and the
    /// deviations above 0.
    pub fn new(mean: &[f32], deviation: &[f32]) -> Result<Self> {
        if mean.is_empty() || mean.len() != deviation.len() {
            let counts = format!("{} means, {} deviations", mean.len(), deviation.len());
            return Err(DataError::invalid(
                "normalise",
                "mean",
                counts,
                "one of each per channel",
            ));
        }
        if let Some(m) = mean.iter().find(|m| !m.is_finite()) {
            return Err(DataError::invalid("normalise", "mean", m, "a finite number"));
        }
        if let Some(d) = deviation.iter().find(|&&d| !d.is_finite() || d <= 0.0) {
            return Err(DataError::invalid(
                "normalise",
                "deviation",
                d,
                "a finite number above 0",
            ));
        }
        Ok(Normalise {
            mean: mean.to_vec(),
            deviation: deviation.to_vec(),
        })
    }
}

impl Transform for Normalise {
    fn apply(&self, sample: &mut Sample, _: &Draw) -> Result<()> {
        let channels = self.mean.len();
        if channels > 1 && sample.shape.last() != Some(&channels) {
            let expected = format!("{channels} channels in the last axis");
            return Err(DataError::shape("normalise", sample.shape, expected));
        }
        for pixel in sample.input.chunks_mut(channels) {
            for ((x, m), d) in pixel.iter_mut().zip(&self.mean).zip(&self.deviation) {
                *x = (*x - m) / d;
            }
        }
        Ok(())
    }

    fn on_bytes(&self, image: &mut ByteImage, draw: &Draw) -> Result<()> {
        self.apply(image.values(), draw)
    }
}
