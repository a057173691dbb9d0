//! Keeps the state of a run in memory, to go back to it when a value is not finite.
//!
//! The steps from that state on can be made again, also across the ends of epochs: what an epoch begins with, beside the results of
//! its steps, is kept too.

use crate::checkpoint::{EpochStart, Kept, ProgressState};
use crate::run::{Leg, Run};
use crate::weights::first_non_finite;
use crate::{Manifest, Result};
use kiln_core::Backend;
use kiln_data::{Batch, Epoch, Loaded, Loader};
use kiln_nn::Module;
use kiln_nn::module::StateDict;
use kiln_nn::weights::Snapshot;
use std::sync::Arc;
use std::time::Instant;

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Keeps the state of the run, if it is `due`, or if little time has gone into keeping it so far and its weights are
    /// finite.
    pub(crate) fn keep(&mut self, due: bool) -> Result<()> {
        if !self.trainer.options.find_non_finite || (!due && self.kept.as_ref().is_some_and(Kept::is_recent)) {
            return Ok(());
        }
        // A checkpoint of this state may have just been written.
        if self.kept.as_ref().is_some_and(|kept| kept.is_of(self.step, self.epoch)) {
            return Ok(());
        }
        // The losses so far say nothing of the weights that this step has left.
        if !due && self.finite_at != Some(self.step) {
            let found = first_non_finite(self.model);
            if self.at(found)?.is_some() {
                return Ok(());
            }
            self.finite_at = Some(self.step);
        }
        self.kept_now().map(drop)
    }

    /// Keeps the state at the beginning of an epoch, or in the place of it what the steps before do not lead to, if too much time
    /// would go into keeping it.
    pub(crate) fn keep_start(&mut self) -> Result<()> {
        let start = self.epoch_start()?;
        match &mut self.kept {
            Some(kept) if kept.is_recent() && !kept.is_of(self.step, self.epoch) && self.at_epoch.batches == 0 => {
                kept.begin(start);
                Ok(())
            }
            _ => self.keep(true),
        }
    }

    fn epoch_start(&self) -> Result<EpochStart> {
        let phase = |leg: &Leg<'_, B, M, T>| (leg.phase.optimizer.lr(), leg.plateau.as_ref().map(|p| p.state));
        Ok(EpochStart {
            epoch: self.epoch,
            phases: self.legs.iter().map(phase).collect(),
            progress: ProgressState {
                best: self.progress.best,
                stale: self.progress.stale,
            },
            host_state: self.trainer.host_states.encode()?,
        })
    }

    /// The state of the run, which is kept too if values that are not finite are to be found.
    pub(crate) fn kept_now(&mut self) -> Result<(Manifest, Arc<Snapshot>)> {
        // The memory of the one before is free for the new one.
        self.kept = None;
        let began = Instant::now();
        let (manifest, tensors) = self.snapshot()?;
        let tensors = Arc::new(tensors);
        if self.trainer.options.find_non_finite {
            self.kept = Some(Kept::new(manifest.clone(), tensors.clone(), began));
        }
        Ok((manifest, tensors))
    }

    /// Goes back to the state that was kept; false if there is none.
    pub(crate) fn go_back(&mut self) -> Result<bool> {
        let Some(kept) = self.kept.take() else { return Ok(false) };
        self.go_to(&kept.manifest, &kept.tensors)?;
        self.kept = Some(kept);
        Ok(true)
    }

    /// Goes to a state of this run.
    pub(crate) fn go_to(&mut self, manifest: &Manifest, tensors: &Snapshot) -> Result<()> {
        for leg in &mut self.legs {
            leg.losses.reset();
            leg.norms.reset();
            leg.recorder.forget();
        }
        (self.averaged, self.unseen, self.skipped, self.finite_at) = (None, None, None, None);
        let tensors = StateDict::of_snapshot(tensors, &self.trainer.backend)?;
        self.restore_state(manifest, &tensors)
    }

    /// The batches of the next step of a run that has gone back, in this epoch or at the beginning of the next; none behind the last.
    pub(crate) fn next_step<D: Default + Send + 'static>(
        &mut self,
        loader: &Loader<D, T>,
        batches: &mut Epoch<D, T>,
    ) -> Result<Vec<Loaded<T>>> {
        let hosts: Result<Vec<_>, _> = batches.by_ref().take(self.trainer.options.accumulate).collect();
        let hosts = hosts?;
        let next = self.kept.as_ref().and_then(|kept| kept.start(self.epoch + 1)).cloned();
        let (true, Some(start)) = (hosts.is_empty(), next) else {
            return Ok(hosts);
        };
        self.begin_epoch()?;
        self.at_epoch = Default::default();
        (self.progress.best, self.progress.stale) = (start.progress.best, start.progress.stale);
        for (leg, (lr, plateau)) in self.legs.iter_mut().zip(start.phases) {
            leg.phase.optimizer.set_lr(lr);
            if let (Some(own), Some(state)) = (&mut leg.plateau, plateau) {
                own.state = state;
            }
        }
        self.trainer.host_states.decode(&start.host_state)?;
        *batches = loader.resume(self.position())?;
        self.next_step(loader, batches)
    }
}
