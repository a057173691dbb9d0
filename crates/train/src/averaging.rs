//! Averages the weights over the steps of a run, and validates them.

use crate::Result;
use crate::run::Run;
use kiln_core::Backend;
use kiln_data::Batch;
use kiln_nn::module::StateDict;
use kiln_nn::{LoadOptions, Module};

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Adds the weights after a step to the average.
    pub(crate) fn average(&mut self) -> Result<()> {
        let (Some(average), step) = (self.trainer.options.average, self.step) else {
            return Ok(());
        };
        if !average.is_due(step) {
            return Ok(());
        }
        let running = match &mut self.averaged {
            Some(running) => running,
            none => none.insert(average.begin(&*self.model)?),
        };
        Ok(running.update(&*self.model)?)
    }

    /// Runs `body` while the model has the averaged weights, if there are any.
    pub(crate) fn with_average<R>(&mut self, body: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let Some(averaged) = &self.averaged else {
            return body(self);
        };
        let own = StateDict::of(&*self.model).copy()?;
        averaged.copy_to(self.model)?;
        let result = body(self);
        self.model
            .load_state_dict(&own, LoadOptions::strict().allow_non_finite())?;
        result
    }

    /// Continues the average from a checkpoint.
    pub(crate) fn restore_average(&mut self, tensors: &StateDict<B>, updates: u64) -> Result<()> {
        if let (Some(average), true) = (self.trainer.options.average, updates > 0) {
            let mut averaged = average.begin(&*self.model)?;
            averaged.load_state_dict(tensors, updates)?;
            self.averaged = Some(averaged);
        }
        Ok(())
    }
}
