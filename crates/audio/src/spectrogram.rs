//! A matrix of frames and bins, and its logarithms.

/// A real spectrogram `[frames, bins]`, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Spectrogram {
    /// The values, frame after frame.
    pub data: Vec<f32>,
    /// The number of frames, in time's order.
    pub frames: usize,
    /// The number of values of each frame, the lowest frequency first.
    pub bins: usize,
}

impl Spectrogram {
    /// The natural logarithm of each value, or of `floor` where the value is less: `x.clamp(min=floor).log()`.
    pub fn ln(mut self, floor: f32) -> Self {
        for x in &mut self.data {
            *x = x.max(floor).ln();
        }
        self
    }

    /// Decibels (`torchaudio.functional.amplitude_to_DB`): `multiplier·(log₁₀ max(x, amin) − log₁₀ max(amin, reference))`, and not less
    /// than `top_db` below the highest of them. The multiplier is 10 for powers and 20 for amplitudes.
    pub fn decibels(mut self, multiplier: f32, amin: f32, reference: f32, top_db: Option<f32>) -> Self {
        let offset = f64::from(multiplier) * f64::from(amin.max(reference)).log10();
        let db = |x: f32| (f64::from(multiplier) * f64::from(x.max(amin)).log10() - offset) as f32;
        for x in &mut self.data {
            *x = db(*x);
        }
        if let Some(top) = top_db {
            let least = self.data.iter().copied().fold(f32::NEG_INFINITY, f32::max) - top;
            for x in &mut self.data {
                *x = x.max(least);
            }
        }
        self
    }

    /// The mean of all values; 0 if there are none.
    pub fn mean(&self) -> f32 {
        let sum: f64 = self.data.iter().map(|x| f64::from(*x)).sum();
        (sum / self.data.len().max(1) as f64) as f32
    }
}
