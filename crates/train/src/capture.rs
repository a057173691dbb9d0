//! Records a training step once and replays it.
//!
//! A replay repeats the same kernels on the same memory, so it is valid as long as everything that outlives a step stays
//! at the same addresses ([`StorageSnapshot`]). Values that change between steps are passed through memory: batches are
//! copied over the previous ones, the optimizer's scalars and the counters of random layers are on the device. Values
//! on the host (steps, samples, losses to read) are updated after each replay as after a step that runs op by op.

use crate::recording::{Key, Made, Plan, Recording, key};
use crate::run::Run;
use crate::{Batch, Output, Result};
use kiln_core::{Backend, Error};
use kiln_data::HostBatch;
use kiln_nn::{Gradients, Module, StorageSnapshot, Tensor, no_grad};

/// The largest number of loss copies that a recording allocates in advance; more are allocated when needed.
const ROOM: usize = 256;

/// True if a step that could not be recorded can run op by op instead.
fn can_run_otherwise(error: &Error) -> bool {
    matches!(error.root(), Error::NotCapturable { .. } | Error::OutOfMemory { .. })
}

impl<'a, B, M, S> Run<'a, B, M, S>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &Batch<B>) -> kiln_core::Result<Output<B>>,
{
    /// Makes one update from the batches of a step: op by op, recorded or replayed.
    pub(crate) fn run_step(&mut self, hosts: &[HostBatch]) -> Result<()> {
        self.step += 1;
        let prepared = self.prepare();
        self.at(prepared)?;
        let key = key(hosts);
        match self.recorder.plan(&key) {
            Plan::Eager => {
                let batches = self.upload(hosts)?;
                self.eager(&batches)
            }
            Plan::Record => self.record(key, hosts),
            Plan::Replay(at) => self.replay(at, hosts),
        }
    }

    fn upload(&self, hosts: &[HostBatch]) -> Result<Vec<Batch<B>>> {
        let backend = &self.trainer.backend;
        hosts.iter().map(|host| Ok(host.to_device(backend)?)).collect()
    }

    /// Sets the learning rate and the optimizer's scalars on the device.
    fn prepare(&mut self) -> kiln_core::Result<()> {
        if let Some(schedule) = &self.trainer.schedule {
            schedule.apply(self.step - 1, self.optimizer)?;
        }
        self.optimizer.prepare(self.model)
    }

    /// The step's work on the device: forward and backward of each batch, clipping, update, metrics.
    fn work(&mut self, batches: &[Batch<B>]) -> kiln_core::Result<Made<B>> {
        let mut sum: Option<Gradients<B>> = None;
        let (mut losses, mut scored) = (Vec::with_capacity(batches.len()), false);
        for batch in batches {
            let Output { loss, scores } = (self.closure)(self.model, batch)?;
            let grads = self.scale_loss(&loss, batch)?.backward()?;
            match &mut sum {
                Some(sum) => sum.accumulate(grads)?,
                none => *none = Some(grads),
            }
            if let Some(scores) = &scores {
                self.score(&scores.detach(), batch)?;
                scored = true;
            }
            losses.push(loss.detach());
        }
        let mut grads = sum.unwrap_or_default();
        self.finish_gradients(&mut grads, batches.iter().map(|b| b.labels.size()).sum())?;
        let applied = self.optimizer.apply(self.model, &grads)?;
        Ok(Made {
            losses,
            applied,
            scored,
        })
    }

    /// Adds a batch to the metrics, on the device.
    pub(crate) fn score(&mut self, scores: &Tensor<B>, batch: &Batch<B>) -> kiln_core::Result<()> {
        let mut pairs = self.trainer.metrics.iter().zip(&mut self.running);
        no_grad(|| pairs.try_for_each(|(metric, running)| running.record(&**metric, scores, batch)))
    }

    /// Updates the counts on the host after a step.
    fn count(&mut self, made: &Made<B>, samples: impl Iterator<Item = usize>) -> Result<()> {
        self.optimizer.count(&made.applied);
        self.updates += 1;
        for samples in samples.filter(|_| made.scored) {
            self.count_scored(samples)?;
        }
        Ok(())
    }

    /// Updates the metrics' counts on the host after a batch of `samples` samples.
    pub(crate) fn count_scored(&mut self, samples: usize) -> Result<()> {
        let counted = self.running.iter_mut().try_for_each(|r| r.count(samples));
        self.at(counted)
    }

    fn eager(&mut self, batches: &[Batch<B>]) -> Result<()> {
        let made = self.work(batches);
        let made = self.at(made)?;
        self.recorder.execution.eager += 1;
        self.file(&made, batches.iter().map(|b| b.labels.size()))
    }

    /// Keeps the losses of a step, whose memory is not written again, and counts the step.
    fn file(&mut self, made: &Made<B>, samples: impl Iterator<Item = usize> + Clone) -> Result<()> {
        for (loss, samples) in made.losses.iter().zip(samples.clone()) {
            self.losses.push(loss, samples, self.step);
        }
        self.count(made, samples)
    }

    /// Keeps copies of the losses of a step, whose memory the next replay overwrites, and counts the step.
    fn file_copies(&mut self, made: &Made<B>, key: &[Key]) -> Result<()> {
        for (loss, (_, samples, _)) in made.losses.iter().zip(key) {
            self.losses.push_copy(loss, *samples, self.step)?;
        }
        self.count(made, key.iter().map(|(_, samples, _)| *samples))
    }

    /// The addresses of everything that outlives a step: model, optimizer state, metrics and batches.
    fn storage(&self, slots: &[Batch<B>]) -> StorageSnapshot {
        let mut storage = StorageSnapshot::new();
        storage.module(self.model);
        self.optimizer.storage(&mut storage);
        self.running.iter().for_each(|r| r.storage(&mut storage));
        for slot in slots {
            storage.tensor(&slot.inputs);
            storage.indices(&slot.labels);
            slot.targets.iter().for_each(|t| storage.tensor(t));
        }
        storage
    }

    fn record(&mut self, key: Vec<Key>, hosts: &[HostBatch]) -> Result<()> {
        let backend = self.trainer.backend.clone();
        let slots = self.upload(hosts)?;
        let before = self.storage(&slots);
        if !before.fixed() {
            self.recorder.lose();
            return self.eager(&slots);
        }
        let mut made = None;
        let graph = backend.capture(&mut || {
            made = Some(self.work(&slots)?);
            Ok(())
        });
        let storage = self.storage(&slots);
        let stayed = storage == before;
        let graph = match graph {
            // Nothing has run and no storage has moved, so the step can run op by op.
            Err(e) if stayed && can_run_otherwise(&e) => {
                self.recorder.stop(Some(e.to_string()));
                return self.eager(&slots);
            }
            graph => self.at(graph)?,
        };
        let Some(made) = made else {
            unreachable!("a backend that captures runs the body");
        };
        let samples = slots.iter().map(|s| s.labels.size());
        let Some(graph) = graph else {
            self.recorder.stop(None);
            self.recorder.execution.eager += 1;
            return self.file(&made, samples);
        };
        self.recorder.execution.recorded += 1;
        if !stayed {
            // Storage moved while the step was recorded: the step itself is valid, but the recording cannot be replayed.
            backend.sync()?;
            self.recorder.lose();
            return self.file(&made, samples);
        }
        self.recorder.execution.launches = backend.launches(&graph) as u64;
        if let Some(loss) = made.losses.first() {
            // Losses are read once there are `log_every` of them; a step of several batches may exceed that.
            let room = self.trainer.options.log_every.saturating_add(made.losses.len());
            self.losses.reserve(room.min(ROOM), loss)?;
        }
        self.file_copies(&made, &key)?;
        self.recorder.recordings.push(Recording {
            graph,
            key,
            slots,
            storage,
            made,
        });
        Ok(())
    }

    fn replay(&mut self, at: usize, hosts: &[HostBatch]) -> Result<()> {
        // The recording is taken out of the list, so that it cannot be replayed after an error below.
        let mut recording = self.recorder.recordings.swap_remove(at);
        let backend = self.trainer.backend.clone();
        let taken = backend.memory().allocations;
        for (host, slot) in hosts.iter().zip(&mut recording.slots) {
            host.write_to(slot)?;
        }
        if self.storage(&recording.slots) != recording.storage {
            backend.sync()?;
            self.recorder.lose();
            return self.eager(&recording.slots);
        }
        let replayed = backend.replay(&mut recording.graph);
        self.at(replayed)?;
        self.file_copies(&recording.made, &recording.key)?;
        let execution = &mut self.recorder.execution;
        execution.replayed += 1;
        execution.launches = backend.launches(&recording.graph) as u64;
        execution.allocations += backend.memory().allocations - taken;
        self.recorder.recordings.push(recording);
        Ok(())
    }
}
