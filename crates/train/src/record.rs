//! The measurements of an epoch.

use crate::Result;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Measured values by name: `loss`, `accuracy`, …
pub type Values = BTreeMap<String, f64>;

/// The numbers of steps of an epoch or run that were run op by op, recorded and replayed.
///
/// On a backend that captures, a repeated step is recorded once and then replayed: one launch for the whole step instead
/// of one for each of its kernels, on the same memory each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// The number of steps that ran op by op.
    pub eager: u64,
    /// The number of steps that were recorded.
    pub recorded: u64,
    /// The number of steps that were replayed.
    pub replayed: u64,
    /// The number of kernels in one replay of the latest recording; 0 without a recording.
    pub launches: u64,
    /// The number of memory blocks that replayed steps allocated on the device; 0 in a steady state.
    pub allocations: u64,
}

impl Execution {
    /// Adds the counts of a later part of the run.
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

/// The record of one epoch. Everything but the times and `execution` is a pure function of the seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// Optimizer steps done over the whole run; those skipped are not counted.
    pub step: u64,
    /// The number of steps of this epoch that were skipped because their loss or gradient was not finite.
    pub skipped: u64,
    /// The learning rate of the epoch's last step, of the first phase if there are several.
    pub lr: f64,
    /// The learning rate of each phase that has a name.
    #[serde(skip_serializing_if = "Values::is_empty", default, deserialize_with = "values")]
    pub lrs: Values,
    /// The loss, its parts and the metrics over the training samples of the epoch, measured while the weights changed.
    #[serde(deserialize_with = "values")]
    pub train: Values,
    /// The loss, its parts and the metrics on the validation set after the epoch.
    #[serde(deserialize_with = "optional_values")]
    pub valid: Option<Values>,
    /// True if the monitored metric is the best so far.
    pub best: bool,
    /// The number of samples trained on.
    pub samples: u64,
    /// The seconds spent on training, without validation.
    pub seconds: f64,
    /// Those of these seconds in which the loop waited for a batch of the loader.
    #[serde(default)]
    pub waiting: f64,
    /// The number of samples trained on per second.
    pub samples_per_second: f64,
    /// The numbers of steps run op by op, recorded and replayed.
    pub execution: Execution,
    /// Measurements by callbacks beside the training while it went on ([`Callback::readings`](crate::Callback::readings)), such as
    /// the power of the machine. What was used in the validation after the epoch has names that begin with `valid_`.
    #[serde(skip_serializing_if = "Values::is_empty", default, deserialize_with = "values")]
    pub machine: Values,
}

impl EpochRecord {
    /// The share of the time for training in which the loop waited for a batch, 0 to 1.
    ///
    /// On the CPU this is the time that more workers or simpler transforms could save. A GPU works on while the loop waits, so
    /// there it is the most that they could save.
    pub fn waiting_share(&self) -> f64 {
        share(self.waiting, self.seconds)
    }
}

/// A part of some seconds; 0 of none.
pub(crate) fn share(part: f64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => (part / seconds).clamp(0.0, 1.0),
        false => 0.0,
    }
}

/// Reads values, of which NaN is written as `null`.
fn values<'de, D: Deserializer<'de>>(from: D) -> Result<Values, D::Error> {
    optional_values(from).map(Option::unwrap_or_default)
}

fn optional_values<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Values>, D::Error> {
    let read = Option::<BTreeMap<String, Option<f64>>>::deserialize(from)?;
    Ok(read.map(|values| {
        values
            .into_iter()
            .map(|(name, value)| (name, value.unwrap_or(f64::NAN)))
            .collect()
    }))
}
