//! The settings of the training loop: options, metrics, callbacks, schedule, folder.

use crate::callback::{Callback, Flow};
use crate::{Metric, Result, RunFolder, StopHandle, TrainOptions};
use kiln_core::Backend;
use kiln_nn::optim::{ReduceOnPlateau, Schedule};
use kiln_nn::weights::Metadata;
use std::time::Duration;

/// Trains models.
///
/// A trainer holds what does not depend on the model: options, metrics, callbacks, the folder. [`Trainer::fit`] takes the
/// model, the optimizer and a closure that computes the loss; see the example of the crate.
///
/// A run is a pure function of model, optimizer, loaders and their seeds. Files are written only into the folder.
pub struct Trainer<B: Backend> {
    pub(crate) backend: B,
    pub(crate) options: TrainOptions,
    pub(crate) metrics: Vec<Box<dyn Metric<B>>>,
    pub(crate) callbacks: Vec<Box<dyn Callback>>,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) plateau: Option<ReduceOnPlateau>,
    pub(crate) folder: Option<RunFolder>,
    pub(crate) metadata: Metadata,
    pub(crate) stop: StopHandle,
    pub(crate) grace: Duration,
}

impl<B: Backend> Trainer<B> {
    /// Creates a trainer that measures only the loss and writes no files.
    pub fn new(backend: &B, options: TrainOptions) -> Self {
        Trainer {
            backend: backend.clone(),
            options,
            metrics: Vec::new(),
            callbacks: Vec::new(),
            schedule: None,
            plateau: None,
            folder: None,
            metadata: Metadata::new(),
            stop: StopHandle::new(),
            grace: Duration::from_secs(2),
        }
    }

    /// Adds a metric, measured in training and in validation.
    pub fn metric(mut self, metric: impl Metric<B> + 'static) -> Self {
        self.metrics.push(Box::new(metric));
        self
    }

    /// Adds a callback.
    pub fn callback(mut self, callback: impl Callback + 'static) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Sets the learning rate of every update from `schedule`, which counts updates from 0, skipped ones included.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Lowers the learning rate when the monitored metric has stopped improving, as PyTorch's `ReduceLROnPlateau` does. The
    /// direction is that of [`Monitor::goal`](crate::Monitor::goal); `plateau.maximize` is ignored. Every
    /// [`fit`](Trainer::fit) starts with the state that `plateau` has here. A [`schedule`](Trainer::schedule) sets the rate
    /// before every update, so that this has no effect beside one.
    pub fn reduce_on_plateau(mut self, plateau: ReduceOnPlateau) -> Self {
        self.plateau = Some(plateau);
        self
    }

    /// Writes the history, the best and the last weights into `folder`.
    pub fn folder(mut self, folder: RunFolder) -> Self {
        self.folder = Some(folder);
        self
    }

    /// Sets the metadata of weight files, such as the model's name.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Sets the handle that stops the run.
    pub fn stop_handle(mut self, stop: StopHandle) -> Self {
        self.stop = stop;
        self
    }

    /// Sets how long the batch in progress may continue after a request to stop; 2 s by default. After that its step is
    /// abandoned, and the run ends with the parameters, running statistics and counters of the step before. Only the CPU
    /// abandons work; a device that captures is waited for.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Calls every callback; true if any returns [`Flow::Stop`].
    pub(crate) fn tell(&mut self, mut event: impl FnMut(&mut dyn Callback) -> Result<Flow>) -> Result<bool> {
        let mut stop = false;
        for callback in &mut self.callbacks {
            stop |= event(&mut **callback)? == Flow::Stop;
        }
        Ok(stop)
    }
}

impl<B: Backend> std::fmt::Debug for Trainer<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer")
            .field("options", &self.options)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}
