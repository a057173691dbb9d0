//! The state of a run in memory.

use super::manifest::{Manifest, ProgressState};
use crate::host_state::Encoded;
use kiln_nn::optim::PlateauState;
use kiln_nn::weights::Snapshot;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The share of the time of a run that keeping its state may take: one part of this many.
const SHARE: u32 = 100;

/// The bytes a second at which the model is taken to move to new memory when it changes while its old memory is kept. A core of a Xeon 6
/// (Granite Rapids) copies 12.6·10⁹, and 3.6·10⁹ where the system has to give it the memory first.
const COPIED: f64 = 2e9;

/// The state of a run at the end of a step, all of whose losses and weights were finite, and what has changed between the epochs
/// since.
pub(crate) struct Kept {
    pub(crate) manifest: Manifest,
    pub(crate) tensors: Arc<Snapshot>,
    /// The beginnings of the later epochs, in order.
    starts: Vec<EpochStart>,
    at: Instant,
    took: Duration,
}

/// The values at the begin of an epoch that do not follow from the steps before it.
#[derive(Clone)]
pub(crate) struct EpochStart {
    pub(crate) epoch: u64,
    /// The learning rate of each phase, and the state of its plateau.
    pub(crate) phases: Vec<(f64, Option<PlateauState>)>,
    pub(crate) progress: ProgressState,
    pub(crate) host_state: Encoded,
}

impl Kept {
    /// The state that it took until now, since `began`, to take.
    pub(crate) fn new(manifest: Manifest, tensors: Arc<Snapshot>, began: Instant) -> Self {
        let moves = Duration::from_secs_f64(tensors.shared() as f64 / COPIED);
        Kept {
            manifest,
            tensors,
            starts: Vec::new(),
            at: Instant::now(),
            took: began.elapsed() + moves,
        }
    }

    /// True if this is the state after `step`, before or in `epoch`.
    pub(crate) fn is_of(&self, step: u64, epoch: u64) -> bool {
        (self.manifest.step, self.manifest.epoch) == (step, epoch)
    }

    /// True if keeping the state again would take too large a share of the time.
    pub(crate) fn is_recent(&self) -> bool {
        self.at.elapsed() < self.took.saturating_mul(SHARE)
    }

    /// Notes that another epoch begins, which the steps from this state on lead to.
    pub(crate) fn begin(&mut self, start: EpochStart) {
        self.starts.push(start);
    }

    /// The beginning of a later epoch.
    pub(crate) fn start(&self, epoch: u64) -> Option<&EpochStart> {
        self.starts.iter().find(|start| start.epoch == epoch)
    }
}
