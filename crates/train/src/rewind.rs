//! Keeps the state of a run in memory, to go back to it when a value is not finite.

use crate::checkpoint::Kept;
use crate::run::Run;
use crate::{Checkpoint, Manifest, Result};
use kiln_core::Backend;
use kiln_data::Batch;
use kiln_nn::Module;
use std::sync::Arc;
use std::time::Instant;

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Keeps the state of the run, if it is `due` or if little time has gone into keeping it so far.
    pub(crate) fn keep(&mut self, due: bool) -> Result<()> {
        if !self.trainer.options.find_non_finite || (!due && self.kept.as_ref().is_some_and(Kept::is_recent)) {
            return Ok(());
        }
        // A checkpoint of this state may have just been written.
        if self.kept.as_ref().is_some_and(|kept| kept.is_of(self.step, self.epoch)) {
            return Ok(());
        }
        self.kept_now().map(drop)
    }

    /// The state of the run, which is kept too if values that are not finite are to be found.
    pub(crate) fn kept_now(&mut self) -> Result<(Manifest, Arc<Vec<u8>>)> {
        // The memory of the one before is free for the new one.
        self.kept = None;
        let began = Instant::now();
        let (manifest, tensors) = self.snapshot()?;
        let tensors = Arc::new(tensors);
        if self.trainer.options.find_non_finite {
            let checkpoint = Checkpoint {
                manifest: manifest.clone(),
                tensors: tensors.clone(),
                warnings: Vec::new(),
            };
            self.kept = Some(Kept::new(checkpoint, began));
        }
        Ok((manifest, tensors))
    }

    /// Goes back to the state that was kept; false if there is none.
    pub(crate) fn go_back(&mut self) -> Result<bool> {
        let Some(kept) = self.kept.take() else { return Ok(false) };
        for leg in &mut self.legs {
            leg.losses.reset();
            leg.norms.reset();
            leg.recorder.forget();
        }
        (self.averaged, self.unseen) = (None, None);
        self.restore(&kept.checkpoint)?;
        self.kept = Some(kept);
        Ok(true)
    }
}
