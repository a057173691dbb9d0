//! The recordings of steps, and the decision whether a step runs op by op, is recorded or is replayed.

use crate::{Batch, Execution};
use kiln_core::{Backend, Shape};
use kiln_data::HostBatch;
use kiln_nn::optim::Applied;
use kiln_nn::{StorageSnapshot, Tensor};

/// The number of recordings kept: for whole batches, and for the short one that ends an epoch.
const RECORDINGS: usize = 2;

/// The largest number of batches in a recorded step, which are all on the device at once.
const BATCHES: usize = 16;

/// The number of shapes that are remembered. A run with more of them has little to replay.
const SHAPES: usize = 16;

/// The number of times that a recording may become invalid before no more are made.
const LOSSES: u32 = 8;

/// The properties of a batch that must equal those of the recorded one: the shape of the inputs, the number of labels,
/// the width of the targets.
pub(crate) type Key = (Shape, usize, usize);

/// The keys of the batches of one step.
pub(crate) fn key(hosts: &[HostBatch]) -> Vec<Key> {
    let of = |host: &HostBatch| (host.input_shape, host.len(), host.target_width);
    hosts.iter().map(of).collect()
}

/// The results of one step for the host.
pub(crate) struct Made<B: Backend> {
    /// The loss of each batch.
    pub(crate) losses: Vec<Tensor<B>>,
    pub(crate) applied: Applied,
    pub(crate) scored: bool,
}

pub(crate) struct Recording<B: Backend> {
    pub(crate) graph: B::Graph,
    pub(crate) key: Vec<Key>,
    /// The batches on the device that the recording reads.
    pub(crate) slots: Vec<Batch<B>>,
    /// The addresses of everything that outlives a step, taken after recording.
    pub(crate) storage: StorageSnapshot,
    pub(crate) made: Made<B>,
}

/// The recordings of a run.
pub(crate) struct Recorder<B: Backend> {
    wanted: bool,
    seen: Vec<Vec<Key>>,
    pub(crate) recordings: Vec<Recording<B>>,
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

impl<B: Backend> Recorder<B> {
    /// Creates a recorder for steps of `batches` batches.
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

    /// True if steps are recorded and replayed, for which all their batches are collected first.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Decides how a step is run. The first one of a shape runs op by op, which creates the optimizer's state and loads
    /// kernels; the second is recorded.
    pub(crate) fn plan(&mut self, key: &Vec<Key>) -> Plan {
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
