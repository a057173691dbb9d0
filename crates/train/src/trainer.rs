//! The training loop's outside: what to do, who looks on, where files go.

use crate::callback::{Callback, Flow};
use crate::{Metric, Result, RunFolder, StopHandle, TrainOptions};
use kiln_core::Backend;
use kiln_nn::optim::{ReduceOnPlateau, Schedule};
use kiln_nn::weights::Metadata;
use std::time::Duration;

/// Trains models.
///
/// A trainer holds what does not depend on the model: options, metrics, callbacks, the folder. Model, optimizer and a
/// closure that computes the loss go to [`Trainer::fit`]; see the crate's example.
///
/// The run is a pure function of model, optimizer, loaders and their seeds. Files are written to the folder alone.
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
    /// A trainer that measures the loss alone and keeps no files.
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

    /// Adds someone who looks on.
    pub fn callback(mut self, callback: impl Callback + 'static) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Sets the learning rate of every update from `schedule`, which counts updates from 0, those skipped included: it
    /// ends with the run.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Lowers the learning rate after an epoch when the monitored metric has stopped improving: which way is better is
    /// told by [`Monitor::goal`](crate::Monitor::goal), whatever `plateau.maximize` says. Every [`fit`](Trainer::fit) starts with the state
    /// that `plateau` has here. Beside a [`schedule`](Trainer::schedule), which sets the rate before every update, it
    /// has no effect.
    pub fn reduce_on_plateau(mut self, plateau: ReduceOnPlateau) -> Self {
        self.plateau = Some(plateau);
        self
    }

    /// Keeps history, best and last weights in `folder`.
    pub fn folder(mut self, folder: RunFolder) -> Self {
        self.folder = Some(folder);
        self
    }

    /// Text that weight files carry: the model's name, for one.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Lets `stop` end the run.
    pub fn stop_handle(mut self, stop: StopHandle) -> Self {
        self.stop = stop;
        self
    }

    /// The time that the batch in progress may go on after a request to stop; 2 s unless this is called. Then its step is given
    /// up, and the run ends as it stood after the step before: parameters, running statistics and counters alike. Only the
    /// CPU gives up; a device that captures is waited for.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Tells everyone who looks on; true if anyone wants to stop.
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
