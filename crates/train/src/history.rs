//! What a run measured, epoch by epoch, in memory and in the run's folder.

use crate::{Result, TrainError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Measured values by name: `loss`, `accuracy`, …
pub type Values = BTreeMap<String, f64>;

/// How the steps of an epoch or of a run were made.
///
/// On a backend that captures, a step that repeats is recorded once and then replayed: one launch of the whole step
/// instead of one for each of its kernels, on the same memory each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Execution {
    /// Steps made op by op.
    pub eager: u64,
    /// Steps recorded while they were made.
    pub recorded: u64,
    /// Steps replayed.
    pub replayed: u64,
    /// Kernels in one replay, the last if there were several recordings; 0 without one.
    pub launches: u64,
    /// Blocks that replayed steps took from the device's memory. In a steady state there are none.
    pub allocations: u64,
}

impl Execution {
    /// Adds what came after.
    pub(crate) fn add(&mut self, later: &Execution) {
        self.eager += later.eager;
        self.recorded += later.recorded;
        self.replayed += later.replayed;
        self.allocations += later.allocations;
        if later.launches > 0 {
            self.launches = later.launches;
        }
    }
}

/// One epoch. Everything but the times and the execution is a pure function of the seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpochRecord {
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// Optimizer steps done over the whole run; those skipped are not counted.
    pub step: u64,
    /// Steps of this epoch that were skipped because their loss or gradient was not finite.
    pub skipped: u64,
    /// The learning rate of the epoch's last step.
    pub lr: f64,
    /// Means over the epoch, measured while the weights changed.
    pub train: Values,
    /// Measured on the validation set after the epoch.
    pub valid: Option<Values>,
    /// Whether the watched metric is the best so far.
    pub best: bool,
    /// Samples trained on.
    pub samples: u64,
    /// Seconds of training, validation apart.
    pub seconds: f64,
    /// Samples trained on in a second.
    pub samples_per_second: f64,
    /// How its steps were made.
    pub execution: Execution,
}

/// The epochs of a run so far.
#[derive(Debug, Default)]
pub struct History {
    epochs: Vec<EpochRecord>,
    file: Option<(PathBuf, File)>,
}

impl History {
    /// A history that is kept in memory alone.
    pub fn new() -> Self {
        History::default()
    }

    /// A history that is also written to `path`, one JSON object a line, as it grows. NaN is written as `null`.
    ///
    /// # Errors
    /// [`TrainError::Io`], also for a file that exists already.
    pub fn to_file(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.map_err(TrainError::io(path, "create"))?;
        Ok(History {
            epochs: Vec::new(),
            file: Some((path.to_path_buf(), file)),
        })
    }

    /// Adds an epoch, in the file first.
    ///
    /// # Errors
    /// [`TrainError::Io`].
    pub fn push(&mut self, record: EpochRecord) -> Result<()> {
        if let Some((path, file)) = &mut self.file {
            let mut line = serde_json::to_vec(&record).map_err(|e| TrainError::io(path, "encode")(e.into()))?;
            line.push(b'\n');
            // One write a line: a process that is killed leaves whole lines.
            file.write_all(&line).map_err(TrainError::io(path, "append to"))?;
        }
        self.epochs.push(record);
        Ok(())
    }

    /// Every epoch in order.
    pub fn epochs(&self) -> &[EpochRecord] {
        &self.epochs
    }

    /// The last epoch.
    pub fn last(&self) -> Option<&EpochRecord> {
        self.epochs.last()
    }

    /// The epoch with the best value of the watched metric.
    pub fn best(&self) -> Option<&EpochRecord> {
        self.epochs.iter().rev().find(|e| e.best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_json_and_nan_is_null() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        let mut history = History::to_file(&path).unwrap();
        for epoch in 1..=2u64 {
            let record = EpochRecord {
                epoch,
                step: 10 * epoch,
                skipped: 0,
                lr: 1e-3,
                train: Values::from([("loss".into(), if epoch == 1 { 0.5 } else { f64::NAN })]),
                valid: None,
                best: epoch == 1,
                samples: 320,
                seconds: 0.5,
                samples_per_second: 640.0,
                execution: Execution::default(),
            };
            history.push(record).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["train"]["loss"], 0.5);
        assert!(lines[1]["train"]["loss"].is_null());
        assert_eq!(history.best().unwrap().epoch, 1);
        assert!(matches!(History::to_file(&path), Err(TrainError::Io { .. })));
    }
}
