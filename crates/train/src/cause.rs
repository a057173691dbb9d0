//! Where a value that is NaN or infinite came from.

use crate::Deviation;
use kiln_nn::watch::{NonFiniteOp, Pass};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The first value of a run that is NaN or infinite, found by making the steps before it again; or the first op that a
/// [`Twin`](crate::Twin) disagrees with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// The step, counted from 1 over the whole run, skipped ones included. A loss that is not finite may follow in the next one.
    pub step: u64,
    /// The epoch of that step, counted from 1.
    pub epoch: u64,
    /// The batch of the epoch, counted from 1; of a step of several batches the one in which the value arose.
    pub batch: u64,
    /// The name of the phase, empty if the run has no phases with names.
    pub phase: String,
    /// The place in the step.
    pub place: Place,
    /// The capsule, a file to examine the step with, if the run has a folder: see [`Capsule`](crate::Capsule).
    pub capsule: Option<PathBuf>,
}

/// The place in a step of the first value that is NaN or infinite, or that a [`Twin`](crate::Twin) disagrees with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Place {
    /// An array of the batch.
    Batch {
        /// Its name: the path of the field.
        array: String,
    },
    /// A parameter or buffer of the model, before the step.
    Weights {
        /// Its dotted name.
        name: String,
    },
    /// An op of the forward pass, or the gradient of one.
    Op {
        /// The dotted path of its layer; empty for an op of no layer, such as the loss.
        layer: String,
        /// Its name.
        op: String,
        /// True for the gradient of the op.
        backward: bool,
        /// True for NaN, false for infinity.
        nan: bool,
        /// True if the inputs were fine: the value arose in this op.
        arose: bool,
    },
    /// A parameter after the update of the optimizer, although the gradients of every batch were finite.
    Update {
        /// Its dotted name.
        name: String,
    },
    /// An op whose result on the device is not that of the [`Twin`](crate::Twin), or the gradient of one.
    Twin {
        /// The dotted path of its layer; empty for an op of no layer, such as the loss.
        layer: String,
        /// Its name.
        op: String,
        /// True for the gradient of the op.
        backward: bool,
        /// The difference in words: a [`Deviation`](crate::Deviation).
        found: String,
    },
}

impl From<&Deviation> for Place {
    fn from(deviation: &Deviation) -> Self {
        Place::Twin {
            layer: deviation.name.layer.clone(),
            op: deviation.name.op.clone(),
            backward: deviation.name.pass == Pass::Backward,
            found: deviation.to_string(),
        }
    }
}

impl From<&NonFiniteOp> for Place {
    fn from(found: &NonFiniteOp) -> Self {
        Place::Op {
            layer: found.name.layer.clone(),
            op: found.name.op.clone(),
            backward: found.name.pass == Pass::Backward,
            nan: found.value.is_nan(),
            arose: found.arose,
        }
    }
}

impl Place {
    /// The advice of an error message.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Place::Batch { .. } => "look at the samples of this batch",
            Place::Weights { .. } => "look at where the weights come from",
            Place::Op { op, .. }
                if matches!(
                    &op[..],
                    "log"
                        | "log2"
                        | "log10"
                        | "log1p"
                        | "div"
                        | "reciprocal"
                        | "sqrt"
                        | "rsqrt"
                        | "pow"
                        | "powf"
                        | "norm"
                        | "acos"
                        | "asin"
                        | "atanh"
                ) =>
            {
                "keep the op's input away from where it has no finite value or slope: clamp it, or add a small eps"
            }
            Place::Op { .. } | Place::Update { .. } => {
                "try a smaller learning rate, clip gradients, or look at the data"
            }
            Place::Twin { .. } => "try again, and with another device",
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Batch { array } if array.is_empty() => write!(f, "the batch holds values that are not finite"),
            Place::Batch { array } => write!(f, "`{array}` of the batch holds values that are not finite"),
            Place::Weights { name } => write!(f, "`{name}` holds values that are not finite before the step"),
            Place::Op {
                layer,
                op,
                backward,
                nan,
                arose,
            } => {
                let value = if *nan { "NaN" } else { "infinity" };
                let pass = if *backward {
                    "the gradient of op"
                } else {
                    "the forward pass of op"
                };
                write!(f, "the first {value} is in {pass} `{op}`")?;
                if !layer.is_empty() {
                    write!(f, " in layer `{layer}`")?;
                }
                match (arose, backward) {
                    (true, false) => write!(f, ", from finite inputs"),
                    (true, true) => write!(f, ", from a finite gradient"),
                    (false, _) => Ok(()),
                }
            }
            Place::Twin { found, .. } => write!(f, "the device differs from its twin in {found}"),
            Place::Update { name } => write!(f, "the update made `{name}` not finite, from finite gradients"),
        }
    }
}

/// `step 14 (epoch 2, batch 4): the first NaN is in …`.
impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (step, epoch, batch) = (self.step, self.epoch, self.batch);
        write!(f, "step {step} (epoch {epoch}, batch {batch}")?;
        if !self.phase.is_empty() {
            write!(f, ", phase `{}`", self.phase)?;
        }
        write!(f, "): {}", self.place)
    }
}

/// The part of an error's message about its cause.
pub(crate) fn told(cause: Option<&Cause>) -> String {
    cause.map_or_else(String::new, |cause| format!("; {}", described(cause)))
}

/// The cause, and how to examine it.
pub(crate) fn described(cause: &Cause) -> String {
    format!("{cause}{}", to_examine(cause.capsule.as_deref()))
}

/// How to examine a capsule.
pub(crate) fn to_examine(capsule: Option<&Path>) -> String {
    let capsule = capsule.map(|path| format!("; examine it with `kiln replay {}`", kiln_files::shown_path(path)));
    capsule.unwrap_or_default()
}
