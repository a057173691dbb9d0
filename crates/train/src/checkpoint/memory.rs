//! A checkpoint in the memory of the host.

use super::store::Checkpoint;
use std::time::{Duration, Instant};

/// The share of the time of a run that keeping its state may take: one part of this many.
const SHARE: u32 = 100;

/// The state of a run at the end of a step, all of whose losses and weights were finite.
pub(crate) struct Kept {
    pub(crate) checkpoint: Checkpoint,
    at: Instant,
    took: Duration,
}

impl Kept {
    /// The state that it took until now, since `began`, to copy.
    pub(crate) fn new(checkpoint: Checkpoint, began: Instant) -> Self {
        Kept {
            checkpoint,
            at: Instant::now(),
            took: began.elapsed(),
        }
    }

    /// True if this is the state after `step`, before or in `epoch`.
    pub(crate) fn is_of(&self, step: u64, epoch: u64) -> bool {
        (self.checkpoint.manifest.step, self.checkpoint.manifest.epoch) == (step, epoch)
    }

    /// True if keeping the state again would take too large a share of the time.
    pub(crate) fn is_recent(&self) -> bool {
        self.at.elapsed() < self.took.saturating_mul(SHARE)
    }
}
