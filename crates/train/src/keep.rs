//! Saves the weights and checkpoints in the run's folder, and repairs the folder if its files are removed during the run.

use crate::checkpoint::Writer;
use crate::run::{ADVICE, Run};
use crate::weights::first_non_finite;
use crate::{Result, RunFolder, TrainError, Warning};
use kiln_core::Backend;
use kiln_data::Batch;
use kiln_nn::{Module, lora};
use std::time::Instant;

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Starts to save the weights after an epoch, and if they are the `best` so far those that were validated under that name too. Waits
    /// for them if a callback reads them.
    pub(crate) fn save_epoch(&mut self, best: bool) -> Result<()> {
        // The last weights are saved before the best, so that the best file is never newer than the last.
        let best = best.then_some(RunFolder::BEST);
        match self.averaged.is_some() {
            true => {
                self.save(&[RunFolder::LAST])?;
                let names: Vec<_> = [RunFolder::AVERAGED].into_iter().chain(best).collect();
                self.with_average(|run| run.write_weights(&names))?;
            }
            false => {
                let names: Vec<_> = [RunFolder::LAST].into_iter().chain(best).collect();
                self.save(&names)?;
            }
        }
        match self.trainer.callbacks.iter().any(|callback| callback.reads_weights()) {
            true => self.finish_writing(),
            false => Ok(()),
        }
    }

    /// Starts to save the weights under each of the names; an error if one of them is not finite.
    pub(crate) fn save(&mut self, names: &[&'static str]) -> Result<()> {
        self.check_finite()?;
        if let Some(writer) = &mut self.writer {
            writer.begin_weights()?;
        }
        self.write_weights(names)
    }

    /// Starts to write the model's weights under each of the names. This thread takes the values, another one encodes and writes them.
    fn write_weights(&mut self, names: &[&'static str]) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let tensors = lora::state_dict(&*self.model).snapshot()?;
        writer.weights(names.to_vec(), tensors, self.trainer.metadata.clone())?;
        self.saved.extend(names);
        Ok(())
    }

    /// Waits until all files are on the disk.
    fn finish_writing(&mut self) -> Result<()> {
        self.writer.as_mut().map_or(Ok(()), Writer::finish)
    }

    /// An error if a weight is not finite, unless the weights after this step were looked at before.
    fn check_finite(&mut self) -> Result<()> {
        if self.finite_at == Some(self.step) {
            return Ok(());
        }
        let found = first_non_finite(self.model);
        if let Some(parameter) = self.at(found)? {
            return Err(self.non_finite_weights(parameter));
        }
        self.finite_at = Some(self.step);
        Ok(())
    }

    /// True if it is time for a checkpoint within the epoch.
    pub(crate) fn is_checkpoint_due(&mut self) -> Result<bool> {
        let (Some(writer), Some(checkpoints)) = (&mut self.writer, self.trainer.options.checkpoints) else {
            return Ok(false);
        };
        writer.poll()?;
        let (step, time) = self.checkpointed;
        Ok(checkpoints.every_steps.is_some_and(|n| self.step - step >= n)
            || checkpoints.every.is_some_and(|every| time.elapsed() >= every))
    }

    /// Writes a checkpoint of the state after the last complete step, if the run writes checkpoints. This thread takes the state,
    /// another one encodes and writes it.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        let (Some(_), Some(checkpoints)) = (&self.writer, self.trainer.options.checkpoints) else {
            return Ok(());
        };
        self.take_readings();
        self.check_finite()?;
        let (mut manifest, tensors) = self.kept_now()?;
        manifest.history = self.history.epochs().to_vec();
        if let Some(writer) = &mut self.writer {
            writer.checkpoint(manifest, tensors, checkpoints.keep)?;
        }
        self.checkpointed = (self.step, Instant::now());
        Ok(())
    }

    /// The error for a parameter or buffer that is not finite.
    pub(crate) fn non_finite_weights(&self, name: String) -> TrainError {
        TrainError::NonFiniteWeights {
            step: self.step,
            epoch: self.epoch,
            name,
            cause: None,
            advice: ADVICE,
        }
    }

    /// Checks whether the run's folder was changed from outside, writes removed files again and warns.
    pub(crate) fn look_after(&mut self) -> Result<()> {
        let Some(folder) = self.trainer.folder.clone() else {
            return Ok(());
        };
        let from = folder.path().to_path_buf();
        if folder.open().is_removed() {
            return Err(TrainError::FolderRemoved { path: from });
        }
        let moved = Warning::Moved { from };
        if !folder.open().is_in_place() && !self.warnings.contains(&moved) {
            self.warn(moved);
        }
        let restored = folder.restore()?;
        restored
            .into_iter()
            .chain(self.history.restore()?)
            .chain(self.journal.restore()?)
            .for_each(|w| self.warn(w));
        Ok(())
    }

    /// Checks at the end of the run that every file is on the disk and every weight file in the folder; writes the last weights again if
    /// need be.
    pub(crate) fn keep_whole(&mut self) -> Result<()> {
        self.finish_writing()?;
        self.look_after()?;
        let Some(folder) = self.trainer.folder.clone() else {
            return Ok(());
        };
        for name in self.saved.clone() {
            if folder.open().contains(name) {
                continue;
            }
            let path = folder.file(name);
            if name == RunFolder::LAST {
                self.save(&[name])?;
                self.finish_writing()?;
                self.warn(Warning::Restored { path });
            } else {
                self.warn(Warning::Lost { path });
            }
        }
        Ok(())
    }

    pub(crate) fn warn(&mut self, warning: Warning) {
        for callback in &mut self.trainer.callbacks {
            callback.on_warning(&warning);
        }
        self.warnings.push(warning);
    }
}
