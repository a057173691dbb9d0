//! Looking on while a run goes: progress bars, logs, experiments' own rules to stop.

use crate::{EpochRecord, Result, Warning};
use kiln_core::Interrupt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The size of a run that is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Epochs.
    pub epochs: u64,
    /// Batches of one epoch.
    pub batches: u64,
    /// Samples of one epoch.
    pub samples: u64,
    /// True if there is a validation set.
    pub validates: bool,
}

/// The state of a run after a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepInfo {
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// The batch of the epoch, counted from 1.
    pub batch: u64,
    /// Optimizer steps done over the whole run; those skipped are not counted.
    pub step: u64,
    /// Samples of this epoch trained on.
    pub samples: u64,
    /// Seconds since the epoch began.
    pub seconds: f64,
    /// The learning rate.
    pub lr: f64,
    /// The mean loss of the batches since it was last read, at those batches where it was read: reading waits for the
    /// device, so it happens every so many batches.
    pub loss: Option<f64>,
}

/// A callback's wish for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Stop the run after this batch or epoch, as if it had been interrupted.
    Stop,
}

/// Something that looks on. Every method has an empty default.
pub trait Callback {
    /// Before the first batch.
    ///
    /// # Errors
    /// Ends the run, as in all methods.
    fn on_start(&mut self, plan: &Plan) -> Result<()> {
        let _ = plan;
        Ok(())
    }

    /// After a batch.
    ///
    /// # Errors
    /// Ends the run.
    fn on_step(&mut self, info: &StepInfo) -> Result<Flow> {
        let _ = info;
        Ok(Flow::Continue)
    }

    /// After an epoch with its validation.
    ///
    /// # Errors
    /// Ends the run.
    fn on_epoch_end(&mut self, record: &EpochRecord) -> Result<Flow> {
        let _ = record;
        Ok(Flow::Continue)
    }

    /// When something happened to the run's folder that did not end the run. [`Report::warnings`](crate::Report::warnings)
    /// holds it too.
    fn on_warning(&mut self, warning: &Warning) {
        let _ = warning;
    }

    /// After the last epoch, also of a run that stopped early or failed.
    fn on_end(&mut self) {}
}

/// Asks a run to stop, from a signal handler or another thread: the batch in progress is finished or, if that takes too
/// long, given up ([`Trainer::grace`](crate::Trainer::grace)); the last weights are saved and `fit` returns.
#[derive(Debug, Clone, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl StopHandle {
    /// A handle that nobody has used.
    pub fn new() -> Self {
        StopHandle::default()
    }

    /// A handle over a flag that something else sets, such as a signal handler.
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

    /// Says yes once the run has been asked to stop and `grace` has passed since that was first seen.
    pub(crate) fn interrupt(&self, grace: Duration) -> Interrupt {
        let (stop, seen) = (self.clone(), OnceLock::new());
        Arc::new(move || stop.is_requested() && seen.get_or_init(Instant::now).elapsed() >= grace)
    }
}
