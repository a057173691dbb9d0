//! What a run has left in its folder.

use crate::config::{self, RunConfig};
use crate::error::{Error, Result};
use kiln_files::{shown, shown_path};
use kiln_train::{EpochRecord, RunFolder};
use serde_json::Value;
use std::path::Path;

/// The file with the end of a run: its reason, the warnings, the machine.
pub(crate) const SUMMARY: &str = "summary.json";

/// The settings and the epochs of a run.
pub(crate) struct RunRecord {
    pub(crate) config: RunConfig,
    pub(crate) epochs: Vec<EpochRecord>,
    /// The contents of [`SUMMARY`]; null if there is none. The `reason` of a run that nobody works on and that has not written how it
    /// ended is `killed`.
    pub(crate) summary: Value,
}

impl RunRecord {
    /// Reads the settings of the run in `folder`.
    pub(crate) fn settings(folder: &Path) -> Result<RunConfig> {
        let config = folder.join(RunFolder::CONFIG);
        config::read(&config).map_err(|e| match config.exists() {
            true => e,
            false => e.help("name the folder that `kiln train` shows as `run folder`"),
        })
    }

    /// Reads the record of the run in `folder`.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let config = RunRecord::settings(folder)?;
        let path = folder.join(RunFolder::HISTORY);
        let text = std::fs::read_to_string(&path).map_err(|e| Error::failure(format!("{}: {e}", shown_path(&path))))?;
        let epoch = |(i, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|e| {
                let why = e.to_string();
                Error::failure(format!(
                    "{}: line {}: {}",
                    shown_path(&path),
                    i + 1,
                    shown(&why).sentence()
                ))
            })
        };
        let epochs = text.lines().enumerate().map(epoch).collect::<Result<_>>()?;
        // Runs of earlier versions have none.
        let summary = std::fs::read(folder.join(SUMMARY)).ok();
        let summary = summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut summary: Value = summary.unwrap_or_default();
        // What a run that was killed has left.
        if summary["reason"] == "running" && !RunFolder::is_in_use(folder) {
            summary["reason"] = "killed".into();
        }
        Ok(RunRecord {
            config,
            epochs,
            summary,
        })
    }

    /// How the run ended, in words; `None` for one that is done.
    pub(crate) fn end(&self, folder: &Path) -> Option<String> {
        match self.summary["reason"].as_str()? {
            "running" => Some("still in progress".to_string()),
            "killed" => Some(format!(
                "killed, or could not write how it ended; it goes on with: kiln train --resume {}",
                shown_path(folder)
            )),
            "failed" => Some(format!(
                "failed: {}",
                shown(self.summary["error"].as_str().unwrap_or_default()).sentence()
            )),
            "stopped" => Some("stopped before its end".to_string()),
            "early_stopped" => Some("ended early: it no longer got better".to_string()),
            _ => None,
        }
    }

    /// The name of the value that decides which epoch is best.
    pub(crate) fn monitored(&self) -> &'static str {
        self.config.model.map_or("loss", |model| model.card().monitor.0)
    }

    /// The best epoch.
    pub(crate) fn best(&self) -> Option<&EpochRecord> {
        self.epochs.iter().rev().find(|record| record.best)
    }
}

/// A value of an epoch, on the validation set if there is one.
pub(crate) fn value(epoch: &EpochRecord, name: &str) -> Option<f64> {
    epoch.valid.as_ref().unwrap_or(&epoch.train).get(name).copied()
}
