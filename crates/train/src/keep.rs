//! The files that a run leaves in its folder: whole files, whatever somebody does to them meanwhile.

use crate::run::{ADVICE, Run};
use crate::weights::{first_non_finite, save_in};
use crate::{Batch, Output, Result, RunFolder, TrainError, Warning};
use kiln_core::Backend;
use kiln_nn::Module;

impl<'a, B, M, S> Run<'a, B, M, S>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &Batch<B>) -> kiln_core::Result<Output<B>>,
{
    /// Saves the weights, unless one of them is not finite.
    pub(crate) fn save(&mut self, name: &'static str) -> Result<()> {
        if let Some(parameter) = first_non_finite(self.model)? {
            return Err(TrainError::NonFiniteWeights {
                step: self.step,
                epoch: self.epoch,
                name: parameter,
                advice: ADVICE,
            });
        }
        if let Some(folder) = &self.trainer.folder {
            save_in(self.model, &self.trainer.metadata, folder, name)?;
            self.saved.insert(name);
        }
        Ok(())
    }

    /// Looks whether somebody has done something to the run's folder, and mends it where that can be done.
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
            .for_each(|w| self.warn(w));
        Ok(())
    }

    /// Leaves the folder with every file that the run has written, as far as it can.
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

    fn warn(&mut self, warning: Warning) {
        for callback in &mut self.trainer.callbacks {
            callback.on_warning(&warning);
        }
        self.warnings.push(warning);
    }
}
