//! Random changes of sound and spectrograms, drawn from Philox: the same key gives the same result on every machine.

use crate::{Result, Spectrogram, Waveform};
use kiln_core::Error;
use kiln_core::philox::{Key, uniform};
use std::ops::Range;

/// Masks over stretches of time and of frequency (Park et al., "SpecAugment", Interspeech 2019; `torchaudio.transforms.SpecAugment`).
///
/// A mask of at most `param` frames or bins has a length `⌊u₁·param⌋` and a start `⌊u₂·(size − u₁·param)⌋`, for uniform `u₁` and `u₂`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpecAugment {
    /// The number of masks over time, drawn first.
    pub n_time_masks: usize,
    /// The largest number of frames of one, exclusive.
    pub time_mask_param: usize,
    /// The number of masks over frequency.
    pub n_freq_masks: usize,
    /// The largest number of bins of one, exclusive.
    pub freq_mask_param: usize,
    /// The largest part of the frames or bins that one mask may cover, 0 to 1.
    pub p: f64,
    /// True to write zeros, false to write the spectrogram's mean.
    pub zero_masking: bool,
}

impl SpecAugment {
    /// Masks a spectrogram in place. Mask `i` draws elements `2i` and `2i + 1` of the key.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `p` is not from 0 to 1.
    pub fn apply(&self, x: &mut Spectrogram, key: Key) -> Result<()> {
        if !(0.0..=1.0).contains(&self.p) {
            return Err(Error::invalid("SpecAugment", "p", self.p, "0 to 1").into());
        }
        let value = if self.zero_masking { 0.0 } else { x.mean() };
        for mask in 0..self.n_time_masks + self.n_freq_masks {
            let over_time = mask < self.n_time_masks;
            let (size, param) = match over_time {
                true => (x.frames, self.time_mask_param),
                false => (x.bins, self.freq_mask_param),
            };
            let param = if self.p == 1.0 {
                param
            } else {
                param.min((size as f64 * self.p) as usize)
            };
            let draw = |i: usize| uniform(key.word(2 * mask as u64 + i as u64));
            let masked = mask_range(size, param, [draw(0), draw(1)]);
            if over_time {
                x.data[masked.start * x.bins..masked.end * x.bins].fill(value);
            } else if x.bins > 0 {
                for frame in x.data.chunks_exact_mut(x.bins) {
                    frame[masked.clone()].fill(value);
                }
            }
        }
        Ok(())
    }
}

/// The range of `size` places that a mask covers, in f32 as `torchaudio.functional.mask_along_axis`.
fn mask_range(size: usize, param: usize, u: [f32; 2]) -> Range<usize> {
    let length = u[0] * param as f32;
    // Towards zero, and negative only if a mask is longer than the axis.
    let start = (u[1] * (size as f32 - length)) as i64;
    // A product may round up to `param` itself.
    let end = start + (length as i64).min(param as i64 - 1).max(0);
    let place = |at: i64| at.clamp(0, size as i64) as usize;
    place(start)..place(end)
}

/// Speed perturbation (Ko et al., "Audio augmentation for speech recognition", Interspeech 2015;
/// `torchaudio.transforms.SpeedPerturbation`): one of some factors, each as likely.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeedPerturbation {
    factors: Vec<f64>,
}

impl Default for SpeedPerturbation {
    /// 0.9, 1 and 1.1, as in the paper.
    fn default() -> Self {
        SpeedPerturbation {
            factors: vec![0.9, 1.0, 1.1],
        }
    }
}

impl SpeedPerturbation {
    /// Perturbation by one of these factors.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is none, or one is not positive and finite.
    pub fn new(factors: Vec<f64>) -> Result<Self> {
        let wrong = factors.iter().any(|f| !(f.is_finite() && *f > 0.0));
        if wrong || factors.is_empty() {
            let expected = "one factor or more, positive and finite";
            return Err(Error::invalid("SpeedPerturbation", "factors", format!("{factors:?}"), expected).into());
        }
        Ok(SpeedPerturbation { factors })
    }

    /// The factor of a key, by its element 0.
    pub fn factor(&self, key: Key) -> f64 {
        self.factors[key.below(0, self.factors.len() as u32) as usize]
    }

    /// The sound at the speed of a key: see [`Waveform::speed`].
    ///
    /// # Errors
    /// Those of [`Waveform::speed`].
    pub fn apply(&self, x: &Waveform, key: Key) -> Result<Waveform> {
        x.speed(self.factor(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn masks_lie_inside(size in 0usize..40, param in 0usize..60, u in prop::array::uniform2(0f32..1.0)) {
            let masked = mask_range(size, param, u);
            prop_assert!(masked.start <= masked.end && masked.end <= size);
            prop_assert!(masked.len() < param.max(1));
        }
    }

    /// Places that `torchaudio.functional.mask_along_axis` masks for these draws, worked out by its formula.
    #[test]
    fn masks_are_those_of_torchaudio() {
        assert_eq!(mask_range(100, 20, [0.5, 0.5]), 45..55);
        assert_eq!(mask_range(100, 20, [0.99, 0.999]), 80..99);
        assert_eq!(mask_range(100, 20, [0.01, 0.5]), 49..49);
        assert_eq!(mask_range(3, 10, [0.5, 0.9]), 0..3);
        assert_eq!(mask_range(3, 10, [0.9, 0.9]), 0..3);
    }
}
