//! [`Trainer::fit`]: the checks and callbacks around a run.

use crate::callback::Plan;
use crate::freeze::freeze;
use crate::run::Run;
use crate::{
    Checkpoint, EpochRecord, History, Output, Phase, Report, Result, RunFolder, TrainError, Trainer, Validation,
};
use kiln_core::Backend;
use kiln_data::{Batch, Loader, Position};
use kiln_nn::{Module, Optimizer};

impl<B: Backend> Trainer<B> {
    /// Trains `model` on `train` and evaluates it on `valid` after each epoch.
    ///
    /// `step` computes the mean loss of a batch, in training and in validation: usually the model's forward pass and
    /// a loss function, with the scores for metrics.
    ///
    /// On a backend that captures (CUDA), steps of one shape are recorded once and replayed
    /// ([`TrainOptions::capture`](crate::TrainOptions::capture)). Then `step` is called only twice for all training batches
    /// of a shape: values that it computes on the host, such as a factor that falls with the number of steps, stay as they
    /// were recorded, and tensors that it keeps are overwritten. If `step` reads from the device or writes to it, all steps
    /// run op by op ([`Report::not_captured`]). Random layers, learning rates and running statistics change from step to
    /// step as they do without capture.
    ///
    /// With a folder, the weights after each epoch are saved as [`RunFolder::LAST`] and those with the best value of the
    /// monitored metric as [`RunFolder::BEST`]. Both are replaced atomically, and never by weights that are not finite.
    /// Files that are removed from the folder during the run are written again if the run still has their contents, and the
    /// run follows a folder that is moved: see [`Report::warnings`]. A run that is asked to stop finishes its batch, saves
    /// [`RunFolder::LAST`] and returns.
    ///
    /// # Errors
    /// [`TrainError::InvalidArgument`], [`TrainError::UnknownMetric`], [`TrainError::Data`], [`TrainError::Step`] for an
    /// error of an op with its step, [`TrainError::NonFiniteLoss`], [`TrainError::Twin`], [`TrainError::NonFiniteWeights`],
    /// [`TrainError::TooManySkipped`], [`TrainError::File`], [`TrainError::FolderRemoved`], and errors of callbacks.
    pub fn fit<M, S, D, T>(
        &mut self,
        model: &mut M,
        optimizer: &mut dyn Optimizer<B>,
        step: S,
        train: &Loader<D, T>,
        valid: Option<&Loader<D, T>>,
    ) -> Result<Report>
    where
        M: Module<B>,
        S: Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>>,
        D: Default + Send + 'static,
        T: Batch,
    {
        let phases = vec![Phase::new("", optimizer, &step)];
        let valid = valid.map(|loader| Validation::new(loader, &step));
        self.fit_phases(model, phases, train, valid.as_ref())
    }

    /// As [`fit`](Trainer::fit), for steps of several updates, each with its own loss and its own optimizer: see [`Phase`].
    ///
    /// Which weights are best is decided by the metric that [`TrainOptions::monitor`](crate::TrainOptions::monitor) names, such as
    /// `generator/loss`; none are while it names `loss`, which the measured values of phases with names do not have.
    ///
    /// For each step the phases run in their order on the batches of the step. A step that is abandoned after a request to stop may be
    /// so in any phase: what the phases before have done is undone. Where steps are shorter than a quarter of
    /// [`grace`](Trainer::grace), only the first phase is abandoned, since the state before each step would have to be kept for it.
    ///
    /// # Errors
    /// As [`fit`](Trainer::fit); [`TrainError::InvalidArgument`] for no phases, for two of one name, and for a phase without
    /// parameters to train.
    pub fn fit_phases<M, D, T>(
        &mut self,
        model: &mut M,
        phases: Vec<Phase<'_, B, M, T>>,
        train: &Loader<D, T>,
        valid: Option<&Validation<'_, B, M>>,
    ) -> Result<Report>
    where
        M: Module<B>,
        D: Default + Send + 'static,
        T: Batch,
    {
        self.options.check()?;
        self.options.check_names(model)?;
        self.host_states.check()?;
        freeze(model, &self.options.freeze);
        check_phases(&phases, model)?;
        self.check_twin::<T>()?;
        if train.batches() == 0 {
            let samples = train.samples();
            return Err(TrainError::invalid("training samples", samples, "enough for one batch"));
        }
        let checkpoint = self.checkpoint.take();
        let mut plan = Plan {
            epochs: self.options.epochs,
            batches: train.batches() as u64,
            samples: train.samples() as u64,
            validates: valid.is_some(),
            resumed: None,
            step: 0,
            told: false,
        };
        let mut run = Run::new(&mut *self, model, phases)?;
        run.identity = run.identity(train);
        if let Some(checkpoint) = &checkpoint {
            run.restore(checkpoint)?;
            plan.resumed = Some(Position {
                epoch: checkpoint.manifest().epoch() - 1,
                batch: checkpoint.manifest().batch(),
            });
            plan.step = run.updates;
            plan.told = run
                .trainer
                .folder
                .as_ref()
                .is_some_and(|folder| told(folder, checkpoint));
        }
        run.history = history(run.trainer.folder.as_ref(), checkpoint)?;
        for callback in &mut run.trainer.callbacks {
            callback.on_start(&plan)?;
        }
        let begun = plan.resumed.map_or(Ok(()), |_| run.note_resume());
        let result = begun.and_then(|()| run.all(train, valid));
        for callback in &mut self.callbacks {
            callback.on_end();
        }
        result
    }
}

impl<B: Backend> Trainer<B> {
    /// Refuses a twin for another kind of batches.
    fn check_twin<T: Batch>(&self) -> Result<()> {
        let Some(twin) = &self.twin else { return Ok(()) };
        match (twin.is_for::<T>(), twin.every) {
            (false, _) => Err(TrainError::invalid(
                "twin",
                "for other batches",
                "a twin for the batches of the loader",
            )),
            (true, 0) => Err(TrainError::invalid("twin.every", 0, "at least 1")),
            (true, _) => Ok(()),
        }
    }
}

/// True if the history in the folder has a record of the part of an epoch that was made before the checkpoint.
fn told(folder: &RunFolder, checkpoint: &Checkpoint) -> bool {
    let manifest = checkpoint.manifest();
    let text = std::fs::read_to_string(folder.file(RunFolder::HISTORY)).unwrap_or_default();
    let mut records = text
        .lines()
        .filter_map(|line| serde_json::from_str::<EpochRecord>(line).ok());
    records.any(|record| (record.epoch, record.step) == (manifest.epoch(), manifest.updates))
}

/// The history of a new run, or that of a run that goes on.
fn history(folder: Option<&RunFolder>, checkpoint: Option<Checkpoint>) -> Result<History> {
    match (folder, checkpoint) {
        (None, None) => Ok(History::new()),
        (Some(folder), None) => History::in_folder(folder.open(), RunFolder::HISTORY, RunFolder::TABLE),
        (None, Some(checkpoint)) => Ok(History::of(checkpoint.manifest.history)),
        (Some(folder), Some(checkpoint)) => {
            let epochs = checkpoint.manifest.history;
            History::continued(folder.open(), RunFolder::HISTORY, RunFolder::TABLE, epochs)
        }
    }
}

fn check_phases<B: Backend, M: Module<B>, T: Batch>(phases: &[Phase<'_, B, M, T>], model: &M) -> Result<()> {
    if phases.is_empty() {
        return Err(TrainError::invalid("phases", 0, "at least 1"));
    }
    for (i, phase) in phases.iter().enumerate() {
        phase.check(model)?;
        if phases[..i].iter().any(|before| before.name == phase.name) {
            let name = format!("`{}` twice", phase.name);
            return Err(TrainError::invalid("phases", name, "a name for each phase"));
        }
    }
    Ok(())
}
