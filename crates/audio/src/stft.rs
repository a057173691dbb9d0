//! The short-time Fourier transform.

use crate::{Result, Spectrogram};
use kiln_core::{Error, host};
use realfft::{RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// `torch.stft` of real input, one-sided, with a periodic Hann window (`torch.hann_window(win_length)`), which lies in the middle of the
/// `n_fft` samples. Sums are in f64.
#[derive(Clone)]
pub struct Stft {
    n_fft: usize,
    hop: usize,
    center: bool,
    window: Vec<f64>,
    fft: Arc<dyn RealToComplex<f64>>,
}

impl fmt::Debug for Stft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stft { n_fft, hop, center, .. } = self;
        write!(f, "Stft {{ n_fft: {n_fft}, hop: {hop}, center: {center} }}")
    }
}

impl Stft {
    /// Frames of `n_fft` samples every `hop` samples under a window of `win_length`. With `center` frame `t` has sample `t·hop` in its
    /// middle, and input is continued by reflection at both ends; without, it begins there.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `n_fft` is 0 or above 2²⁴, `hop` 0, or `win_length` 0 or above `n_fft`.
    pub fn new(n_fft: usize, hop: usize, win_length: usize, center: bool) -> Result<Self> {
        const LARGEST: usize = 1 << 24;
        if !(1..=LARGEST).contains(&n_fft) {
            return Err(Error::invalid("stft", "n_fft", n_fft, format!("1 to {LARGEST}")).into());
        }
        if hop == 0 {
            return Err(Error::invalid("stft", "hop", hop, "at least 1").into());
        }
        if !(1..=n_fft).contains(&win_length) {
            return Err(Error::invalid("stft", "win_length", win_length, format!("1 to n_fft, {n_fft}")).into());
        }
        let mut window = host::repeat(0.0, n_fft)?;
        let left = (n_fft - win_length) / 2;
        for (i, w) in window[left..left + win_length].iter_mut().enumerate() {
            *w = 0.5 - 0.5 * (2.0 * PI * i as f64 / win_length as f64).cos();
        }
        let fft = RealFftPlanner::new().plan_fft_forward(n_fft);
        let stft = Stft {
            n_fft,
            hop,
            center,
            window,
            fft,
        };
        Ok(stft)
    }

    /// The number of frequencies, `n_fft/2 + 1`, from 0 to half the sample rate.
    pub fn bins(&self) -> usize {
        self.n_fft / 2 + 1
    }

    /// The number of frames of `len` samples.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are too few for one frame or, with `center`, for the reflection: `n_fft/2 + 1` are needed.
    pub fn frames(&self, len: usize) -> Result<usize> {
        let half = self.n_fft / 2;
        let (needed, padded) = match self.center {
            true => (half + 1, len + 2 * half),
            false => (self.n_fft, len),
        };
        if len < needed {
            let expected = format!("{needed} samples or more for n_fft {}", self.n_fft);
            return Err(Error::invalid("stft", "samples", len, expected).into());
        }
        Ok(1 + (padded - self.n_fft) / self.hop)
    }

    /// The complex spectrum `[frames, bins]` as (real, imaginary).
    ///
    /// # Errors
    /// Those of [`Stft::frames`], [`Error::OutOfMemory`].
    pub fn complex(&self, samples: &[f32]) -> Result<Vec<[f32; 2]>> {
        let mut all = host::room(self.frames(samples.len())?.saturating_mul(self.bins()))?;
        self.each(samples, |re, im| all.push([re as f32, im as f32]))?;
        Ok(all)
    }

    /// The power spectrogram `[frames, bins]`: squares of absolute values (`torchaudio.transforms.Spectrogram` with power 2).
    ///
    /// # Errors
    /// Those of [`Stft::frames`], [`Error::OutOfMemory`].
    pub fn power(&self, samples: &[f32]) -> Result<Spectrogram> {
        let (frames, bins) = (self.frames(samples.len())?, self.bins());
        let mut data = host::room(frames.saturating_mul(bins))?;
        self.each(samples, |re, im| data.push((re * re + im * im) as f32))?;
        Ok(Spectrogram { data, frames, bins })
    }

    /// Calls `take` with every value, frame by frame.
    pub(crate) fn each(&self, samples: &[f32], mut take: impl FnMut(f64, f64)) -> Result<()> {
        let frames = self.frames(samples.len())?;
        let offset = if self.center { self.n_fft / 2 } else { 0 };
        let mut input = self.fft.make_input_vec();
        let mut output = self.fft.make_output_vec();
        let mut scratch = self.fft.make_scratch_vec();
        for frame in 0..frames {
            let start = (frame * self.hop) as i64 - offset as i64;
            for (i, (x, w)) in input.iter_mut().zip(&self.window).enumerate() {
                *x = f64::from(samples[reflected(start + i as i64, samples.len())]) * w;
            }
            let done = self.fft.process_with_scratch(&mut input, &mut output, &mut scratch);
            debug_assert!(done.is_ok(), "{done:?}");
            for value in &output {
                take(value.re, value.im);
            }
        }
        Ok(())
    }
}

/// The sample that continues `len` samples by reflection, without repeating the ends, once at either.
fn reflected(i: i64, len: usize) -> usize {
    let i = i.unsigned_abs() as usize;
    if i < len { i } else { 2 * (len - 1) - i }
}
