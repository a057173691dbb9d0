//! Callbacks of a run: for progress bars, logs and custom stopping rules.

use crate::{EpochRecord, JournalEntry, Reading, Result, Values, Warning};
use kiln_core::Interrupt;
use kiln_data::Position;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The size of a run that is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The number of epochs.
    pub epochs: u64,
    /// The number of batches in one epoch.
    pub batches: u64,
    /// The number of samples in one epoch.
    pub samples: u64,
    /// True if there is a validation set.
    pub validates: bool,
    /// The next batch of a run that goes on from a checkpoint; `None` for a run from its beginning.
    pub resumed: Option<Position>,
    /// Optimizer steps done before; those skipped are not counted. 0 for a run from its beginning.
    pub step: u64,
    /// True if the epoch in progress has been told to [`Callback::on_epoch_end`] before, after `step`: the run had ended within it,
    /// by [`TrainOptions::max_steps`](crate::TrainOptions::max_steps). It is told again once it is whole.
    pub told: bool,
}

/// The state of a run after a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct StepInfo {
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// The batch of the epoch, counted from 1.
    pub batch: u64,
    /// Optimizer steps done over the whole run; those skipped are not counted once their losses have been read.
    pub step: u64,
    /// The number of samples of this epoch trained on so far.
    pub samples: u64,
    /// Seconds since the epoch began.
    pub seconds: f64,
    /// Those of these seconds in which the loop waited for a batch of the loader.
    pub waiting: f64,
    /// The learning rate, of the first phase if there are several.
    pub lr: f64,
    /// The mean loss since the last read, of the first phase if there are several. `None` for most batches: a read waits for the device, so the losses are read only
    /// every [`TrainOptions::log_every`](crate::TrainOptions::log_every) batches.
    pub loss: Option<f64>,
    /// The means since the last read of the loss and its parts, of all phases; empty when nothing was read.
    pub values: Values,
}

/// The return value of a callback: continue or stop the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Continue the run.
    Continue,
    /// Stop the run after this batch or epoch, as if it had been interrupted.
    Stop,
}

/// A hook into a run. Every method has an empty default. An error of any method ends the run.
pub trait Callback {
    /// Called before the first batch.
    ///
    /// # Errors
    /// Any error ends the run.
    fn on_start(&mut self, plan: &Plan) -> Result<()> {
        let _ = plan;
        Ok(())
    }

    /// Called after each batch.
    ///
    /// # Errors
    /// Ends the run.
    fn on_step(&mut self, info: &StepInfo) -> Result<Flow> {
        let _ = info;
        Ok(Flow::Continue)
    }

    /// Called after each epoch and its validation.
    ///
    /// # Errors
    /// Any error ends the run.
    fn on_epoch_end(&mut self, record: &EpochRecord) -> Result<Flow> {
        let _ = record;
        Ok(Flow::Continue)
    }

    /// The measurements of the callback since the last call of this, for [`EpochRecord::machine`]. Called when the training of an epoch
    /// begins, where what it returns is dropped, before each checkpoint, and when the training of an epoch has ended; and so around its
    /// validation, of which the sums are kept by names of their own (`valid_joules`).
    fn readings(&mut self) -> Vec<Reading> {
        Vec::new()
    }

    /// True if [`on_epoch_end`](Callback::on_epoch_end) relies on the weights of the epoch being in the run's folder, as it does unless it
    /// says otherwise. They are on the disk then before it is called and before the history has the epoch. Without such a callback another
    /// thread writes them while the run goes on, and a process that is killed may leave a history that is an epoch ahead of them.
    fn reads_weights(&self) -> bool {
        true
    }

    /// Called when the run has done what its [`Control`](crate::Control) was asked for, and when it goes on from a checkpoint with a
    /// journal.
    fn on_journal(&mut self, entry: &JournalEntry) {
        let _ = entry;
    }

    /// Called when the run's folder was changed from outside, or a step was left out, and the run goes on. The warning is also in
    /// [`Report::warnings`](crate::Report::warnings).
    fn on_warning(&mut self, warning: &Warning) {
        let _ = warning;
    }

    /// Called after the last epoch, also if the run stopped early or failed.
    fn on_end(&mut self) {}
}

/// A closure as the callback of every step.
pub(crate) struct OnStep<F>(pub(crate) F);

impl<F: FnMut(&StepInfo) -> Result<Flow>> Callback for OnStep<F> {
    fn on_step(&mut self, info: &StepInfo) -> Result<Flow> {
        (self.0)(info)
    }

    fn reads_weights(&self) -> bool {
        false
    }
}

/// A closure as the callback of every epoch.
pub(crate) struct OnEpochEnd<F>(pub(crate) F);

impl<F: FnMut(&EpochRecord) -> Result<Flow>> Callback for OnEpochEnd<F> {
    fn on_epoch_end(&mut self, record: &EpochRecord) -> Result<Flow> {
        (self.0)(record)
    }
}

/// A handle that asks a run to stop, from a signal handler or another thread. The batch in progress is finished, or
/// abandoned after [`Trainer::grace`](crate::Trainer::grace); the last weights are saved and `fit` returns.
#[derive(Debug, Clone, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl StopHandle {
    /// Creates a handle on which no stop is requested.
    pub fn new() -> Self {
        StopHandle::default()
    }

    /// Creates a handle on an existing flag, for example one that a signal handler sets.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        StopHandle(flag)
    }

    /// Asks the run to stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// True if the run has been asked to stop.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns a function that is true once `grace` has passed since it first saw the request to stop.
    pub(crate) fn interrupt(&self, grace: Duration) -> Interrupt {
        let (stop, seen) = (self.clone(), OnceLock::new());
        Arc::new(move || stop.is_requested() && seen.get_or_init(Instant::now).elapsed() >= grace)
    }
}
