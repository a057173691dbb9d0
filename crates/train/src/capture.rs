//! Steps that are recorded once and replayed.
//!
//! A recording repeats the same work on the same memory, so it stands for a step as long as everything that outlives a
//! step lies where it lay ([`StorageSnapshot`]). What changes from step to step reaches it through memory: batches, written
//! over those before; the optimizer's scalars; counters that count on the device. What the host counts (steps,
//! samples, losses to read) is counted beside each replay as it is beside a step that runs op by op.

use crate::run::Run;
use crate::{Batch, Execution, Output, Result};
use kiln_core::{Backend, Error, Shape};
use kiln_data::HostBatch;
use kiln_nn::optim::Applied;
use kiln_nn::{Gradients, Module, StorageSnapshot, Tensor, no_grad};

/// Recordings kept at a time: whole batches and the short one that ends an epoch.
const RECORDINGS: usize = 2;

/// Batches of a step that is recorded. All of them lie on the device at once.
const BATCHES: usize = 16;

/// Shapes told apart. A run with more of them has little to replay.
const SHAPES: usize = 16;

/// Recordings that may lose their memory before no more are made.
const LOSSES: u32 = 8;

/// Losses that a recording makes room for at once; more are made when needed.
const ROOM: usize = 256;

/// The properties that a batch has in common with others that one recording serves: shape of the inputs, labels, width of the targets.
type Key = (Shape, usize, usize);

/// The batches of one step.
fn key(hosts: &[HostBatch]) -> Vec<Key> {
    let of = |host: &HostBatch| (host.input_shape, host.len(), host.target_width);
    hosts.iter().map(of).collect()
}

/// The results of one step for the host.
struct Made<B: Backend> {
    /// A loss for each batch.
    losses: Vec<Tensor<B>>,
    applied: Applied,
    scored: bool,
}

struct Recording<B: Backend> {
    graph: B::Graph,
    key: Vec<Key>,
    /// The batches that the recording reads.
    slots: Vec<Batch<B>>,
    /// The memory of everything after it was recorded.
    storage: StorageSnapshot,
    made: Made<B>,
}

/// The recordings of a run.
pub(crate) struct Recorder<B: Backend> {
    wanted: bool,
    seen: Vec<Vec<Key>>,
    recordings: Vec<Recording<B>>,
    lost: u32,
    /// The reason why nothing is recorded.
    pub(crate) obstacle: Option<String>,
    /// The ways in which the steps of this epoch were made.
    pub(crate) execution: Execution,
}

/// The way in which a step is to be made.
enum Plan {
    Eager,
    Record,
    /// The recording of this number.
    Replay(usize),
}

impl<B: Backend> Recorder<B> {
    /// For steps of `batches` batches.
    pub(crate) fn new(wanted: bool, batches: usize) -> Self {
        let wanted = wanted && B::CAPTURES;
        let obstacle = (wanted && batches > BATCHES)
            .then(|| format!("a step of {batches} batches is too long to be recorded, {BATCHES} are not"));
        Recorder {
            wanted: wanted && obstacle.is_none(),
            seen: Vec::new(),
            recordings: Vec::new(),
            lost: 0,
            obstacle,
            execution: Execution::default(),
        }
    }

    /// True if steps are to be recorded and replayed, for which all of their batches have to be there.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The first batch of a shape runs op by op: it makes the optimizer's state and loads kernels. The second is recorded.
    fn plan(&mut self, key: &Vec<Key>) -> Plan {
        if let Some(at) = self.recordings.iter().position(|r| r.key == *key) {
            return Plan::Replay(at);
        }
        if self.seen.contains(key) && self.recordings.len() < RECORDINGS {
            return Plan::Record;
        }
        if !self.seen.contains(key) && self.seen.len() < SHAPES {
            self.seen.push(key.clone());
        }
        Plan::Eager
    }

    /// Makes no more recordings.
    fn stop(&mut self, obstacle: Option<String>) {
        self.wanted = false;
        self.obstacle = obstacle;
        self.recordings.clear();
    }

    /// Notes that values were shared or have moved, so that a recording is of no use.
    fn lose(&mut self) {
        self.lost += 1;
        if self.lost == LOSSES {
            self.stop(Some(format!(
                "parameters or buffers of the model were shared or moved {LOSSES} times; hold a copy of its state, not the state"
            )));
        }
    }
}

/// True if a step that could not be recorded can run op by op.
fn can_run_otherwise(error: &Error) -> bool {
    matches!(error.root(), Error::NotCapturable { .. } | Error::OutOfMemory { .. })
}

impl<'a, B, M, S> Run<'a, B, M, S>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &Batch<B>) -> kiln_core::Result<Output<B>>,
{
    /// One update from the batches of a step, in whatever way it is made.
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

    /// Prepares what a step needs from the host beside its batches.
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

    /// Gives a batch to the metrics, on the device.
    pub(crate) fn score(&mut self, scores: &Tensor<B>, batch: &Batch<B>) -> kiln_core::Result<()> {
        let mut pairs = self.trainer.metrics.iter().zip(&mut self.running);
        no_grad(|| pairs.try_for_each(|(metric, running)| running.record(&**metric, scores, batch)))
    }

    /// Counts a step that was made, on the host.
    fn count(&mut self, made: &Made<B>, samples: impl Iterator<Item = usize>) -> Result<()> {
        self.optimizer.count(&made.applied);
        self.updates += 1;
        for samples in samples.filter(|_| made.scored) {
            self.count_scored(samples)?;
        }
        Ok(())
    }

    /// Counts a batch that the metrics were given.
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

    /// Files the losses of a step whose memory nobody writes again, and counts it.
    fn file(&mut self, made: &Made<B>, samples: impl Iterator<Item = usize> + Clone) -> Result<()> {
        for (loss, samples) in made.losses.iter().zip(samples.clone()) {
            self.losses.push(loss, samples, self.step);
        }
        self.count(made, samples)
    }

    /// Files the losses of a step whose memory the next replay writes, and counts it.
    fn file_copies(&mut self, made: &Made<B>, key: &[Key]) -> Result<()> {
        for (loss, (_, samples, _)) in made.losses.iter().zip(key) {
            self.losses.push_copy(loss, *samples, self.step)?;
        }
        self.count(made, key.iter().map(|(_, samples, _)| *samples))
    }

    /// The memory of everything that outlives a step.
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
            // Nothing has run yet, and nothing is where the recording would have put it.
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
            // The recording was right for the one step that it has run.
            backend.sync()?;
            self.recorder.lose();
            return self.file(&made, samples);
        }
        self.recorder.execution.launches = backend.launches(&graph) as u64;
        if let Some(loss) = made.losses.first() {
            // Losses are read once there are enough of them, which a step of several may pass.
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
        // Whatever fails below leaves no recording that could be replayed.
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
