//! Steps that are recorded once and replayed.
//!
//! A recording repeats the same work on the same memory, so it stands for a step as long as everything that outlives a
//! step lies where it lay ([`Places`]). What changes from step to step reaches it through memory: the batch, written
//! over the one before; the optimizer's scalars; counters that count on the device. What the host counts (steps,
//! samples, losses to read) is counted beside each replay as it is beside a step that runs op by op.

use crate::run::Run;
use crate::{Batch, Execution, Output, Result};
use kiln_core::{Backend, Error, Shape};
use kiln_data::HostBatch;
use kiln_nn::optim::Applied;
use kiln_nn::{Module, Places, Tensor, no_grad};

/// Recordings kept at a time: whole batches and the short one that ends an epoch.
const RECORDINGS: usize = 2;

/// Shapes told apart. A run with more of them has little to replay.
const SHAPES: usize = 16;

/// Recordings that may lose their memory before no more are made.
const LOSSES: u32 = 8;

/// Losses that a recording makes room for at once; more are made when needed.
const ROOM: usize = 256;

/// What batches have in common that one recording serves.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    inputs: Shape,
    labels: usize,
    targets: usize,
}

impl Key {
    fn of(host: &HostBatch) -> Self {
        Key {
            inputs: host.input_shape,
            labels: host.labels.len(),
            targets: host.target_width,
        }
    }
}

/// What one step leaves for the host.
struct Made<B: Backend> {
    loss: Tensor<B>,
    applied: Applied,
    scored: bool,
}

struct Recording<B: Backend> {
    graph: B::Graph,
    key: Key,
    /// The batch that the recording reads.
    slots: Batch<B>,
    /// Where everything lay after it was recorded.
    places: Places,
    made: Made<B>,
}

/// The recordings of a run.
pub(crate) struct Recorder<B: Backend> {
    wanted: bool,
    seen: Vec<Key>,
    recordings: Vec<Recording<B>>,
    lost: u32,
    /// What stood in the way of recording.
    pub(crate) obstacle: Option<String>,
    /// How the steps of this epoch were made.
    pub(crate) execution: Execution,
}

/// How a step is to be made.
enum Plan {
    Eager,
    Record,
    /// The recording of this number.
    Replay(usize),
}

impl<B: Backend> Recorder<B> {
    pub(crate) fn new(wanted: bool) -> Self {
        Recorder {
            wanted,
            seen: Vec::new(),
            recordings: Vec::new(),
            lost: 0,
            obstacle: None,
            execution: Execution::default(),
        }
    }

    /// The first batch of a shape runs op by op: it makes the optimizer's state and loads kernels. The second is recorded.
    fn plan(&mut self, key: Key) -> Plan {
        if !self.wanted {
            return Plan::Eager;
        }
        if let Some(at) = self.recordings.iter().position(|r| r.key == key) {
            return Plan::Replay(at);
        }
        if self.seen.contains(&key) && self.recordings.len() < RECORDINGS {
            return Plan::Record;
        }
        if !self.seen.contains(&key) && self.seen.len() < SHAPES {
            self.seen.push(key);
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

/// Whether a step that could not be recorded can run op by op.
fn can_run_otherwise(error: &Error) -> bool {
    matches!(error.root(), Error::NotCapturable { .. } | Error::OutOfMemory { .. })
}

impl<'a, B, M, S> Run<'a, B, M, S>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &Batch<B>) -> kiln_core::Result<Output<B>>,
{
    /// One update from one batch, in whatever way it is made.
    pub(crate) fn single(&mut self, host: &HostBatch) -> Result<()> {
        self.step += 1;
        let prepared = self.prepare();
        self.at(prepared)?;
        let key = Key::of(host);
        match self.recorder.plan(key) {
            Plan::Eager => {
                let batch = host.to_device(&self.trainer.backend)?;
                self.eager(&batch)
            }
            Plan::Record => self.record(key, host),
            Plan::Replay(at) => self.replay(at, host),
        }
    }

    /// What a step needs from the host beside its batch.
    fn prepare(&mut self) -> kiln_core::Result<()> {
        if let Some(schedule) = &self.trainer.schedule {
            schedule.apply(self.step - 1, self.optimizer)?;
        }
        self.optimizer.prepare(self.model)
    }

    /// The step's work on the device: forward, backward, clipping, update, metrics.
    fn work(&mut self, batch: &Batch<B>) -> kiln_core::Result<Made<B>> {
        let Output { loss, scores } = (self.closure)(self.model, batch)?;
        let mut grads = loss.backward()?;
        self.clip(&mut grads)?;
        let applied = self.optimizer.apply(self.model, &grads)?;
        if let Some(scores) = &scores {
            self.score(&scores.detach(), batch)?;
        }
        Ok(Made {
            loss: loss.detach(),
            applied,
            scored: scores.is_some(),
        })
    }

    /// Gives a batch to the metrics, on the device.
    pub(crate) fn score(&mut self, scores: &Tensor<B>, batch: &Batch<B>) -> kiln_core::Result<()> {
        let mut pairs = self.trainer.metrics.iter().zip(&mut self.running);
        no_grad(|| pairs.try_for_each(|(metric, running)| running.record(&**metric, scores, batch)))
    }

    /// What the host counts for a step that was made.
    fn count(&mut self, made: &Made<B>, samples: usize) -> Result<()> {
        self.optimizer.count(&made.applied);
        self.updates += 1;
        match made.scored {
            true => self.count_scored(samples),
            false => Ok(()),
        }
    }

    /// Counts a batch that the metrics were given.
    pub(crate) fn count_scored(&mut self, samples: usize) -> Result<()> {
        let counted = self.running.iter_mut().try_for_each(|r| r.count(samples));
        self.at(counted)
    }

    fn eager(&mut self, batch: &Batch<B>) -> Result<()> {
        let made = self.work(batch);
        let made = self.at(made)?;
        let samples = batch.labels.size();
        self.losses.push(&made.loss, samples, self.step);
        self.recorder.execution.eager += 1;
        self.count(&made, samples)
    }

    /// Where everything lies that outlives a step.
    fn places(&self, slots: &Batch<B>) -> Places {
        let mut places = Places::new();
        places.module(self.model);
        places.optimizer(&*self.optimizer);
        self.running.iter().for_each(|r| r.places(&mut places));
        places.tensor(&slots.inputs);
        places.indices(&slots.labels);
        slots.targets.iter().for_each(|t| places.tensor(t));
        places
    }

    fn record(&mut self, key: Key, host: &HostBatch) -> Result<()> {
        let backend = self.trainer.backend.clone();
        let slots = host.to_device(&backend)?;
        let before = self.places(&slots);
        if !before.fixed() {
            self.recorder.lose();
            return self.eager(&slots);
        }
        let mut made = None;
        let graph = backend.capture(&mut || {
            made = Some(self.work(&slots)?);
            Ok(())
        });
        let places = self.places(&slots);
        let stayed = places == before;
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
        let samples = key.labels;
        self.count(&made, samples)?;
        let Some(graph) = graph else {
            self.recorder.stop(None);
            self.recorder.execution.eager += 1;
            self.losses.push(&made.loss, samples, self.step);
            return Ok(());
        };
        self.recorder.execution.recorded += 1;
        if !stayed {
            // The recording was right for the one step that it has run.
            backend.sync()?;
            self.recorder.lose();
            self.losses.push(&made.loss, samples, self.step);
            return Ok(());
        }
        self.recorder.execution.launches = backend.launches(&graph) as u64;
        let room = self.trainer.options.read_every.min(ROOM);
        self.losses.reserve(room, &made.loss)?;
        self.losses.push_copy(&made.loss, samples, self.step)?;
        self.recorder.recordings.push(Recording {
            graph,
            key,
            slots,
            places,
            made,
        });
        Ok(())
    }

    fn replay(&mut self, at: usize, host: &HostBatch) -> Result<()> {
        // Whatever fails below leaves no recording that could be replayed.
        let mut recording = self.recorder.recordings.swap_remove(at);
        let backend = self.trainer.backend.clone();
        let taken = backend.memory().allocations;
        host.write_to(&mut recording.slots)?;
        if self.places(&recording.slots) != recording.places {
            backend.sync()?;
            self.recorder.lose();
            return self.eager(&recording.slots);
        }
        let replayed = backend.replay(&mut recording.graph);
        self.at(replayed)?;
        let samples = recording.key.labels;
        self.losses.push_copy(&recording.made.loss, samples, self.step)?;
        self.count(&recording.made, samples)?;
        let execution = &mut self.recorder.execution;
        execution.replayed += 1;
        execution.launches = backend.launches(&recording.graph) as u64;
        execution.allocations += backend.memory().allocations - taken;
        self.recorder.recordings.push(recording);
        Ok(())
    }
}
