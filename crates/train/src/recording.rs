//! Recordings of steps, and when one is made: which shapes were seen, how many are kept, what stands in the way.

use crate::{Batch, Execution};
use kiln_core::{Backend, Shape};
use kiln_data::HostBatch;
use kiln_nn::optim::Applied;
use kiln_nn::{StorageSnapshot, Tensor};

/// Recordings kept at a time: whole batches and the short one that ends an epoch.
const RECORDINGS: usize = 2;

/// Batches of a step that is recorded. All of them lie on the device at once.
const BATCHES: usize = 16;

/// Shapes told apart. A run with more of them has little to replay.
const SHAPES: usize = 16;

/// Recordings that may lose their memory before no more are made.
const LOSSES: u32 = 8;

/// The properties that a batch has in common with others that one recording serves: shape of the inputs, labels, width of the targets.
pub(crate) type Key = (Shape, usize, usize);

/// The batches of one step.
pub(crate) fn key(hosts: &[HostBatch]) -> Vec<Key> {
    let of = |host: &HostBatch| (host.input_shape, host.len(), host.target_width);
    hosts.iter().map(of).collect()
}

/// The results of one step for the host.
pub(crate) struct Made<B: Backend> {
    /// A loss for each batch.
    pub(crate) losses: Vec<Tensor<B>>,
    pub(crate) applied: Applied,
    pub(crate) scored: bool,
}

pub(crate) struct Recording<B: Backend> {
    pub(crate) graph: B::Graph,
    pub(crate) key: Vec<Key>,
    /// The batches that the recording reads.
    pub(crate) slots: Vec<Batch<B>>,
    /// The memory of everything after it was recorded.
    pub(crate) storage: StorageSnapshot,
    pub(crate) made: Made<B>,
}

/// The recordings of a run.
pub(crate) struct Recorder<B: Backend> {
    wanted: bool,
    seen: Vec<Vec<Key>>,
    pub(crate) recordings: Vec<Recording<B>>,
    lost: u32,
    /// The reason why nothing is recorded.
    pub(crate) obstacle: Option<String>,
    /// The ways in which the steps of this epoch were made.
    pub(crate) execution: Execution,
}

/// The way in which a step is to be made.
pub(crate) enum Plan {
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

    /// Makes no more recordings.
    pub(crate) fn stop(&mut self, obstacle: Option<String>) {
        self.wanted = false;
        self.obstacle = obstacle;
        self.recordings.clear();
    }

    /// Notes that values were shared or have moved, so that a recording is of no use.
    pub(crate) fn lose(&mut self) {
        self.lost += 1;
        if self.lost == LOSSES {
            self.stop(Some(format!(
                "parameters or buffers of the model were shared or moved {LOSSES} times; hold a copy of its state, not the state"
            )));
        }
    }
}
