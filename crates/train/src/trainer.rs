//! The training loop's outside: what to do, who looks on, where files go.

use crate::callback::{Callback, Flow, Plan};
use crate::evaluate::check_monitor;
use crate::run::Run;
use crate::{
    Batch, EpochRecord, Execution, History, Metric, Monitor, Output, Result, RunFolder, StopHandle, TrainError, Warning,
};
use kiln_core::Backend;
use kiln_data::Loader;
use kiln_nn::optim::{ReduceOnPlateau, Schedule};
use kiln_nn::weights::Metadata;
use kiln_nn::{Module, Optimizer};
use std::time::Duration;

/// The bound that keeps gradients small.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clip {
    /// Scales the gradients of the model's parameters so that their common 2-norm is at most this
    /// (`torch.nn.utils.clip_grad_norm_`).
    Norm(f64),
    /// Bounds each of their entries to this distance from 0 (`torch.nn.utils.clip_grad_value_`).
    Value(f64),
}

/// The answer to a loss or a gradient that is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonFinite {
    /// End the run with an error that names the step. The loss of every step is kept, and looked at when losses are read,
    /// every [`TrainOptions::log_every`] batches; up to so many steps follow the bad one, and nothing is saved in between.
    Stop,
    /// Leave the model as it was before the step, running statistics and counters included, and go on with the next
    /// batch; more than `in_a_row` such steps one after the other end the run. Loss and gradients are looked at before
    /// every update, which waits for the device each time: such steps are not captured.
    Skip {
        /// Steps in a row that may be skipped.
        in_a_row: u64,
    },
}

/// The options of a run. The default trains for one epoch and does nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainOptions {
    /// Passes over the training data.
    pub epochs: u64,
    /// Batches whose gradients are averaged, weighted by their samples, for one update: as if they had been one
    /// batch. The last update of an epoch takes what is left. They are taken one at a time, and their samples dropped, unless
    /// the step is captured; a step of more than 16 batches is not.
    pub accumulate: usize,
    /// The bound that keeps gradients small.
    pub clip: Option<Clip>,
    /// Batches between two reads of the loss.
    pub log_every: usize,
    /// The answer to NaN.
    pub non_finite: NonFinite,
    /// The metric that decides which weights are best.
    pub monitor: Monitor,
    /// Ends the run after this many epochs without improvement.
    pub patience: Option<u64>,
    /// Ends the run after this many updates, those skipped included. The epoch in progress ends with it, and is measured
    /// and saved as a whole one is.
    pub max_steps: Option<u64>,
    /// Lets a backend that can record a step do so and replay it: the same results, bit for bit, in one launch a step. The
    /// first batch of a shape runs op by op, the second is recorded, the others are replayed; the first two shapes that
    /// come again are kept (whole batches, and the short one that ends an epoch), any other runs op by op. See
    /// [`Trainer::fit`] for what the closure must not do then.
    ///
    /// With [`NonFinite::Skip`] all steps run op by op.
    pub capture: bool,
}

impl Default for TrainOptions {
    fn default() -> Self {
        TrainOptions {
            epochs: 1,
            accumulate: 1,
            clip: None,
            log_every: 50,
            non_finite: NonFinite::Stop,
            monitor: Monitor::default(),
            patience: None,
            max_steps: None,
            capture: true,
        }
    }
}

impl TrainOptions {
    /// True if steps may be skipped, which takes a look at their gradients.
    pub(crate) fn skips(&self) -> bool {
        matches!(self.non_finite, NonFinite::Skip { .. })
    }

    fn check(&self) -> Result<()> {
        let positive = |name, value: u64| match value {
            0 => Err(TrainError::invalid(name, 0, "at least 1")),
            _ => Ok(()),
        };
        positive("epochs", self.epochs)?;
        positive("accumulate", self.accumulate as u64)?;
        positive("log_every", self.log_every as u64)?;
        positive("patience", self.patience.unwrap_or(1))?;
        positive("max_steps", self.max_steps.unwrap_or(1))?;
        if let Some(Clip::Norm(limit) | Clip::Value(limit)) = self.clip
            && !(limit.is_finite() && limit > 0.0)
        {
            return Err(TrainError::invalid("clip", limit, "a finite number above 0"));
        }
        if self.monitor.min_delta.is_nan() || self.monitor.min_delta < 0.0 {
            return Err(TrainError::invalid(
                "min_delta",
                self.monitor.min_delta,
                "a number of 0 or more",
            ));
        }
        Ok(())
    }
}

/// Why a run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All epochs are done, or [`TrainOptions::max_steps`] updates.
    Finished,
    /// The monitored metric has not improved for [`TrainOptions::patience`] epochs.
    EarlyStopped,
    /// A [`StopHandle`] or a callback asked for it.
    Stopped,
}

/// The results of a run.
#[derive(Debug)]
pub struct Report {
    /// Why it ended.
    pub end: End,
    /// Optimizer steps done; those skipped are not counted.
    pub steps: u64,
    /// The ways in which they were made.
    pub execution: Execution,
    /// Why steps were not captured though that was wanted and the backend can: what stood in the way.
    pub not_captured: Option<String>,
    /// Every whole epoch.
    pub history: History,
    /// Events in the run's folder that did not end the run.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// The epoch with the best value of the monitored metric.
    pub fn best(&self) -> Option<&EpochRecord> {
        self.history.best()
    }
}

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
    /// told by [`Monitor::goal`], whatever `plateau.maximize` says. Every [`fit`](Trainer::fit) starts with the state
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

    /// Trains `model` on `train`, measuring it on `valid` after each epoch.
    ///
    /// `step` computes the mean loss of a batch, in training and in validation: usually the model's forward pass and
    /// a loss function, with the scores added for metrics.
    ///
    /// On a backend that captures (CUDA), steps of one shape are recorded once and replayed ([`TrainOptions::capture`]).
    /// Then `step` runs twice for all training batches of a shape: what it decides on the host, such as a factor that
    /// falls with the steps it has counted, stays as it was recorded, and tensors that it keeps are overwritten. Reading
    /// from the device or writing to it inside of `step` makes all steps run op by op ([`Report::not_captured`]). Random
    /// layers, learning rates and running statistics change from step to step as they do without.
    ///
    /// With a folder, the weights after each epoch are saved as [`RunFolder::LAST`], those with the best value of the
    /// monitored metric as [`RunFolder::BEST`]; both are replaced atomically, and never by weights that are not finite.
    /// Files that somebody removes from the folder meanwhile are written again where the run still holds what was in them,
    /// and a folder that is moved is followed: see [`Report::warnings`].
    /// A run that is asked to stop finishes its batch, saves [`RunFolder::LAST`] and returns.
    ///
    /// # Errors
    /// Options outside their domain, a monitored metric that is not measured, data that does not read, errors of ops with
    /// the step they happened at, [`TrainError::NonFiniteLoss`] and its kin, files that cannot be written.
    pub fn fit<M, S>(
        &mut self,
        model: &mut M,
        optimizer: &mut dyn Optimizer<B>,
        step: S,
        train: &Loader,
        valid: Option<&Loader>,
    ) -> Result<Report>
    where
        M: Module<B>,
        S: Fn(&M, &Batch<B>) -> kiln_core::Result<Output<B>>,
    {
        self.options.check()?;
        let names: Vec<String> = self.metrics.iter().map(|m| m.name()).collect();
        check_monitor(&self.options.monitor, &names)?;
        if train.batches() == 0 {
            let samples = train.dataset().len();
            return Err(TrainError::invalid("training samples", samples, "enough for one batch"));
        }
        let history = match &self.folder {
            Some(folder) => History::in_folder(folder.open(), RunFolder::HISTORY)?,
            None => History::new(),
        };
        let plan = Plan {
            epochs: self.options.epochs,
            batches: train.batches() as u64,
            samples: train.samples() as u64,
            validates: valid.is_some(),
        };
        for callback in &mut self.callbacks {
            callback.on_start(&plan)?;
        }
        let result = Run::new(self, model, optimizer, &step, history).all(train, valid);
        for callback in &mut self.callbacks {
            callback.on_end();
        }
        result
    }

    /// Tells everyone who looks on; whether anyone wants to stop.
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
