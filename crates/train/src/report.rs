//! The outcome of a run.

use crate::{EpochRecord, Execution, History, Warning};

/// The reason why a run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All epochs are done, or [`TrainOptions::max_steps`](crate::TrainOptions::max_steps) updates.
    Finished,
    /// The monitored metric has not improved for [`TrainOptions::patience`](crate::TrainOptions::patience) epochs.
    EarlyStopped,
    /// A [`StopHandle`](crate::StopHandle) or a callback asked for it.
    Stopped,
}

/// The results of a run.
#[derive(Debug)]
pub struct Report {
    /// The reason why it ended.
    pub end: End,
    /// Optimizer steps done; those skipped are not counted.
    pub steps: u64,
    /// The ways in which they were made.
    pub execution: Execution,
    /// The obstacle to capturing steps, where that was wanted and the backend can.
    pub not_captured: Option<String>,
    /// Every whole epoch.
    pub history: History,
    /// Events in the run's folder that did not end the run.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// The epoch with the best value of the monitored metric.
    pub fn best(&self) -> Option<&EpochRecord> {
        self.history.best()
    }
}
