//! What a run that ends for lack of memory still writes: a checkpoint of a later step than its last one, where there is such a state.

use crate::run::Run;
use crate::{Result, TrainError};
use kiln_core::Backend;
use kiln_data::{Batch, DataError};
use kiln_nn::Module;

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Writes the state that was kept in memory as a checkpoint, if memory ran out and the state is a later one than that of the last
    /// checkpoint. An error of its own matters less than that of the run.
    pub(crate) fn rescue(&mut self, error: &TrainError) {
        let (Some(kept), Some(writer), Some(checkpoints)) =
            (&self.kept, &mut self.writer, self.trainer.options.checkpoints)
        else {
            return;
        };
        if !error.is_out_of_memory() || kept.manifest.step <= self.checkpointed.0 {
            return;
        }
        let mut manifest = kept.manifest.clone();
        let epochs = self.history.epochs().iter();
        manifest.history = epochs.filter(|e| e.epoch < manifest.epoch).cloned().collect();
        let _ = writer
            .checkpoint(manifest, kept.tensors.clone(), checkpoints.keep)
            .and_then(|()| writer.finish());
    }

    /// The result of a validation, with the step in its error. Where memory ran out, the steps before are kept in a checkpoint.
    pub(crate) fn of_validation<R>(&mut self, result: Result<R>) -> Result<R> {
        let (step, epoch) = (self.step, self.epoch);
        result.map_err(|error| {
            // The model may be in the middle of exchanging its weights for averaged ones.
            if error.is_out_of_memory() && self.averaged.is_none() {
                let _ = self.checkpoint();
            }
            match error {
                TrainError::Tensor(source) => TrainError::Validation { step, epoch, source },
                // The device had no room for a batch.
                TrainError::Data(DataError::Tensor(source)) => TrainError::Validation {
                    step,
                    epoch,
                    source: *source,
                },
                other => other,
            }
        })
    }
}
