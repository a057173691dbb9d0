//! Sums or gathers the terms of a metric over an epoch.

use super::{Metric, Reduction};
use crate::{Output, Values};
use kiln_core::{Backend, Result};
use kiln_nn::{State, StorageSnapshot, Tensor};

/// The number of batches after which the sum is read, so that counts in f32 stay exact: below 2²⁴ for batches of up to
/// 16,384 samples.
const READ_AFTER: u32 = 1024;

/// The measure of a metric over an epoch in progress. A sum is kept on the device in one buffer, and added to a sum on the host in
/// f64 now and then.
pub struct Running<B: Backend> {
    sum: Option<State<B>>,
    terms: u32,
    host: Vec<f64>,
    samples: u64,
    measured: bool,
}

impl<B: Backend> Default for Running<B> {
    fn default() -> Self {
        Running {
            sum: None,
            terms: 0,
            host: Vec::new(),
            samples: 0,
            measured: false,
        }
    }
}

impl<B: Backend> Running<B> {
    /// Creates an empty measure.
    pub fn new() -> Self {
        Running::default()
    }

    /// Adds a batch of `samples` samples, if `output` has what the metric reads. Of a sum nothing is read from the device,
    /// except once in 1024 batches.
    ///
    /// # Errors
    /// The errors of [`Metric::measure`]; an error for a term of another shape than those before.
    pub fn add(&mut self, metric: &mut dyn Metric<B>, output: &Output<B>, samples: usize) -> Result<()> {
        if !output.has(metric.reads()) {
            return Ok(());
        }
        let term = self.record(metric, output)?;
        self.count(metric, term.as_ref(), samples)
    }

    /// Returns the metric's values over all batches since the last call, by name, and starts anew. Without a batch there are
    /// none.
    ///
    /// # Errors
    /// An error of the device.
    pub fn finish(&mut self, metric: &mut dyn Metric<B>) -> Result<Values> {
        self.settle()?;
        if !std::mem::take(&mut self.measured) {
            return Ok(Values::new());
        }
        let value = metric.value(&self.host, self.samples);
        self.host.clear();
        self.samples = 0;
        let mut values: Values = metric.details().into_iter().collect();
        values.insert(metric.name(), value);
        Ok(values)
    }

    /// Clears the measure; the buffer on the device stays.
    pub(crate) fn reset(&mut self, metric: &mut dyn Metric<B>) -> Result<()> {
        if std::mem::take(&mut self.measured) && metric.reduction() == Reduction::Gather {
            // What was observed is forgotten along with its value.
            metric.value(&[], self.samples);
        }
        self.host.clear();
        (self.terms, self.samples) = (0, 0);
        self.sum.as_ref().map_or(Ok(()), |sum| sum.fill(0.0))
    }

    /// The part of [`add`](Running::add) that runs on the device; from the second batch on a sum is written in place. Returns a
    /// term that is to be gathered.
    pub(crate) fn record(&mut self, metric: &dyn Metric<B>, output: &Output<B>) -> Result<Option<Tensor<B>>> {
        let term = metric.measure(output)?;
        match (&self.sum, metric.reduction()) {
            (_, Reduction::Gather) => return Ok(Some(term)),
            (Some(sum), Reduction::Sum) => sum.add(&term)?,
            // The term may share memory with the scores, and the sum is written in place.
            (None, Reduction::Sum) => self.sum = Some(State::new(term.copy()?)),
        }
        Ok(None)
    }

    /// The part of [`add`](Running::add) that runs on the host, also after a batch that was recorded or replayed.
    pub(crate) fn count(
        &mut self,
        metric: &mut dyn Metric<B>,
        gathered: Option<&Tensor<B>>,
        samples: usize,
    ) -> Result<()> {
        self.measured = true;
        self.samples += samples as u64;
        if let Some(term) = gathered {
            metric.observe(&term.to_f64()?, term.shape());
            return Ok(());
        }
        self.terms += 1;
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
