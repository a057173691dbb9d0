//! Saves the weights in the run's folder, and repairs the folder if its files are removed during the run.

use crate::run::{ADVICE, Run};
use crate::weights::{first_non_finite, save_in};
use crate::{Result, RunFolder, TrainError, Warning};
use kiln_core::Backend;
use kiln_data::Batch;
use kiln_nn::Module;

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Saves the weights as `name`; an error if one of them is not finite.
    pub(crate) fn save(&mut self, name: &'static str) -> Result<()> {
        if let Some(parameter) = first_non_finite(self.model)? {
            return Err(self.non_finite_weights(parameter));
        }
        if let Some(folder) = &self.trainer.folder {
            save_in(self.model, &self.trainer.metadata, folder, name)?;
            self.saved.insert(name);
        }
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

    /// Checks at the end of the run that every weight file is in the folder; writes the last weights again if need be.
    pub(crate) fn keep_whole(&mut self) -> Result<()> {
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
                self.save(name)?;
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
