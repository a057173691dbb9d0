//! Steps of a run that are compared with the twin.

use crate::buffers::Buffers;
use crate::deviation::Recording;
use crate::report::TwinReport;
use crate::run::Run;
use crate::twin::{Given, Twin};
use crate::{Result, TrainError};
use kiln_core::Backend;
use kiln_data::{Batch, Loaded};
use kiln_nn::module::StateDict;
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{Module, trace};

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Compares the step that begins with this batch with the twin, if it is time to. The model is afterwards as it was.
    pub(crate) fn check_twin(&mut self, host: &Loaded<T>) -> Result<()> {
        let Some(mut twin) = self.trainer.twin.take() else {
            return Ok(());
        };
        let mut checked = Ok(());
        if self.step.is_multiple_of(twin.every) {
            self.step += 1;
            checked = self.compare_phases(&mut twin, host);
            self.step -= 1;
        }
        self.trainer.twin = Some(twin);
        checked
    }

    fn compare_phases(&mut self, twin: &mut Twin, host: &Loaded<T>) -> Result<()> {
        for at in 0..self.legs.len() {
            if !self.is_turn(at) || !twin.has::<T>(&self.legs[at].phase.name) {
                continue;
            }
            let state = encode(&StateDict::of(&*self.model), &Metadata::new())?;
            let given = Given {
                phase: &self.legs[at].phase.name.clone(),
                state: &state,
                batch: &**host,
                trains: self.trained(at),
                autocast: self.trainer.options.autocast,
                scale: self.loss_factor(at, host.len())?,
            };
            let frozen = self.legs[at].phase.freeze(self.model);
            let recorded = self.recorded(at, host, &given);
            crate::phase::unfreeze(self.model, frozen);
            let (found, compared) = twin.compare(&given, recorded?)?;
            if let Some(deviation) = found {
                return Err(TrainError::Twin {
                    step: self.step,
                    epoch: self.epoch,
                    phase: given.phase.to_string(),
                    deviation: Box::new(deviation),
                    compared,
                });
            }
            let TwinReport { steps, ops } = self.twin.get_or_insert_default();
            *steps += 1;
            *ops += compared as u64;
        }
        Ok(())
    }

    /// Runs forward and backward of a phase op by op, and keeps the results.
    fn recorded(&self, at: usize, host: &Loaded<T>, given: &Given<'_, T>) -> Result<Recording> {
        // True copies: memory that is shared moves when it is written, and with it the recordings of steps would be lost.
        let buffers = Buffers::copy_of(&*self.model);
        let buffers = self.at(buffers)?;
        let batch = host.to_device(&self.trainer.backend)?;
        let (passed, recording) = trace::ops(&*self.model, Recording::default(), || {
            given.backward(&self.forward(at, &batch)?.loss)
        });
        let restored = buffers.restore(&*self.model);
        self.at(passed.and(restored))?;
        Ok(recording)
    }
}
