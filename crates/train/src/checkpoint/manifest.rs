//! The manifest of a checkpoint.

use crate::host_state::Encoded;
use crate::reading::Readings;
use crate::{EpochRecord, Execution};
use kiln_nn::optim::{GradScalerState, PlateauState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The contents of a checkpoint's JSON file: counts, and where the tensors are. Numbers are exact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Always `kiln-checkpoint`.
    pub(crate) format: String,
    /// The version of the format.
    pub(crate) version: u32,
    /// The version of Kiln that wrote it.
    pub(crate) kiln: String,
    pub(crate) tensors: TensorFile,
    /// What has to be the same when the run goes on, by name.
    pub(crate) run: BTreeMap<String, String>,
    /// The number of steps so far, skipped ones included.
    pub(crate) step: u64,
    /// The number of steps so far of which no update was skipped.
    pub(crate) updates: u64,
    pub(crate) skipped_in_a_row: u64,
    /// The factor of the rates of schedules, after going back or a request.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) lr_factor: f64,
    /// The epoch in progress, counted from 1, or the next one.
    pub(crate) epoch: u64,
    pub(crate) at: EpochState,
    /// The number of updates of the averaged weights, which are among the tensors.
    pub(crate) averaged: u64,
    pub(crate) phases: Vec<PhaseState>,
    pub(crate) metrics: Vec<MetricState>,
    pub(crate) progress: ProgressState,
    /// What closures and callbacks keep on the host, by the names that the run gives it.
    #[serde(default, skip_serializing_if = "Encoded::is_empty")]
    pub(crate) host_state: Encoded,
    /// The epochs before.
    pub(crate) history: Vec<EpochRecord>,
}

fn one() -> f64 {
    1.0
}

fn is_one(factor: &f64) -> bool {
    *factor == 1.0
}

impl Manifest {
    pub(crate) const FORMAT: &'static str = "kiln-checkpoint";
    pub(crate) const VERSION: u32 = 1;

    /// The number of steps that the run had made, skipped ones included.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The epoch in progress, counted from 1, or the next one after a whole epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of batches of that epoch that were used.
    pub fn batch(&self) -> u64 {
        self.at.batches
    }
}

/// The file with the tensors of a checkpoint, and what shows that it is whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TensorFile {
    pub(crate) file: String,
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
}

/// The epoch in progress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EpochState {
    /// The number of batches used.
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    pub(crate) skipped: u64,
    /// The seconds spent on them.
    pub(crate) seconds: f64,
    /// Those of them in which the loop waited for a batch.
    #[serde(default)]
    pub(crate) waiting: f64,
    pub(crate) execution: Execution,
    /// What callbacks have measured while they were made.
    #[serde(default, skip_serializing_if = "Readings::is_empty")]
    pub(crate) machine: Readings,
}

/// A phase of the steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhaseState {
    pub(crate) name: String,
    /// The number of its updates, skipped ones included.
    pub(crate) attempts: u64,
    /// The means of the epoch.
    pub(crate) epoch: BTreeMap<String, Mean>,
    /// The means since the last report.
    pub(crate) window: BTreeMap<String, Mean>,
    /// The number of batches since the last report.
    pub(crate) unreported: usize,
    pub(crate) plateau: Option<Plateau>,
    /// The learning rate of an optimizer that has made no update yet, whose own state has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lr: Option<f64>,
    /// The scale of its losses in mixed precision with f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scaler: Option<Scaler>,
    /// The norms of gradients, if they are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) norms: Option<NormState>,
}

/// The norms of the gradients of a phase: their means and largest values in the epoch, and since the last report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NormState {
    pub(crate) epoch: BTreeMap<String, Mean>,
    pub(crate) epoch_max: Option<f64>,
    pub(crate) window: BTreeMap<String, Mean>,
    pub(crate) window_max: Option<f64>,
}

/// The state of a [`GradScaler`](kiln_nn::optim::GradScaler).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scaler {
    pub(crate) scale: f64,
    pub(crate) good: u64,
    pub(crate) skipped: u64,
}

impl From<GradScalerState> for Scaler {
    fn from(GradScalerState { scale, good, skipped }: GradScalerState) -> Self {
        Scaler { scale, good, skipped }
    }
}

impl From<Scaler> for GradScalerState {
    fn from(Scaler { scale, good, skipped }: Scaler) -> Self {
        GradScalerState { scale, good, skipped }
    }
}

/// The state of a rate that falls when the monitored metric stops improving.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plateau {
    pub(crate) best: Option<f64>,
    pub(crate) bad: u64,
    pub(crate) cooling: u64,
}

impl From<PlateauState> for Plateau {
    fn from(PlateauState { best, bad, cooling }: PlateauState) -> Self {
        Plateau { best, bad, cooling }
    }
}

impl From<Plateau> for PlateauState {
    fn from(Plateau { best, bad, cooling }: Plateau) -> Self {
        PlateauState { best, bad, cooling }
    }
}

/// A metric in training; its sums are among the tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricState {
    pub(crate) name: String,
    pub(crate) terms: u32,
    pub(crate) samples: u64,
    pub(crate) measured: bool,
    /// The number of gathered terms.
    pub(crate) gathered: usize,
}

/// A mean weighted by samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mean {
    sum: f64,
    samples: u64,
}

impl Mean {
    pub(crate) fn add(&mut self, value: f64, samples: usize) {
        self.sum += value * samples as f64;
        self.samples += samples as u64;
    }

    /// The mean; NaN without samples.
    pub(crate) fn value(&self) -> f64 {
        self.sum / self.samples as f64
    }
}

/// The monitored metric so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgressState {
    pub(crate) best: Option<f64>,
    /// The number of epochs since.
    pub(crate) stale: u64,
}
