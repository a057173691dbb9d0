//! The door of the training loop: what is checked and announced around a run.

use crate::callback::Plan;
use crate::evaluate::check_monitor;
use crate::run::Run;
use crate::{Batch, History, Output, Report, Result, RunFolder, TrainError, Trainer};
use kiln_core::Backend;
use kiln_data::Loader;
use kiln_nn::{Module, Optimizer};

impl<B: Backend> Trainer<B> {
    /// Trains `model` on `train`, measuring it on `valid` after each epoch.
    ///
    /// `step` computes the mean loss of a batch, in training and in validation: usually the model's forward pass and
    /// a loss function, with the scores added for metrics.
    ///
    /// On a backend that captures (CUDA), steps of one shape are recorded once and replayed ([`TrainOptions::capture`](crate::TrainOptions::capture)).
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
}
