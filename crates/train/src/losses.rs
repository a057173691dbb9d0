//! Losses and their parts, kept on the device until they are read together.

use crate::Values;
use crate::checkpoint::{Mean, PhaseState};
use crate::output::Measured;
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;
use std::collections::BTreeMap;

/// The name of the loss among measured values.
pub(crate) const LOSS: &str = "loss";

/// The means of the loss and of its parts, by name.
#[derive(Debug, Clone, Default)]
struct Means(BTreeMap<String, Mean>);

impl Means {
    fn add(&mut self, name: &str, value: f64, samples: usize) {
        match self.0.get_mut(name) {
            Some(mean) => mean.add(value, samples),
            None => {
                let mut mean = Mean::default();
                mean.add(value, samples);
                self.0.insert(name.to_string(), mean);
            }
        }
    }

    fn values(&self) -> Values {
        self.0.iter().map(|(name, mean)| (name.clone(), mean.value())).collect()
    }
}

/// The first loss that is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NonFiniteAt {
    pub(crate) step: u64,
    pub(crate) value: f64,
}

/// The decision of the device about an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) step: u64,
    pub(crate) skipped: bool,
}

/// What a read has found.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// The first loss that is not finite.
    pub(crate) bad: Option<NonFiniteAt>,
    /// What the device has decided about the steps.
    pub(crate) verdicts: Vec<Verdict>,
}

struct Pending<B: Backend> {
    measured: Measured<B>,
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
    epoch: Means,
    window: Means,
    unreported: usize,
}

impl<B: Backend> Losses<B> {
    pub(crate) fn new() -> Self {
        Losses {
            pending: Vec::new(),
            spare: Vec::new(),
            epoch: Means::default(),
            window: Means::default(),
            unreported: 0,
        }
    }

    /// Clears the losses for another epoch.
    pub(crate) fn reset(&mut self) {
        let copies = self.pending.drain(..).filter(|p| p.copied);
        self.spare.extend(copies.map(|p| p.measured.values));
        (self.epoch, self.window, self.unreported) = (Means::default(), Means::default(), 0);
    }

    /// Keeps the loss of a batch of step `step`. Nothing is read from the device.
    pub(crate) fn push(&mut self, measured: Measured<B>, samples: usize, step: u64) {
        self.file(measured, false, samples, step);
    }

    fn file(&mut self, measured: Measured<B>, copied: bool, samples: usize, step: u64) {
        self.unreported += 1;
        self.pending.push(Pending {
            measured,
            copied,
            samples,
            step,
        });
    }

    /// As [`push`](Losses::push), for a loss that the next replay overwrites: it is copied on the device.
    pub(crate) fn push_copy(&mut self, measured: &Measured<B>, samples: usize, step: u64) -> Result<()> {
        let from = &measured.values;
        let same = |t: &Tensor<B>| (t.dtype(), t.shape()) == (from.dtype(), from.shape());
        let values = match self.spare.pop().filter(same) {
            Some(mut copy) => copy.assign(from).map(|()| copy)?,
            None => from.copy()?,
        };
        let copy = Measured {
            values,
            names: measured.names.clone(),
            decided: measured.decided,
        };
        self.file(copy, true, samples, step);
        Ok(())
    }

    /// Adds what the device has decided about the step of the last loss.
    pub(crate) fn decide(&mut self, skipped: &Tensor<B>) -> Result<()> {
        match self.pending.last_mut() {
            Some(last) => last.measured.decide(skipped, true),
            None => Ok(()),
        }
    }

    /// Allocates memory for `count` copies of losses like `measured`.
    pub(crate) fn reserve(&mut self, count: usize, measured: &Measured<B>) -> Result<()> {
        while self.spare.len() < count {
            self.spare.push(measured.values.copy()?);
        }
        Ok(())
    }

    /// The number of batches since the last [`report`](Losses::report).
    pub(crate) fn unreported(&self) -> usize {
        self.unreported
    }

    /// Reads the pending losses in one transfer. Finite ones go into the means.
    pub(crate) fn read(&mut self) -> Result<Read> {
        let mut found = Read::default();
        if self.pending.is_empty() {
            return Ok(found);
        }
        let flat: Vec<&Tensor<B>> = self.pending.iter().map(|p| &p.measured.values).collect();
        let read = Tensor::concat(&flat, 0)?.to_f64()?;
        let mut rest = &read[..];
        for pending in self.pending.drain(..) {
            let values;
            (values, rest) = rest.split_at(pending.measured.values.size());
            let step = pending.step;
            let names = std::iter::once(LOSS).chain(pending.measured.names.iter().map(String::as_str));
            for (name, &value) in names.zip(values) {
                if value.is_finite() {
                    self.window.add(name, value, pending.samples);
                    self.epoch.add(name, value, pending.samples);
                } else if name == LOSS && found.bad.is_none() {
                    found.bad = Some(NonFiniteAt { step, value });
                }
            }
            if let (true, Some(&skipped)) = (pending.measured.decided, values.last()) {
                let skipped = skipped != 0.0;
                found.verdicts.push(Verdict { step, skipped });
            }
            if pending.copied {
                self.spare.push(pending.measured.values);
            }
        }
        Ok(found)
    }

    /// The means of what was read since the last report; empty if there was nothing.
    pub(crate) fn report(&mut self) -> Values {
        self.unreported = 0;
        std::mem::take(&mut self.window).values()
    }

    /// The numbers of pending and of unreported losses, before a step.
    pub(crate) fn mark(&self) -> (usize, usize) {
        (self.pending.len(), self.unreported)
    }

    /// Drops the losses of a step in progress.
    pub(crate) fn rewind(&mut self, (pending, unreported): (usize, usize)) {
        self.pending.truncate(pending);
        self.unreported = unreported;
    }

    /// The means as a part of a checkpoint. Pending losses are not part of it: they have been read.
    pub(crate) fn state(&self) -> PhaseState {
        PhaseState {
            name: String::new(),
            attempts: 0,
            epoch: self.epoch.0.clone(),
            window: self.window.0.clone(),
            unreported: self.unreported,
            scaler: None,
            plateau: None,
            lr: None,
            norms: None,
        }
    }

    /// Continues from a checkpoint.
    pub(crate) fn restore(&mut self, state: &PhaseState) {
        self.epoch = Means(state.epoch.clone());
        self.window = Means(state.window.clone());
        self.unreported = state.unreported;
    }

    /// The means of all that was read in this epoch; the loss is NaN before the first.
    pub(crate) fn means(&self) -> Values {
        let mut means = self.epoch.values();
        means.entry(LOSS.to_string()).or_insert(f64::NAN);
        means
    }
}
