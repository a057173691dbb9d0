//! Mel filters and mel spectrograms.

use crate::wave::check_rate;
use crate::{Result, Spectrogram, Stft};
use kiln_core::{Error, host};

/// The formula of the mel scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MelScale {
    /// `2595·log₁₀(1 + f/700)`, as in HTK; torchaudio's default.
    #[default]
    Htk,
    /// Linear to 1000 Hz and logarithmic above, as in Slaney's Auditory Toolbox; librosa's default.
    Slaney,
}

/// The scale of mel filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MelNorm {
    /// Every filter has a peak of 1; torchaudio's default.
    #[default]
    None,
    /// Every filter has an area of 1 (`norm="slaney"`); librosa's default.
    Slaney,
}

/// Where Slaney's scale turns from a line into a logarithm, in Hz and in mels, and its steps.
const TURN_HZ: f64 = 1000.0;
const TURN_MEL: f64 = 15.0;
const HZ_PER_MEL: f64 = 200.0 / 3.0;

impl MelScale {
    /// Mels of a frequency in Hz.
    pub fn mel(self, hz: f64) -> f64 {
        match self {
            MelScale::Htk => 2595.0 * (1.0 + hz / 700.0).log10(),
            MelScale::Slaney if hz >= TURN_HZ => TURN_MEL + (hz / TURN_HZ).ln() / log_step(),
            MelScale::Slaney => hz / HZ_PER_MEL,
        }
    }

    /// The frequency in Hz of mels.
    pub fn hz(self, mel: f64) -> f64 {
        match self {
            MelScale::Htk => 700.0 * (10f64.powf(mel / 2595.0) - 1.0),
            MelScale::Slaney if mel >= TURN_MEL => TURN_HZ * ((mel - TURN_MEL) * log_step()).exp(),
            MelScale::Slaney => mel * HZ_PER_MEL,
        }
    }
}

fn log_step() -> f64 {
    6.4f64.ln() / 27.0
}

/// Triangular filters `[n_freqs, n_mels]`, row by row, for spectra of `n_freqs` bins from 0 to half the sample rate
/// (`torchaudio.functional.melscale_fbanks`; librosa's `filters.mel` is the transpose).
///
/// # Errors
/// [`Error::InvalidArgument`] if `n_freqs` is below 2, `n_mels` 0, or not `0 ≤ f_min < f_max`, [`Error::OutOfMemory`].
pub fn mel_filterbank(
    n_freqs: usize,
    f_min: f64,
    f_max: f64,
    n_mels: usize,
    sample_rate: u32,
    norm: MelNorm,
    scale: MelScale,
) -> Result<Vec<f32>> {
    const OP: &str = "mel_filterbank";
    check_rate(OP, "sample_rate", sample_rate)?;
    if n_freqs < 2 {
        return Err(Error::invalid(OP, "n_freqs", n_freqs, "at least 2").into());
    }
    if n_mels == 0 {
        return Err(Error::invalid(OP, "n_mels", n_mels, "at least 1").into());
    }
    let ordered = f_min >= 0.0 && f_max > f_min && f_max.is_finite();
    if !ordered {
        let expected = format!("finite, above f_min, {f_min}, which is at least 0");
        return Err(Error::invalid(OP, "f_max", f_max, expected).into());
    }
    let (low, high) = (scale.mel(f_min), scale.mel(f_max));
    let point = |i: usize| scale.hz(low + (high - low) * i as f64 / (n_mels + 1) as f64);
    let points: Vec<f64> = host::collect(0..n_mels.saturating_add(2))?
        .into_iter()
        .map(point)
        .collect();
    // PyTorch halves the rate as an integer.
    let half = f64::from(sample_rate / 2);
    let mut filters = host::room(n_freqs.saturating_mul(n_mels))?;
    for bin in 0..n_freqs {
        let hz = half * bin as f64 / (n_freqs - 1) as f64;
        for p in points.windows(3) {
            let up = (hz - p[0]) / (p[1] - p[0]);
            let down = (p[2] - hz) / (p[2] - p[1]);
            let area = match norm {
                MelNorm::None => 1.0,
                MelNorm::Slaney => 2.0 / (p[2] - p[0]),
            };
            filters.push((up.min(down).max(0.0) * area) as f32);
        }
    }
    Ok(filters)
}

/// Mel spectrograms (`torchaudio.transforms.MelSpectrogram`): the power spectrogram times the filters.
#[derive(Debug, Clone)]
pub struct MelSpectrogram {
    stft: Stft,
    /// For each mel the first bin that its filter reads, and the filter's values from there.
    filters: Vec<(usize, Vec<f32>)>,
}

impl MelSpectrogram {
    /// 80 mels of speech: frames of 25 ms every 10 ms, from 0 Hz to half the rate, [`MelScale::Htk`] and [`MelNorm::None`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the rate is below 100 Hz or above [`MAX_RATE`](crate::MAX_RATE).
    pub fn new(sample_rate: u32) -> Result<Self> {
        let (window, hop) = (sample_rate as usize / 40, sample_rate as usize / 100);
        let stft = Stft::new(window, hop, window, true)?;
        let half = f64::from(sample_rate / 2);
        MelSpectrogram::with(stft, 0.0, half, 80, sample_rate, MelNorm::None, MelScale::Htk)
    }

    /// Any mel spectrogram: see [`mel_filterbank`].
    ///
    /// # Errors
    /// Those of [`mel_filterbank`].
    pub fn with(
        stft: Stft,
        f_min: f64,
        f_max: f64,
        n_mels: usize,
        sample_rate: u32,
        norm: MelNorm,
        scale: MelScale,
    ) -> Result<Self> {
        let bins = stft.bins();
        let matrix = mel_filterbank(bins, f_min, f_max, n_mels, sample_rate, norm, scale)?;
        let filter = |mel: usize| {
            let column = || (0..bins).map(|bin| matrix[bin * n_mels + mel]);
            let first = column().position(|w| w != 0.0).unwrap_or(0);
            let end = bins - column().rev().position(|w| w != 0.0).unwrap_or(bins);
            (first, column().take(end).skip(first).collect())
        };
        let filters = (0..n_mels).map(filter).collect();
        Ok(MelSpectrogram { stft, filters })
    }

    /// The number of mels, the bins of each frame.
    pub fn n_mels(&self) -> usize {
        self.filters.len()
    }

    /// The number of frames of `len` samples.
    ///
    /// # Errors
    /// Those of [`Stft::frames`].
    pub fn frames(&self, len: usize) -> Result<usize> {
        self.stft.frames(len)
    }

    /// The mel spectrogram of samples, `[frames, n_mels]`.
    ///
    /// # Errors
    /// Those of [`Stft::frames`], [`Error::OutOfMemory`].
    pub fn compute(&self, samples: &[f32]) -> Result<Spectrogram> {
        let (frames, bins) = (self.frames(samples.len())?, self.n_mels());
        let mut data: Vec<f32> = host::room(frames.saturating_mul(bins))?;
        let mut power = Vec::with_capacity(self.stft.bins());
        self.stft.each(samples, |re, im| {
            power.push(re * re + im * im);
            if power.len() == self.stft.bins() {
                data.extend(self.filters.iter().map(|(first, filter)| {
                    let inputs = &power[*first..];
                    let sum: f64 = filter.iter().zip(inputs).map(|(w, p)| f64::from(*w) * p).sum();
                    sum as f32
                }));
                power.clear();
            }
        })?;
        Ok(Spectrogram { data, frames, bins })
    }
}
