//! Transforms of sound `[L]` at [`SAMPLE_RATE`], and of its spectrograms `[T, F]`.

use super::{Draw, Transform};
use crate::{DataError, Result, SAMPLE_RATE, Sample};
use kiln_audio::{MelNorm, MelScale, MelSpectrogram, Spectrogram, SpeedPerturbation, Stft, Waveform};
use kiln_core::Shape;

/// Samples of a window and from one to the next: 25 ms every 10 ms.
const WINDOW: usize = SAMPLE_RATE as usize / 40;
const HOP: usize = SAMPLE_RATE as usize / 100;

/// Power below this is silence.
const FLOOR: f32 = 1e-6;

/// Makes logarithmic mel spectrograms `[T, F]` of sound `[L]`: windows of 25 ms every 10 ms, logarithms, and a mean of 0 and a deviation of
/// 1 over the utterance, as the DeepSpeech networks have it.
#[derive(Debug, Clone)]
pub struct LogMel {
    mel: MelSpectrogram,
}

impl LogMel {
    /// Creates the transform to `bins` mel bins from 0 Hz to half of [`SAMPLE_RATE`].
    ///
    /// # Errors
    /// [`DataError::Audio`] for 0 bins, memory.
    pub fn new(bins: usize) -> Result<Self> {
        let stft = Stft::new(WINDOW, HOP, WINDOW, true)?;
        let half = f64::from(SAMPLE_RATE / 2);
        let mel = MelSpectrogram::with(stft, 0.0, half, bins, SAMPLE_RATE, MelNorm::None, MelScale::Htk)?;
        Ok(LogMel { mel })
    }
}

impl Transform for LogMel {
    fn apply(&self, sample: &mut Sample, _: &Draw) -> Result<()> {
        if sample.shape.len() != 1 {
            return Err(DataError::shape("log-mel", sample.shape, "sound [L]"));
        }
        if sample.input.len() <= WINDOW / 2 {
            let found = format!("{} samples", sample.input.len());
            let expected = format!("at least {} of sound, half a window", WINDOW / 2 + 1);
            return Err(DataError::shape("log-mel", found, expected));
        }
        let Spectrogram { data, frames, bins } = self.mel.compute(&sample.input)?.ln(FLOOR);
        let count = data.len().max(1) as f64;
        let mean = data.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let square = data.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
        // Silence of one value everywhere stays 0.
        let scale = if square > 0.0 { square.sqrt().recip() } else { 0.0 };
        sample.rewrite(Shape::new(&[frames, bins])?, |_, out| {
            for (out, x) in out.iter_mut().zip(&data) {
                *out = ((f64::from(*x) - mean) * scale) as f32;
            }
        })
    }
}

/// Plays sound `[L]` faster or slower by one of some factors, each as likely (`torchaudio.transforms.SpeedPerturbation`).
#[derive(Debug, Clone)]
pub struct Speed(SpeedPerturbation);

impl Speed {
    /// Creates the transform.
    ///
    /// # Errors
    /// [`DataError::Audio`] if there is no factor, or one that is not positive and finite.
    pub fn new(factors: &[f64]) -> Result<Self> {
        Ok(Speed(SpeedPerturbation::new(factors.to_vec())?))
    }
}

impl Transform for Speed {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        if sample.shape.len() != 1 {
            return Err(DataError::shape("speed", sample.shape, "sound [L]"));
        }
        let key = draw.own_key();
        if self.0.factor(key) == 1.0 {
            return Ok(());
        }
        let sound = Waveform::new(vec![std::mem::take(&mut sample.input)], SAMPLE_RATE)?;
        let changed = self.0.apply(&sound, key)?;
        let changed = changed.channels.into_iter().next().unwrap_or_default();
        sample.fill(Shape::new(&[changed.len()])?, changed.into_iter())
    }
}

/// Masks stretches of time and of frequency of spectrograms `[T, F]` with 0 (Park et al. 2019; `torchaudio.transforms.SpecAugment`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpecAugment(kiln_audio::SpecAugment);

impl SpecAugment {
    /// Creates the transform: two masks of fewer than `frames` frames, each at most a fifth of the utterance, and two of fewer than `bins`
    /// bins.
    pub fn new(frames: usize, bins: usize) -> Self {
        SpecAugment(kiln_audio::SpecAugment {
            n_time_masks: 2,
            time_mask_param: frames,
            n_freq_masks: 2,
            freq_mask_param: bins,
            p: 0.2,
            zero_masking: true,
        })
    }
}

impl Transform for SpecAugment {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let &[frames, bins] = sample.shape.dims() else {
            return Err(DataError::shape("SpecAugment", sample.shape, "a spectrogram [T, F]"));
        };
        let data = std::mem::take(&mut sample.input);
        let mut spectrogram = Spectrogram { data, frames, bins };
        let masked = self.0.apply(&mut spectrogram, draw.own_key());
        sample.input = spectrogram.data;
        Ok(masked?)
    }
}
