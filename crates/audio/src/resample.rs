//! Another sample rate, by a windowed sinc: `torchaudio.functional.resample` with its defaults.
//!
//! Rates are divided by their greatest common divisor, `orig` and `new`. Output `k·new + i` is a sum over input around `k·orig + i·orig/new`
//! with the taps of phase `i`: `sinc(t)·cos²(πt/2w)·base/orig` for `|t| < w`, where `t` is the distance in zeros of the sinc,
//! `base = 0.99·min(orig, new)` and `w = 6`. Input is zero outside of its samples.

use crate::wave::check_rate;
use crate::{Result, Waveform};
use kiln_core::{Error, host};
use std::f64::consts::PI;

/// How many zeros of the sinc a filter has on each side (`lowpass_filter_width`).
const WIDTH: f64 = 6.0;
/// The cutoff as a part of half the lower rate.
const ROLLOFF: f64 = 0.99;

impl Waveform {
    /// The sound at another sample rate (`torchaudio.functional.resample`: Hann window, `lowpass_filter_width` 6, `rolloff` 0.99), with
    /// `⌈len·new/old⌉` samples.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if either rate is 0 or above [`MAX_RATE`](crate::MAX_RATE), [`Error::OutOfMemory`].
    pub fn resample(&self, sample_rate: u32) -> Result<Waveform> {
        check_rate("resample", "self.sample_rate", self.sample_rate)?;
        check_rate("resample", "sample_rate", sample_rate)?;
        let channels = resampled(&self.channels, self.sample_rate, sample_rate)?;
        Ok(Waveform { channels, sample_rate })
    }

    /// The sound played `factor` times as fast at the same sample rate, pitch included (`torchaudio.functional.speed`).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the factor times the rate is not a rate, or if the rate is none; [`Error::OutOfMemory`].
    pub fn speed(&self, factor: f64) -> Result<Waveform> {
        check_rate("speed", "self.sample_rate", self.sample_rate)?;
        let source = factor * f64::from(self.sample_rate);
        if !(1.0..=f64::from(crate::MAX_RATE)).contains(&source) {
            let expected = format!(
                "a factor that makes {} Hz a rate from 1 to {}",
                self.sample_rate,
                crate::MAX_RATE
            );
            return Err(Error::invalid("speed", "factor", factor, expected).into());
        }
        let channels = resampled(&self.channels, source as u32, self.sample_rate)?;
        let sample_rate = self.sample_rate;
        Ok(Waveform { channels, sample_rate })
    }
}

/// The taps of one phase and the input, relative to `k·orig`, that the first of them is multiplied with.
struct Phase {
    first: i64,
    taps: Vec<f32>,
}

fn phase(i: u64, orig: f64, new: f64) -> Phase {
    let base = orig.min(new) * ROLLOFF;
    let center = i as f64 / new;
    // |t| < WIDTH where |j/orig − i/new| < WIDTH/base; one more on either side for rounding, whose taps are dropped below.
    let reach = WIDTH / base;
    let from = ((center - reach) * orig).floor() as i64 - 1;
    let to = ((center + reach) * orig).ceil() as i64 + 1;
    let tap = |j: i64| {
        let t = (j as f64 / orig - center) * base;
        if t.abs() >= WIDTH {
            return 0.0;
        }
        let window = (t * PI / WIDTH / 2.0).cos().powi(2);
        let sinc = if t == 0.0 { 1.0 } else { (t * PI).sin() / (t * PI) };
        (sinc * window * base / orig) as f32
    };
    Phase {
        first: from,
        taps: (from..=to).map(tap).collect(),
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn resampled(channels: &[Vec<f32>], from: u32, to: u32) -> Result<Vec<Vec<f32>>> {
    if from == to {
        return Ok(channels.to_vec());
    }
    let (from, to) = (u64::from(from), u64::from(to));
    let divisor = gcd(from, to);
    let (orig, new) = (from / divisor, to / divisor);
    let len = channels.first().map_or(0, Vec::len);
    let count = (len as u128 * u128::from(new)).div_ceil(u128::from(orig));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let used = new.min(count as u64);
    let phases: Vec<Phase> = (0..used).map(|i| phase(i, orig as f64, new as f64)).collect();
    let mut all = Vec::with_capacity(channels.len());
    for x in channels {
        let mut y = host::room(count)?;
        y.extend((0..count as u64).map(|o| {
            let phase = &phases[(o % new) as usize];
            let first = (o / new * orig) as i64 + phase.first;
            let skipped = (-first).max(0) as usize;
            let start = first.max(0) as usize;
            let taps = phase.taps.get(skipped..).unwrap_or(&[]);
            let input = x.get(start..).unwrap_or(&[]);
            let sum: f64 = taps.iter().zip(input).map(|(t, x)| f64::from(*t) * f64::from(*x)).sum();
            sum as f32
        }));
        all.push(y);
    }
    Ok(all)
}
