//! The recordings of steps, and the decision whether a step runs op by op, is recorded or is replayed.

use crate::Execution;
use crate::grad_norm::StepNorms;
use crate::output::Measured;
use kiln_core::Backend;
use kiln_data::{Batch, Layout};
use kiln_nn::optim::Applied;
use kiln_nn::{StorageSnapshot, Tensor};

/// The most recordings kept, each with memory of its own: one for each length that batches of texts or of speech are padded to, and
/// for the short batch that ends an epoch.
const RECORDINGS: usize = 8;

/// The largest number of batches in a recorded step, which are all on the device at once.
const BATCHES: usize = 16;

/// The number of shapes that are remembered. A run with more of them has little to replay.
const SHAPES: usize = 32;

/// The number of times that a recording may become invalid before no more are made.
const LOSSES: u32 = 8;

/// The properties of a batch that must equal those of the recorded one: its layout, and its number of samples.
pub(crate) type Key = (Layout, usize);

/// The keys of the batches of one step.
pub(crate) fn key<'a, T: Batch>(hosts: impl Iterator<Item = &'a T>) -> Vec<Key> {
    hosts.map(|host| (host.layout(), host.len())).collect()
}

/// The terms of the metrics for a batch: for each metric that was measured its index, and the term if it is to be gathered.
pub(crate) type Scored<B> = Vec<(usize, Option<Tensor<B>>)>;

/// The results of one step for the host.
pub(crate) struct Made<B: Backend> {
    /// The loss of each batch, and its parts.
    pub(crate) losses: Vec<Measured<B>>,
    /// The terms of the metrics for each batch.
    pub(crate) scored: Vec<Scored<B>>,
    /// The norms of the gradients, if they are measured.
    pub(crate) norms: Option<StepNorms<B>>,
    pub(crate) applied: Applied,
}

pub(crate) struct Recording<B: Backend, T: Batch> {
    pub(crate) graph: B::Graph,
    pub(crate) key: Vec<Key>,
    /// The batches on the device that the recording reads.
    pub(crate) slots: Vec<T::On<B>>,
    /// The addresses of everything that outlives a step, taken after recording.
    pub(crate) storage: StorageSnapshot,
    pub(crate) made: Made<B>,
}

/// The recordings of a phase.
pub(crate) struct Recorder<B: Backend, T: Batch> {
    wanted: bool,
    seen: Vec<Vec<Key>>,
    /// The most recordings, which is fewer once there was no memory for another one.
    limit: usize,
    pub(crate) recordings: Vec<Recording<B, T>>,
    lost: u32,
    /// The reason why steps are not recorded, although that was wanted.
    pub(crate) obstacle: Option<String>,
    /// The numbers of steps of this epoch run op by op, recorded and replayed.
    pub(crate) execution: Execution,
}

/// The way in which a step is run.
pub(crate) enum Plan {
    Eager,
    Record,
    /// Replay the recording of this index.
    Replay(usize),
}

impl<B: Backend, T: Batch> Recorder<B, T> {
    /// Creates a recorder for steps of `batches` batches.
    pub(crate) fn new(wanted: bool, batches: usize) -> Self {
        let wanted = wanted && B::CAPTURES;
        let obstacle = (wanted && batches > BATCHES)
            .then(|| format!("a step of {batches} batches is too long to be recorded, {BATCHES} are not"));
        Recorder {
            wanted: wanted && obstacle.is_none(),
            seen: Vec::new(),
            limit: RECORDINGS,
            recordings: Vec::new(),
            lost: 0,
            obstacle,
            execution: Execution::default(),
        }
    }

    /// True if steps are recorded and replayed, for which all their batches are collected first.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Decides how a step is run. The first one of a shape runs op by op, which creates the optimizer's state and loads
    /// kernels; the second is recorded.
    pub(crate) fn plan(&mut self, key: &Vec<Key>) -> Plan {
        if !self.wanted {
            return Plan::Eager;
        }
        if let Some(at) = self.recordings.iter().position(|r| r.key == *key) {
            return Plan::Replay(at);
        }
        if self.seen.contains(key) && self.recordings.len() < self.limit {
            return Plan::Record;
        }
        if !self.seen.contains(key) && self.seen.len() < SHAPES {
            self.seen.push(key.clone());
        }
        Plan::Eager
    }

    /// Drops all recordings; steps are recorded anew.
    pub(crate) fn forget(&mut self) {
        self.recordings.clear();
    }

    /// Makes no more recordings than there are, for lack of memory. False if there is none, so that none is to be made.
    pub(crate) fn is_full(&mut self) -> bool {
        self.limit = self.recordings.len();
        self.limit > 0
    }

    /// Drops all recordings and makes no more.
    pub(crate) fn stop(&mut self, obstacle: Option<String>) {
        self.wanted = false;
        self.obstacle = obstacle;
        self.recordings.clear();
    }

    /// Counts a recording that became invalid because storage was shared or moved.
    pub(crate) fn lose(&mut self) {
        self.lost += 1;
        if self.lost == LOSSES {
            self.stop(Some(format!(
                "parameters or buffers of the model were shared or moved {LOSSES} times; hold a copy of its state, not the state"
            )));
        }
    }
}
