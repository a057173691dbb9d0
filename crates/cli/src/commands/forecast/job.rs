//! The job that was asked for, and its forecast on each card.

use kiln_forecast::{Gpu, Step, Time};

/// The part of a card's memory that a step may take: the rest is the driver's, and other programs'.
pub(super) const USABLE: f64 = 0.9;

/// A card's forecast.
pub(super) struct Forecast {
    pub(super) gpu: Gpu,
    pub(super) step: Step,
    pub(super) time: Time,
    /// The largest batch that fits, if it was looked for; 0 if not even one sample does.
    pub(super) largest: Option<u64>,
    pub(super) price: Option<f64>,
}

impl Forecast {
    /// True if the step fits the card's memory.
    pub(super) fn fits(&self) -> bool {
        self.step.peak_bytes as f64 <= USABLE * self.gpu.memory() as f64
    }
}

/// Everything that was asked for beside the cards.
pub(super) struct Job {
    pub(super) model: String,
    pub(super) batch: u64,
    pub(super) precision: String,
    /// Samples of an epoch.
    pub(super) samples: Option<u64>,
    pub(super) epochs: u64,
    pub(super) noun: &'static str,
}
