//! Steps of a run that are compared with the twin, and capsules of such steps.

use crate::buffers::Buffers;
use crate::cause::{Cause, Place};
use crate::deviation::Recording;
use crate::find::CAPSULES;
use crate::report::TwinReport;
use crate::run::Run;
use crate::twin::{Given, Twin};
use crate::{Deviation, Output, Result, TrainError, Warning};
use kiln_core::Backend;
use kiln_data::{Batch, Loaded, arrays_of};
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
            let held = self.trainer.host_states.hold();
            self.step += 1;
            checked = self.compare_phases(&mut twin, host);
            self.step -= 1;
            self.trainer.host_states.put_back(held);
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
            let on_device = host.to_device(&self.trainer.backend)?;
            let batch = encode(&arrays_of::<T, B>(&on_device), &Metadata::new())?;
            let given = Given {
                phase: &self.legs[at].phase.name.clone(),
                state: &state,
                batch: &batch,
                trains: self.trained(at),
                autocast: self.trainer.options.autocast,
                scale: self.loss_factor(at, host.len())?,
            };
            let frozen = self.legs[at].phase.freeze(self.model);
            let recorded = recorded(&*self.model, &given, || self.forward(at, &on_device));
            crate::phase::unfreeze(self.model, frozen);
            let (found, compared) = twin.compare::<T>(&given, self.at(recorded)?)?;
            let TwinReport { steps, ops, outside } = self.twin.get_or_insert_default();
            *steps += 1;
            *ops += compared as u64;
            if let Some(deviation) = found {
                *outside += 1;
                self.resolve_deviation(at, twin, deviation, compared, host)?;
            }
        }
        Ok(())
    }

    /// Writes a capsule of a step with an op outside of its bound, and ends the run with the error or warns.
    fn resolve_deviation(
        &mut self,
        at: usize,
        twin: &mut Twin,
        deviation: Deviation,
        compared: usize,
        host: &Loaded<T>,
    ) -> Result<()> {
        if twin.warns && !twin.told.insert(deviation.name.clone()) {
            return Ok(());
        }
        let mut cause = Cause {
            step: self.step,
            epoch: self.epoch,
            batch: self.at_epoch.batches + 1,
            phase: self.legs[at].phase.name.clone(),
            place: Place::from(&deviation),
            capsule: None,
        };
        if self.capsules < CAPSULES {
            self.capsules += 1;
            let before = StateDict::of(&*self.model);
            // What was found matters more than an error of the capsule, such as a full disk.
            cause.capsule = self.write_capsule(at, &cause, host, before).unwrap_or_default();
        }
        match twin.warns {
            true => {
                self.warn(Warning::Twin { cause: Box::new(cause) });
                Ok(())
            }
            false => Err(TrainError::Twin {
                step: self.step,
                epoch: self.epoch,
                phase: cause.phase,
                deviation: Box::new(deviation),
                compared,
                capsule: cause.capsule,
            }),
        }
    }
}

/// Runs forward and backward of a step op by op, and keeps the results. The model is afterwards as it was.
pub(crate) fn recorded<B: Backend, M: Module<B>>(
    model: &M,
    given: &Given<'_>,
    forward: impl FnOnce() -> kiln_core::Result<Output<B>>,
) -> kiln_core::Result<Recording> {
    // True copies: memory that is shared moves when it is written, and with it the recordings of steps would be lost.
    let buffers = Buffers::copy_of(model)?;
    let (passed, recording) = trace::ops(model, Recording::default(), || given.backward(&forward()?.loss));
    let restored = buffers.restore(model);
    passed.and(restored)?;
    Ok(recording)
}
