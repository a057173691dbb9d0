//! The settings of the training loop: options, metrics, callbacks, schedule, folder.

use crate::callback::{Callback, Flow, OnEpochEnd, OnStep, StepInfo};
use crate::host_state::HostStates;
use crate::{Checkpoint, Control, EpochRecord, Metric, Result, RunFolder, StopHandle, TrainOptions, Twin};
use kiln_core::Backend;
use kiln_nn::optim::{ReduceOnPlateau, Schedule};
use kiln_nn::weights::Metadata;
use serde::Serialize;
use serde::de::DeserializeOwned;
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
    pub(crate) control: Control,
    pub(crate) grace: Duration,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) twin: Option<Twin>,
    pub(crate) host_states: HostStates,
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
            control: Control::new(),
            grace: Duration::from_secs(2),
            checkpoint: None,
            twin: None,
            host_states: HostStates::default(),
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

    /// Calls `look` after every batch: [`Callback::on_step`] of a closure.
    ///
    /// ```
    /// use kiln_cpu::Cpu;
    /// use kiln_train::{Flow, TrainOptions, Trainer};
    ///
    /// let trainer = Trainer::new(&Cpu::new(), TrainOptions::default())
    ///     .on_step(|step| {
    ///         if let Some(loss) = step.loss {
    ///             println!("batch {}: loss {loss}", step.batch);
    ///         }
    ///         Ok(Flow::Continue)
    ///     })
    ///     .on_epoch_end(|epoch| match epoch.train["loss"] < 0.01 {
    ///         true => Ok(Flow::Stop),
    ///         false => Ok(Flow::Continue),
    ///     });
    /// # drop(trainer);
    /// ```
    pub fn on_step(self, look: impl FnMut(&StepInfo) -> Result<Flow> + 'static) -> Self {
        self.callback(OnStep(look))
    }

    /// Calls `look` after every epoch: [`Callback::on_epoch_end`] of a closure. See the example of [`on_step`](Trainer::on_step).
    pub fn on_epoch_end(self, look: impl FnMut(&EpochRecord) -> Result<Flow> + 'static) -> Self {
        self.callback(OnEpochEnd(look))
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

    /// Writes the history, the best and the last weights and checkpoints into `folder`.
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

    /// Sets the handle by which another thread asks the run for a checkpoint, another learning rate, or a stop. Its
    /// [`stop_handle`](Control::stop_handle) takes the place of [`Trainer::stop_handle`].
    pub fn control(mut self, control: Control) -> Self {
        self.stop = control.stop_handle();
        self.control = control;
        self
    }

    /// Sets how long the batch in progress may continue after a request to stop; 2 s by default. After that its step is
    /// abandoned, and the run ends with the parameters, running statistics and counters of the step before. Only the CPU
    /// abandons work; a device that captures is waited for.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Continues the next run from a checkpoint, with which it ends as if it had never stopped: the same weights bit for bit, and
    /// the same history but for the times. Model, optimizers, data and options are made as they were at the start of the run that
    /// was stopped; their state is replaced by the checkpoint's. [`TrainOptions::epochs`] and
    /// [`TrainOptions::max_steps`](crate::TrainOptions::max_steps) may be larger than they were.
    ///
    /// State that closures and callbacks keep outside of the model, such as a generator of random numbers, is part of a checkpoint if
    /// [`host_state`](Trainer::host_state) names it; a [`Noise`](kiln_nn::layers::Noise) or a [`State`](kiln_nn::State) of the model
    /// always is.
    ///
    /// ```
    /// use kiln_cpu::Cpu;
    /// # use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
    /// # use kiln_nn::{Init, Layer, optim::Adam, layers::{Flatten, Linear}, Sequential};
    /// use kiln_train::{Checkpoint, RunFolder, TrainOptions, Trainer};
    /// # use kiln_train::Output;
    /// # use std::sync::Arc;
    /// # let cpu = Cpu::new();
    /// # let parent = std::env::temp_dir().join(format!("kiln-train-resume-{}", std::process::id()));
    /// # let path = parent.join("run");
    /// # let data = Loader::new(Arc::new(Synthetic::images(64, &[3, 3, 1], 2, 0)?), LoaderOptions::default())?;
    /// # let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
    /// #     Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
    /// # };
    /// # let net = || -> Result<_, kiln_nn::Error> {
    /// #     Ok(Sequential::new().push(Flatten::default()).push(Linear::new(&mut Init::new(&cpu, 0), 9, 2)?))
    /// # };
    /// let options = TrainOptions { epochs: 2, ..Default::default() };
    /// let mut trainer = Trainer::new(&cpu, options.clone()).folder(RunFolder::create(&path)?);
    /// trainer.fit(&mut net()?, &mut Adam::new(1e-3), step, &data, None)?;
    /// drop(trainer); // the folder belongs to one trainer at a time
    ///
    /// let folder = RunFolder::reopen(&path)?;
    /// let checkpoint = Checkpoint::latest(&folder)?;
    /// assert_eq!(checkpoint.manifest().epoch(), 3);
    /// let options = TrainOptions { epochs: 4, ..options };
    /// let mut trainer = Trainer::new(&cpu, options).folder(folder).resume(checkpoint);
    /// let report = trainer.fit(&mut net()?, &mut Adam::new(1e-3), step, &data, None)?;
    /// assert_eq!(report.history.epochs().len(), 4);
    /// # std::fs::remove_dir_all(parent)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoint = Some(checkpoint);
        self
    }

    /// Compares the ops of a step with a twin on another backend from time to time. The first op outside of its bound ends the run
    /// with [`TrainError::Twin`](crate::TrainError::Twin). Results of the run do not depend on it.
    pub fn twin(mut self, twin: Twin) -> Self {
        self.twin = Some(twin);
        self
    }

    /// Makes state of the host part of the run: what closures and callbacks keep from step to step, such as a generator of random
    /// numbers, a curriculum or a count. `save` returns it and `load` replaces it; it is anything that serde can write and read,
    /// under a `name` of its own. Lightning has `on_save_checkpoint` and `on_load_checkpoint` for this.
    ///
    /// Checkpoints have it as JSON (`host_state` of the manifest), and a run that goes on from one loads it before its first step. A run
    /// that goes back also goes back with it: before a step that is given up or skipped, after a validation that is stopped, and to
    /// the state in memory after a NaN; steps that are made again after that call the closure again, and callbacks not. A backend
    /// that records steps (CUDA) does not call the closure in each of them: there, state that it changes needs
    /// [`TrainOptions::capture`](crate::TrainOptions::capture) to be off, and that of callbacks does not.
    ///
    /// `save` is called before every step too, in case that is given up, so it should be cheap.
    ///
    /// A state that does not come back from JSON as it was, such as a number that is NaN, is
    /// [`TrainError::HostState`](crate::TrainError::HostState) when it is saved.
    ///
    /// ```
    /// use kiln_cpu::Cpu;
    /// use kiln_train::{Flow, TrainOptions, Trainer};
    /// use std::cell::RefCell;
    /// use std::rc::Rc;
    ///
    /// // A mean of the loss, over all of the run.
    /// let smooth = Rc::new(RefCell::new(None::<f64>));
    /// let (saved, loaded, seen) = (smooth.clone(), smooth.clone(), smooth.clone());
    /// let trainer = Trainer::new(&Cpu::new(), TrainOptions::default())
    ///     .host_state("smooth", move || *saved.borrow(), move |state| *loaded.borrow_mut() = state)
    ///     .on_step(move |step| {
    ///         if let Some(loss) = step.loss {
    ///             let mut smooth = seen.borrow_mut();
    ///             *smooth = Some(smooth.map_or(loss, |mean| 0.99 * mean + 0.01 * loss));
    ///         }
    ///         Ok(Flow::Continue)
    ///     });
    /// # drop(trainer);
    /// ```
    pub fn host_state<S: Serialize + DeserializeOwned + 'static>(
        mut self,
        name: impl Into<String>,
        save: impl Fn() -> S + 'static,
        load: impl Fn(S) + 'static,
    ) -> Self {
        self.host_states.add(name.into(), save, load);
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
