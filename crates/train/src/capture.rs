//! Records a training step once and replays it.
//!
//! A replay repeats the same kernels on the same memory, so it is valid as long as everything that outlives a step stays
//! at the same addresses ([`StorageSnapshot`]). Values that change between steps are passed through memory: batches are
//! copied over the previous ones, the optimizer's scalars, the scale of losses and the counters of random layers are on the device.
//! Values on the host (steps, samples, losses to read) are updated after each replay as after a step that runs op by op.

use crate::buffers::Buffers;
use crate::recording::{Key, Made, Plan, Recording};
use crate::run::Run;
use crate::verdict::Changed;
use crate::{Output, Result};
use kiln_core::{Backend, Error};
use kiln_data::{Batch, Loaded};
use kiln_nn::{Gradients, Module, StorageSnapshot};
use kiln_nvtx::range;

/// The largest number of copies of losses and of norms that a recording allocates in advance; more are allocated when needed.
const ROOM: usize = 256;

/// True if a step that could not be recorded can run op by op instead.
fn can_run_otherwise(error: &Error) -> bool {
    matches!(error.root(), Error::NotCapturable { .. } | Error::OutOfMemory { .. })
}

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Makes the update of a phase from the batches of a step: op by op, recorded or replayed.
    pub(crate) fn run_recorded(&mut self, at: usize, key: Vec<Key>, hosts: &[Loaded<T>]) -> Result<()> {
        let prepared = self.prepare(at);
        self.at(prepared)?;
        match self.legs[at].recorder.plan(&key) {
            Plan::Eager => {
                let batches = self.upload(hosts)?;
                self.eager(at, &batches, &key)
            }
            Plan::Record => self.record(at, key, hosts),
            Plan::Replay(recording) => self.replay(at, recording, hosts),
        }
    }

    fn upload(&self, hosts: &[Loaded<T>]) -> Result<Vec<T::On<B>>> {
        hosts.iter().map(|host| self.on_device(host)).collect()
    }

    /// Sets the learning rate and the optimizer's scalars on the device.
    pub(crate) fn prepare(&mut self, at: usize) -> kiln_core::Result<()> {
        self.set_rate(at)?;
        self.legs[at].phase.optimizer.prepare(self.model)
    }

    /// The update's work on the device: forward and backward of each batch, clipping, update, metrics.
    fn work(&mut self, at: usize, batches: &[T::On<B>], key: &[Key]) -> kiln_core::Result<Made<B>> {
        let before = match self.decides() && self.has_buffers {
            true => Some(Buffers::copy_of(&*self.model)?),
            false => None,
        };
        let mut sum: Option<Gradients<B>> = None;
        let (mut losses, mut scored) = (Vec::with_capacity(batches.len()), Vec::with_capacity(batches.len()));
        let mut checked = Vec::with_capacity(batches.len());
        for (batch, (_, samples)) in batches.iter().zip(key) {
            let output = self.forward(at, batch)?;
            let backward = range("backward");
            let grads = self.gradients_of(at, &output.loss, *samples)?;
            drop(backward);
            match &mut sum {
                Some(sum) => sum.accumulate(grads)?,
                none => *none = Some(grads),
            }
            let output = Output {
                loss: output.loss.detach(),
                ..output
            };
            scored.push(self.score(&output)?);
            losses.push(output.measured()?);
            checked.push(output.loss);
        }
        let samples = key.iter().map(|(_, samples)| samples).sum();
        let _optimizer = range("optimizer");
        let Changed {
            applied,
            skipped,
            norms,
        } = self.change(at, sum.unwrap_or_default(), samples, &checked, before)?;
        if let Some(skipped) = skipped {
            let last = losses.len().saturating_sub(1);
            let mut all = losses.iter_mut().enumerate();
            all.try_for_each(|(i, loss)| loss.decide(&skipped, i == last))?;
        }
        Ok(Made {
            losses,
            scored,
            norms,
            applied,
        })
    }

    /// Updates the counts on the host after an update.
    fn count(&mut self, at: usize, made: &Made<B>, key: &[Key]) -> Result<()> {
        self.legs[at].phase.optimizer.count(&made.applied);
        for (scored, (_, samples)) in made.scored.iter().zip(key) {
            self.count_scored(scored, *samples)?;
        }
        Ok(())
    }

    fn eager(&mut self, at: usize, batches: &[T::On<B>], key: &[Key]) -> Result<()> {
        let made = self.work(at, batches, key);
        let made = self.at(made)?;
        self.legs[at].recorder.execution.eager += 1;
        self.file(at, &made, key)
    }

    /// Keeps the losses of an update, whose memory is not written again, and counts it.
    fn file(&mut self, at: usize, made: &Made<B>, key: &[Key]) -> Result<()> {
        for (loss, (_, samples)) in made.losses.iter().zip(key) {
            self.legs[at].losses.push(loss.clone(), *samples, self.step);
        }
        self.legs[at].norms.push(made.norms.clone());
        self.count(at, made, key)
    }

    /// Keeps copies of the losses of an update, whose memory the next replay overwrites, and counts it.
    fn file_copies(&mut self, at: usize, made: &Made<B>, key: &[Key]) -> Result<()> {
        for (loss, (_, samples)) in made.losses.iter().zip(key) {
            self.legs[at].losses.push_copy(loss, *samples, self.step)?;
        }
        self.legs[at].norms.push_copy(made.norms.as_ref())?;
        self.count(at, made, key)
    }

    /// The addresses of everything that outlives a step: model, optimizer state, metrics and batches.
    fn storage(&self, at: usize, slots: &[T::On<B>]) -> StorageSnapshot {
        let mut storage = StorageSnapshot::new();
        storage.module(self.model);
        self.legs[at].phase.optimizer.storage(&mut storage);
        self.legs[at].scaler.iter().for_each(|s| s.storage(&mut storage));
        self.running.iter().for_each(|r| r.storage(&mut storage));
        slots
            .iter()
            .for_each(|slot| kiln_data::storage::<T, B>(slot, &mut storage));
        storage
    }

    fn record(&mut self, at: usize, key: Vec<Key>, hosts: &[Loaded<T>]) -> Result<()> {
        let backend = self.trainer.backend.clone();
        let slots = self.upload(hosts)?;
        let before = self.storage(at, &slots);
        if !before.fixed() {
            self.legs[at].recorder.lose();
            return self.eager(at, &slots, &key);
        }
        let mut made = None;
        let graph = backend.capture(&mut || {
            made = Some(self.work(at, &slots, &key)?);
            Ok(())
        });
        let storage = self.storage(at, &slots);
        let stayed = storage == before;
        let graph = match graph {
            // Nothing has run and no storage has moved, so the step can run op by op.
            Err(e) if stayed && can_run_otherwise(&e) => {
                let full = matches!(e.root(), Error::OutOfMemory { .. }) && self.legs[at].recorder.is_full();
                if !full {
                    self.legs[at].recorder.stop(Some(e.to_string()));
                }
                return self.eager(at, &slots, &key);
            }
            graph => self.at(graph)?,
        };
        let Some(made) = made else {
            unreachable!("a backend that captures runs the body");
        };
        let recorder = &mut self.legs[at].recorder;
        let Some(graph) = graph else {
            recorder.stop(None);
            recorder.execution.eager += 1;
            return self.file(at, &made, &key);
        };
        recorder.execution.recorded += 1;
        if !stayed {
            // Storage moved while the step was recorded: the step itself is valid, but the recording cannot be replayed.
            backend.sync()?;
            recorder.lose();
            return self.file(at, &made, &key);
        }
        recorder.execution.launches = backend.launches(&graph) as u64;
        if let Some(loss) = made.losses.first() {
            // Losses are read once there are `log_every` of them; a step of several batches may exceed that.
            let room = self.trainer.options.log_every.saturating_add(made.losses.len());
            self.legs[at].losses.reserve(room.min(ROOM), loss)?;
            self.legs[at].norms.reserve(room.min(ROOM), made.norms.as_ref())?;
        }
        self.file_copies(at, &made, &key)?;
        self.legs[at].recorder.recordings.push(Recording {
            graph,
            key,
            slots,
            storage,
            made,
        });
        Ok(())
    }

    fn replay(&mut self, at: usize, recording: usize, hosts: &[Loaded<T>]) -> Result<()> {
        // The recording is taken out of the list, so that it cannot be replayed after an error below.
        let mut recording = self.legs[at].recorder.recordings.swap_remove(recording);
        let backend = self.trainer.backend.clone();
        let taken = backend.memory().allocations;
        for (host, slot) in hosts.iter().zip(&mut recording.slots) {
            host.write_to(slot)?;
        }
        if self.storage(at, &recording.slots) != recording.storage {
            backend.sync()?;
            self.legs[at].recorder.lose();
            return self.eager(at, &recording.slots, &recording.key);
        }
        let _replay = range("replay");
        let replayed = backend.replay(&mut recording.graph);
        self.at(replayed)?;
        self.file_copies(at, &recording.made, &recording.key)?;
        let recorder = &mut self.legs[at].recorder;
        recorder.execution.replayed += 1;
        recorder.execution.launches = backend.launches(&recording.graph) as u64;
        recorder.execution.allocations += backend.memory().allocations - taken;
        recorder.recordings.push(recording);
        Ok(())
    }
}
