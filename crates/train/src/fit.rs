//! [`Trainer::fit`]: the checks and callbacks around a run.

use crate::callback::Plan;
use crate::evaluate::check_monitor;
use crate::run::Run;
use crate::{Batch, History, Output, Report, Result, RunFolder, TrainError, Trainer};
use kiln_core::Backend;
use kiln_data::Loader;
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
    /// error of an op with its step, [`TrainError::NonFiniteLoss`], [`TrainError::NonFiniteWeights`],
    /// [`TrainError::TooManySkipped`], [`TrainError::File`], [`TrainError::FolderRemoved`], and errors of callbacks.
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
}
