//! Sums the terms of a metric on the device.

use super::Metric;
use crate::Batch;
use kiln_core::{Backend, Result};
use kiln_nn::{State, StorageSnapshot, Tensor};

/// The number of batches after which the sum is read, so that counts in f32 stay exact: below 2²⁴ for batches of up to
/// 16,384 samples.
const READ_AFTER: u32 = 1024;

/// The sum of a metric's terms so far. It is kept on the device in one buffer, and added to a sum on the host in f64 now
/// and then.
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
    /// Creates an empty sum.
    pub fn new() -> Self {
        Running::default()
    }

    /// Adds the term of a batch with the model's scores. Nothing is read from the device, except once in 1024 batches.
    ///
    /// # Errors
    /// The errors of [`Metric::measure`]; an error for a term of another shape than those before.
    pub fn add(&mut self, metric: &dyn Metric<B>, scores: &Tensor<B>, batch: &Batch<B>) -> Result<()> {
        self.record(metric, scores, batch)?;
        self.count(batch.labels.size())
    }

    /// Returns the metric's value over all batches since the last call, and clears the sum.
    ///
    /// # Errors
    /// An error of the device.
    pub fn finish(&mut self, metric: &mut dyn Metric<B>) -> Result<f64> {
        self.settle()?;
        let value = metric.value(&self.host, self.samples);
        self.host.clear();
        self.samples = 0;
        Ok(value)
    }

    /// Clears the sum; the buffer on the device stays.
    pub(crate) fn reset(&mut self) -> Result<()> {
        self.host.clear();
        (self.terms, self.samples) = (0, 0);
        self.sum.as_ref().map_or(Ok(()), |sum| sum.fill(0.0))
    }

    /// The part of [`add`](Running::add) that runs on the device; from the second batch on it writes in place.
    pub(crate) fn record(&mut self, metric: &dyn Metric<B>, scores: &Tensor<B>, batch: &Batch<B>) -> Result<()> {
        let term = metric.measure(scores, batch)?;
        match &self.sum {
            Some(sum) => sum.add(&term),
            None => {
                // The term may share memory with the scores, and the sum is written in place.
                self.sum = Some(State::new(term.copy()?));
                Ok(())
            }
        }
    }

    /// The part of [`add`](Running::add) that runs on the host, also after a batch that was recorded or replayed.
    pub(crate) fn count(&mut self, samples: usize) -> Result<()> {
        self.terms += 1;
        self.samples += samples as u64;
        match self.terms {
            READ_AFTER => self.settle(),
            _ => Ok(()),
        }
    }

    /// Adds the address of the sum to `storage`.
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
