//! The result of a run.

use crate::{EpochRecord, Execution, History, Warning};

/// The reason why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All epochs are done, or [`TrainOptions::max_steps`](crate::TrainOptions::max_steps) updates.
    Finished,
    /// The monitored metric has not improved for [`TrainOptions::patience`](crate::TrainOptions::patience) epochs.
    EarlyStopped,
    /// A [`StopHandle`](crate::StopHandle) or a callback stopped the run.
    Stopped,
}

/// The ops that were compared with a [`Twin`](crate::Twin).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TwinReport {
    /// The number of steps; of several phases each counts.
    pub steps: u64,
    /// The number of ops, those of the backward pass included.
    pub ops: u64,
    /// The number of steps with an op outside of its bound. There are none unless the twin [warns](crate::Twin::warn) of them.
    pub outside: u64,
}

/// The results of a run.
#[derive(Debug)]
pub struct Report {
    /// The reason why the run ended.
    pub end: End,
    /// Optimizer steps done; those skipped are not counted.
    pub steps: u64,
    /// The numbers of steps run op by op, recorded and replayed.
    pub execution: Execution,
    /// The reason why steps were not captured, if capture was asked for and the backend supports it.
    pub not_captured: Option<String>,
    /// The steps that were compared with the twin, if there is one.
    pub twin: Option<TwinReport>,
    /// The records of all complete epochs.
    pub history: History,
    /// The changes to the run's folder from outside, and the steps that were left out, that did not end the run.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// The epoch with the best value of the monitored metric.
    pub fn best(&self) -> Option<&EpochRecord> {
        self.history.best()
    }
}
