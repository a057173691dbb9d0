//! The sum of a metric's measures on the device.

use super::Metric;
use crate::Batch;
use kiln_core::{Backend, Result};
use kiln_nn::{State, StorageSnapshot, Tensor};

/// Batches after which the sum is read, so that counts in f32 stay exact: below 2²⁴ for batches of up to 16,384.
const READ_AFTER: u32 = 1024;

/// The sum of what a metric has measured so far. The sum lies on the device, in one place; now and then it moves to the host.
pub struct Running<B: Backend> {
    sum: Option<State<B>>,
    terms: u32,
    host: Vec<f64>,
    samples: u64,
}

impl<B: Backend> Default for Running<B> {
    fn default() -> Self {
        Running {
            sum: None,
            terms: 0,
            host: Vec::new(),
            samples: 0,
        }
    }
}

impl<B: Backend> Running<B> {
    /// Nothing measured.
    pub fn new() -> Self {
        Running::default()
    }

    /// Takes a batch with the model's scores. Nothing is read, but for once in 1024 batches.
    ///
    /// # Errors
    /// As [`Metric::measure`]; a measure of another shape than those before.
    pub fn add(&mut self, metric: &dyn Metric<B>, scores: &Tensor<B>, batch: &Batch<B>) -> Result<()> {
        self.record(metric, scores, batch)?;
        self.count(batch.labels.size())
    }

    /// The metric's value over all batches since the last call, then starts anew.
    ///
    /// # Errors
    /// The device.
    pub fn finish(&mut self, metric: &mut dyn Metric<B>) -> Result<f64> {
        self.settle()?;
        let value = metric.value(&self.host, self.samples);
        self.host.clear();
        self.samples = 0;
        Ok(value)
    }

    /// Forgets what was measured; the place on the device stays.
    pub(crate) fn reset(&mut self) -> Result<()> {
        self.host.clear();
        (self.terms, self.samples) = (0, 0);
        self.sum.as_ref().map_or(Ok(()), |sum| sum.fill(0.0))
    }

    /// The device's part of [`add`](Running::add): from the second batch on it writes in place.
    pub(crate) fn record(&mut self, metric: &dyn Metric<B>, scores: &Tensor<B>, batch: &Batch<B>) -> Result<()> {
        let term = metric.measure(scores, batch)?;
        match &self.sum {
            Some(sum) => sum.add(&term),
            None => {
                // A measure may share its memory with the scores; the sum is written.
                self.sum = Some(State::new(term.copy()?));
                Ok(())
            }
        }
    }

    /// The host's part of [`add`](Running::add), for a batch that was recorded or replayed.
    pub(crate) fn count(&mut self, samples: usize) -> Result<()> {
        self.terms += 1;
        self.samples += samples as u64;
        match self.terms {
            READ_AFTER => self.settle(),
            _ => Ok(()),
        }
    }

    /// Adds the memory that the sum lies in.
    pub(crate) fn storage(&self, storage: &mut StorageSnapshot) {
        if let Some(sum) = &self.sum {
            storage.state(sum);
        }
    }

    /// Moves the sum to the host.
    fn settle(&mut self) -> Result<()> {
        let Some(sum) = self.sum.as_ref().filter(|_| self.terms > 0) else {
            return Ok(());
        };
        let values = sum.get().to_f64()?;
        sum.fill(0.0)?;
        self.terms = 0;
        self.host.resize(values.len(), 0.0);
        for (total, value) in self.host.iter_mut().zip(values) {
            *total += value;
        }
        Ok(())
    }
}
