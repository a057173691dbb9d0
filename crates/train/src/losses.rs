//! Losses, kept on the device until they are read together.

use kiln_core::{Backend, Result};
use kiln_nn::Tensor;

/// A mean of losses weighted by their samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Mean {
    sum: f64,
    samples: u64,
}

impl Mean {
    fn add(&mut self, loss: f64, samples: usize) {
        self.sum += loss * samples as f64;
        self.samples += samples as u64;
    }

    /// The mean; NaN without samples.
    fn value(&self) -> f64 {
        self.sum / self.samples as f64
    }
}

/// The first loss that is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NonFiniteAt {
    pub(crate) step: u64,
    pub(crate) value: f64,
}

struct Pending<B: Backend> {
    loss: Tensor<B>,
    /// True if the tensor comes from `spare`.
    copied: bool,
    samples: usize,
    step: u64,
}

/// The losses of an epoch. Each is kept on the device, so that the first bad one can be named; they are read together.
pub(crate) struct Losses<B: Backend> {
    pending: Vec<Pending<B>>,
    /// Tensors that hold copies of losses, reused after each read.
    spare: Vec<Tensor<B>>,
    epoch: Mean,
    window: Mean,
    unreported: usize,
}

impl<B: Backend> Losses<B> {
    pub(crate) fn new() -> Self {
        Losses {
            pending: Vec::new(),
            spare: Vec::new(),
            epoch: Mean::default(),
            window: Mean::default(),
            unreported: 0,
        }
    }

    /// Clears the losses for another epoch.
    pub(crate) fn reset(&mut self) {
        let copies = self.pending.drain(..).filter(|p| p.copied);
        self.spare.extend(copies.map(|p| p.loss));
        (self.epoch, self.window, self.unreported) = (Mean::default(), Mean::default(), 0);
    }

    /// Keeps the loss of a batch of step `step`. Nothing is read from the device.
    pub(crate) fn push(&mut self, loss: &Tensor<B>, samples: usize, step: u64) {
        self.file(loss.detach(), false, samples, step);
    }

    fn file(&mut self, loss: Tensor<B>, copied: bool, samples: usize, step: u64) {
        self.unreported += 1;
        self.pending.push(Pending {
            loss,
            copied,
            samples,
            step,
        });
    }

    /// As [`push`](Losses::push), for a loss that the next replay overwrites: it is copied on the device.
    pub(crate) fn push_copy(&mut self, loss: &Tensor<B>, samples: usize, step: u64) -> Result<()> {
        let same = |t: &Tensor<B>| (t.dtype(), t.shape()) == (loss.dtype(), loss.shape());
        let copy = match self.spare.pop().filter(same) {
            Some(mut copy) => copy.assign(loss).map(|()| copy)?,
            None => loss.copy()?,
        };
        self.file(copy, true, samples, step);
        Ok(())
    }

    /// Allocates memory for `count` copies of losses like `loss`.
    pub(crate) fn reserve(&mut self, count: usize, loss: &Tensor<B>) -> Result<()> {
        while self.spare.len() < count {
            self.spare.push(loss.copy()?);
        }
        Ok(())
    }

    /// The number of batches since the last [`report`](Losses::report).
    pub(crate) fn unreported(&self) -> usize {
        self.unreported
    }

    /// Reads the pending losses in one transfer. Finite ones go into the means; the first of the others is returned.
    pub(crate) fn read(&mut self) -> Result<Option<NonFiniteAt>> {
        let mut bad = None;
        if self.pending.is_empty() {
            return Ok(bad);
        }
        let flat: Vec<Tensor<B>> = self
            .pending
            .iter()
            .map(|p| p.loss.reshape(&[1usize]))
            .collect::<Result<_>>()?;
        let values = Tensor::concat(&flat.iter().collect::<Vec<_>>(), 0)?.to_f64()?;
        drop(flat);
        for (pending, value) in self.pending.drain(..).zip(values) {
            if value.is_finite() {
                self.window.add(value, pending.samples);
                self.epoch.add(value, pending.samples);
            } else if bad.is_none() {
                let step = pending.step;
                bad = Some(NonFiniteAt { step, value });
            }
            if pending.copied {
                self.spare.push(pending.loss);
            }
        }
        Ok(bad)
    }

    /// The mean of the losses read since the last report; `None` if there were none.
    pub(crate) fn report(&mut self) -> Option<f64> {
        self.unreported = 0;
        let mean = std::mem::take(&mut self.window).value();
        (!mean.is_nan()).then_some(mean)
    }

    /// The mean of all losses read in this epoch.
    pub(crate) fn mean(&self) -> f64 {
        self.epoch.value()
    }
}
