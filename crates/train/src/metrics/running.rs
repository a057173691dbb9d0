//! Sums or gathers the terms of a metric over an epoch.

use super::{Metric, Reduction};
use crate::checkpoint::MetricState;
use crate::{Output, Values};
use kiln_core::{Backend, Error, Result};
use kiln_nn::module::{StateDict, Value};
use kiln_nn::{Indices, State, StorageSnapshot, Tensor};

/// The names of the tensors of a metric in a checkpoint.
const SUM: &str = "sum";
const HOST: &str = "host";
const TERM: &str = "term";

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
    /// The terms gathered so far with their shapes, if they are kept until the end so that a checkpoint can hold them.
    gathered: Option<Vec<(Vec<f64>, Vec<usize>)>>,
}

/// The measure of a metric before a step.
pub(crate) struct Mark<B: Backend> {
    sum: Option<Tensor<B>>,
    terms: u32,
    samples: u64,
    measured: bool,
    gathered: usize,
}

impl<B: Backend> Default for Running<B> {
    fn default() -> Self {
        Running {
            sum: None,
            terms: 0,
            host: Vec::new(),
            samples: 0,
            measured: false,
            gathered: None,
        }
    }
}

/// Numbers of the host as a tensor of any device, also of one without f64: the low and the high 32 bits of each along a last
/// dimension of 2.
fn to_words<B: Backend>(backend: &B, values: &[f64], shape: &[usize]) -> Result<Indices<B>> {
    let words = values.iter().map(|value| value.to_bits());
    let words: Vec<i32> = words.flat_map(|bits| [bits as i32, (bits >> 32) as i32]).collect();
    Indices::from_slice(backend, &words, &[shape, &[2]].concat()[..])
}

/// The numbers of [`to_words`], and their shape.
fn from_words<B: Backend>(words: &Indices<B>) -> Result<(Vec<f64>, Vec<usize>)> {
    let values = words.to_vec::<i32>()?;
    let joined = values.as_chunks::<2>().0.iter();
    let values = joined.map(|[low, high]| f64::from_bits(u64::from(*low as u32) | u64::from(*high as u32) << 32));
    let shape = words.shape().split_last().map_or(&[][..], |(_, shape)| shape);
    Ok((values.collect(), shape.to_vec()))
}

impl<B: Backend> Running<B> {
    /// Creates an empty measure.
    pub fn new() -> Self {
        Running::default()
    }

    /// Creates an empty measure whose state can be part of a checkpoint.
    pub(crate) fn resumable() -> Self {
        Running {
            gathered: Some(Vec::new()),
            ..Running::default()
        }
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
        self.count(metric, term.as_ref(), samples)?;
        self.settle_if_due(metric)
    }

    /// Returns the metric's values over all batches since the last call, by name, and starts anew. Without a batch there are
    /// none.
    ///
    /// # Errors
    /// An error of the device; the metric's [failure](Metric::failure).
    pub fn finish(&mut self, metric: &mut dyn Metric<B>) -> Result<Values> {
        self.settle()?;
        let mut values = Values::new();
        if std::mem::take(&mut self.measured) {
            for (term, shape) in self.gathered.iter_mut().flat_map(std::mem::take) {
                metric.observe(&term, &shape);
            }
            let value = metric.value(&self.host, self.samples);
            if let Some(error) = metric.failure() {
                self.host.clear();
                self.samples = 0;
                return Err(error);
            }
            values.extend(metric.details());
            values.insert(metric.name(), value);
        }
        self.host.clear();
        self.samples = 0;
        Ok(values)
    }

    /// Clears the measure; the buffer on the device stays.
    pub(crate) fn reset(&mut self, metric: &mut dyn Metric<B>) -> Result<()> {
        match &mut self.gathered {
            Some(terms) => terms.clear(),
            // What was observed is forgotten along with its value.
            None if self.measured && metric.reduction() == Reduction::Gather => {
                metric.value(&[], self.samples);
                metric.failure();
            }
            None => {}
        }
        self.measured = false;
        self.host.clear();
        (self.terms, self.samples) = (0, 0);
        self.sum.as_ref().map_or(Ok(()), |sum| sum.fill(0.0))
    }

    /// The part of [`add`](Running::add) that runs on the device; from the second batch on a sum is written in place. Returns a
    /// term that is to be gathered.
    pub(crate) fn record(&mut self, metric: &dyn Metric<B>, output: &Output<B>) -> Result<Option<Tensor<B>>> {
        match (&self.sum, metric.reduction()) {
            (_, Reduction::Gather) => return metric.measure(output).map(Some),
            (Some(sum), Reduction::Sum) => metric.add_to(output, sum)?,
            // The term may share memory with the scores, and the sum is written in place.
            (None, Reduction::Sum) => self.sum = Some(State::new(metric.measure(output)?.copy()?)),
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
            let (values, shape) = (term.to_f64()?, term.shape().to_vec());
            match &mut self.gathered {
                Some(terms) => terms.push((values, shape)),
                None => metric.observe(&values, &shape),
            }
            return Ok(());
        }
        self.terms += 1;
        Ok(())
    }

    /// Moves the sum to the host once in a while, between two steps.
    pub(crate) fn settle_if_due(&mut self, metric: &dyn Metric<B>) -> Result<()> {
        match metric.reduction() == Reduction::Sum && self.terms >= READ_AFTER {
            true => self.settle(),
            false => Ok(()),
        }
    }

    /// The measure before a step, to be restored if the step is abandoned. The next term is then added in new memory.
    pub(crate) fn mark(&self) -> Mark<B> {
        Mark {
            sum: self.sum.as_ref().map(State::get),
            terms: self.terms,
            samples: self.samples,
            measured: self.measured,
            gathered: self.gathered.as_ref().map_or(0, Vec::len),
        }
    }

    /// Restores the measure from before a step.
    pub(crate) fn rewind(&mut self, mark: Mark<B>) {
        self.sum = mark.sum.map(State::new);
        (self.terms, self.samples, self.measured) = (mark.terms, mark.samples, mark.measured);
        self.gathered.iter_mut().for_each(|terms| terms.truncate(mark.gathered));
    }

    /// Adds the address of the sum to `storage`.
    pub(crate) fn storage(&self, storage: &mut StorageSnapshot) {
        if let Some(sum) = &self.sum {
            storage.state(sum);
        }
    }

    /// The measure as a part of a checkpoint. The sum on the device is not moved, so that sums round as they would have.
    pub(crate) fn state(&self, backend: &B) -> Result<(MetricState, StateDict<B>)> {
        let mut tensors = StateDict::new();
        if let Some(sum) = &self.sum {
            tensors.insert(SUM, Value::Float(sum.get()));
        }
        tensors.insert(HOST, Value::Int(to_words(backend, &self.host, &[self.host.len()])?));
        let gathered = self.gathered.as_deref().unwrap_or_default();
        for (i, (term, shape)) in gathered.iter().enumerate() {
            tensors.insert(format!("{TERM}.{i}"), Value::Int(to_words(backend, term, shape)?));
        }
        let state = MetricState {
            name: String::new(),
            terms: self.terms,
            samples: self.samples,
            measured: self.measured,
            gathered: gathered.len(),
        };
        Ok((state, tensors))
    }

    /// Continues from a checkpoint.
    pub(crate) fn restore(&mut self, state: &MetricState, tensors: &StateDict<B>) -> Result<()> {
        let lacks = |name: &str| Error::invalid("checkpoint", "metric", name, "a tensor of that name");
        self.sum = tensors.float(SUM).map(|sum| sum.copy().map(State::new)).transpose()?;
        (self.host, _) = from_words(tensors.int(HOST).ok_or_else(|| lacks(HOST))?)?;
        let term = |i| {
            let name = format!("{TERM}.{i}");
            from_words(tensors.int(&name).ok_or_else(|| lacks(&name))?)
        };
        self.gathered = Some((0..state.gathered).map(term).collect::<Result<_>>()?);
        (self.terms, self.samples, self.measured) = (state.terms, state.samples, state.measured);
        Ok(())
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
