//! Sound in memory.

use crate::Result;
use kiln_core::Error;

/// The highest sample rate, in Hz.
pub const MAX_RATE: u32 = 1_000_000;

/// Sound: for each channel a list of samples, full scale being −1 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Waveform {
    /// The samples of each channel; all channels have as many.
    pub channels: Vec<Vec<f32>>,
    /// Samples per second and channel.
    pub sample_rate: u32,
}

impl Waveform {
    /// Creates a sound from its channels.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no channel, if channels differ in length, or if the rate is 0 or above [`MAX_RATE`].
    pub fn new(channels: Vec<Vec<f32>>, sample_rate: u32) -> Result<Self> {
        check_rate("Waveform::new", "sample_rate", sample_rate)?;
        let len = channels.first().map_or(0, Vec::len);
        if channels.is_empty() || channels.iter().any(|c| c.len() != len) {
            let lengths: Vec<_> = channels.iter().map(Vec::len).collect();
            let expected = "one channel or more, all of one length";
            return Err(Error::invalid("Waveform::new", "channels", format!("{lengths:?}"), expected).into());
        }
        Ok(Waveform { channels, sample_rate })
    }

    /// The number of samples of each channel.
    pub fn len(&self) -> usize {
        self.channels.first().map_or(0, Vec::len)
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length in seconds.
    pub fn seconds(&self) -> f64 {
        self.len() as f64 / f64::from(self.sample_rate)
    }

    /// The mean of all channels as the only one, as `waveform.mean(0)`.
    pub fn mono(mut self) -> Self {
        if self.channels.len() < 2 {
            return self;
        }
        let count = self.channels.len() as f64;
        let mean = (0..self.len()).map(|i| {
            let sum: f64 = self.channels.iter().map(|c| f64::from(c[i])).sum();
            (sum / count) as f32
        });
        let mean = mean.collect();
        self.channels = vec![mean];
        self
    }
}

pub(crate) fn check_rate(op: &'static str, argument: &'static str, rate: u32) -> Result<()> {
    match rate {
        1..=MAX_RATE => Ok(()),
        _ => Err(Error::invalid(op, argument, rate, format!("1 to {MAX_RATE} Hz")).into()),
    }
}
