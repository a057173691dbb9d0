//! The errors of a training run.

use crate::cause::{Cause, to_examine, told};
use crate::deviation::Deviation;
use kiln_data::DataError;
use kiln_files::FileError;
use kiln_files::shown_path;
use std::path::PathBuf;

/// The result of anything in this crate.
pub type Result<T, E = TrainError> = std::result::Result<T, E>;

/// An error of the training loop or of the files that it writes. The number of a step in an error includes skipped steps,
/// unlike [`EpochRecord::step`](crate::EpochRecord::step).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// An error of an op, a layer, an optimizer or the device.
    #[error(transparent)]
    Tensor(#[from] kiln_core::Error),
    /// An error of an op or a layer, with the step at which it happened.
    #[error("step {step} (epoch {epoch}): {source}")]
    Step {
        /// The step, counted from 1 over the whole run.
        step: u64,
        /// The epoch, counted from 1.
        epoch: u64,
        /// The error itself.
        source: kiln_core::Error,
    },
    /// An error of an op or a layer in the validation of the model, or in the pass that computes its statistics before.
    #[error("validation after step {step} (epoch {epoch}): {source}")]
    Validation {
        /// The steps before it, counted from 1 over the whole run.
        step: u64,
        /// The epoch, counted from 1.
        epoch: u64,
        /// The error itself.
        source: kiln_core::Error,
    },
    /// An error of a dataset or its loader.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The loss is NaN or infinite. No weights were saved after the last finite loss was read.
    #[error(
        "step {step} (epoch {epoch}): the loss is {value}{}{}; {advice}",
        guess.as_ref().map(|c| format!(" ({c})")).unwrap_or_default(),
        told(cause.as_deref())
    )]
    NonFiniteLoss {
        /// The first step with such a loss, counted from 1 over the whole run.
        step: u64,
        /// The epoch of that step, counted from 1.
        epoch: u64,
        /// The loss.
        value: f64,
        /// The first value that is not finite; `None` if it was not found, as without
        /// [`TrainOptions::find_non_finite`](crate::TrainOptions::find_non_finite).
        cause: Option<Box<Cause>>,
        /// Without a cause: a parameter or a batch with values that are not finite when the loss was read.
        guess: Option<String>,
        /// Something to try.
        advice: &'static str,
    },
    /// A parameter or buffer became NaN or infinite though every loss was finite. The weights were not saved.
    #[error(
        "after step {step} (epoch {epoch}): parameter `{name}` holds values that are not finite{}; {advice}",
        told(cause.as_deref())
    )]
    NonFiniteWeights {
        /// The last step before the weights were checked, counted from 1 over the whole run.
        step: u64,
        /// The epoch, counted from 1.
        epoch: u64,
        /// The dotted name of the parameter or buffer.
        name: String,
        /// The first value that is not finite, if it was found.
        cause: Option<Box<Cause>>,
        /// Something to try.
        advice: &'static str,
    },
    /// More consecutive steps were skipped than [`NonFinite::Skip`](crate::NonFinite::Skip) allows.
    #[error(
        "step {step} (epoch {epoch}): {count} steps in a row were skipped because their loss or gradient is not finite{}; {advice}",
        told(cause.as_deref())
    )]
    TooManySkipped {
        /// The last of them, counted from 1 over the whole run.
        step: u64,
        /// The epoch of that step, counted from 1.
        epoch: u64,
        /// The number of steps.
        count: u64,
        /// The first value in the last of them that is not finite, if it was found.
        cause: Option<Box<Cause>>,
        /// Something to try.
        advice: &'static str,
    },
    /// An op of the device has computed something else than its [`Twin`](crate::Twin): more than rounding explains.
    #[error(
        "step {step} (epoch {epoch}){}: the device differs from its twin in {deviation}; it is the first of {compared} ops compared that \
         does; a kernel, the driver or the hardware computes wrongly: try again, and with another device{}",
        if phase.is_empty() { String::new() } else { format!(", phase `{phase}`") },
        to_examine(capsule.as_deref())
    )]
    Twin {
        /// The step, counted from 1 over the whole run. It was not made.
        step: u64,
        /// The epoch, counted from 1.
        epoch: u64,
        /// The name of the phase, empty if the run has no phases with names.
        phase: String,
        /// The first op outside of its bound.
        deviation: Box<Deviation>,
        /// The number of ops that were compared, those of the backward pass included.
        compared: usize,
        /// The capsule, a file to make the comparison again with, if the run has a folder: see [`Capsule`](crate::Capsule).
        capsule: Option<PathBuf>,
    },
    /// The monitored metric is not among those measured.
    #[error("the run is asked to monitor `{asked}`, but it measures {found}; name one of these")]
    UnknownMetric {
        /// The name asked for.
        asked: String,
        /// The names of the metrics measured.
        found: String,
    },
    /// A pattern that matches no name of the model.
    #[error("{option}: no {kind} of the model is named `{pattern}`; {near}")]
    NoMatch {
        /// The option that has the pattern.
        option: &'static str,
        /// What its patterns are about: `parameter`, `layer`.
        kind: &'static str,
        /// The pattern.
        pattern: String,
        /// The names that are nearest to it.
        near: String,
    },
    /// A pattern of layers to compute again matches only layers of which there is no copy.
    #[error(
        "recompute: `{pattern}` matches {names}, of which no copy can be made to compute it again: derive `Clone` for its type, which \
         has to be a layer, and give type parameters the bound `'static`"
    )]
    NoCopy {
        /// The pattern.
        pattern: String,
        /// The names that it matches.
        names: String,
    },
    /// A metric was asked for, but no step of the first epoch has handed out what it reads.
    #[error("the metric `{metric}` was not measured: no step hands out `{reads}`; see `Output::with`")]
    NotMeasured {
        /// The metric.
        metric: String,
        /// The names that it reads.
        reads: String,
    },
    /// The folder of a run holds no checkpoint.
    #[error(
        "{}: holds no checkpoint to resume from; was it written by a run with checkpoints?",
        shown_path(path)
    )]
    NoCheckpoint {
        /// The folder.
        path: PathBuf,
    },
    /// A checkpoint that is damaged, or of another version.
    #[error("{}: cannot resume from it: {}", shown_path(path), kiln_files::shown(reason).sentence())]
    BadCheckpoint {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A capsule that is damaged, or of another version.
    #[error("{}: is no capsule to replay: {}", shown_path(path), kiln_files::shown(reason).sentence())]
    BadCapsule {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A checkpoint of a run with other settings, which could not go on to the same result.
    #[error("the checkpoint is of another run: its {name} is {saved}, here it is {now}")]
    OtherRun {
        /// The setting.
        name: String,
        /// Its value in the checkpoint.
        saved: String,
        /// Its value in this run.
        now: String,
    },
    /// A state of the host that cannot be written into a checkpoint, or read from one.
    #[error("the state `{}` of the host cannot be {what}: {}", kiln_files::shown(name), kiln_files::shown(reason).sentence())]
    HostState {
        /// Its name in [`Trainer::host_state`](crate::Trainer::host_state).
        name: String,
        /// `saved` or `loaded`.
        what: &'static str,
        /// The reason.
        reason: String,
    },
    /// An option outside its domain.
    #[error("{argument} = {value}, expected {expected}")]
    InvalidArgument {
        /// The option.
        argument: &'static str,
        /// The value given.
        value: String,
        /// The values that would have been accepted.
        expected: &'static str,
    },
    /// A file that could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder for a run is not empty.
    #[error(
        "{}: already holds {found}; choose another folder, or move this one away",
        shown_path(path)
    )]
    Occupied {
        /// The folder.
        path: PathBuf,
        /// The name of one entry.
        found: String,
    },
    /// Another run uses the folder.
    #[error(
        "{}: {holder} works in this folder; choose another folder, or wait for its end",
        shown_path(path)
    )]
    Busy {
        /// The folder.
        path: PathBuf,
        /// The description of that run: `a run (process 123 on host, started 5 s ago)`.
        holder: String,
    },
    /// The folder has the lock file of a run, and its file system has no locks to tell whether that run is still in progress.
    #[error(
        "{}: {holder} has left its mark here, and this file system has no locks to tell whether it still works; choose \
         another folder, or remove {mark} if it does not",
        shown_path(path)
    )]
    Unlockable {
        /// The folder.
        path: PathBuf,
        /// The description of that run, as in [`TrainError::Busy`].
        holder: String,
        /// The name of the lock file.
        mark: &'static str,
    },
    /// The path for a run's folder is something else than a folder.
    #[error("{}: is {found}, not a folder; choose another name", shown_path(path))]
    NotAFolder {
        /// The path asked for.
        path: PathBuf,
        /// The kind of thing at the path: `a FIFO`, `a link to nowhere`, …
        found: String,
    },
    /// The folder was removed during the run.
    #[error(
        "{}: the folder was removed while the run went on, and with it what the run had saved",
        shown_path(path)
    )]
    FolderRemoved {
        /// The folder.
        path: PathBuf,
    },
    /// An error of a callback, other than those above.
    #[error(transparent)]
    Callback(Box<dyn std::error::Error + Send + Sync>),
    /// Weights that could not be encoded.
    #[error(transparent)]
    Weights(#[from] kiln_nn::weights::WeightsError),
}

impl TrainError {
    /// True for a request for memory, of the device or of the host, that could not be met. A trainer can be used again after it.
    pub fn is_out_of_memory(&self) -> bool {
        self.refused_memory().is_some()
    }

    /// The bytes of a request for memory that could not be met, and those that were free then as far as that is known.
    pub(crate) fn refused_memory(&self) -> Option<(u64, Option<u64>)> {
        let of = |error: &kiln_core::Error| match error.root() {
            kiln_core::Error::OutOfMemory { requested, free, .. } => {
                Some((*requested as u64, free.map(|free| free as u64)))
            }
            _ => None,
        };
        match self {
            TrainError::Tensor(error)
            | TrainError::Step { source: error, .. }
            | TrainError::Validation { source: error, .. } => of(error),
            TrainError::Data(DataError::Tensor(error)) => of(error),
            TrainError::Data(DataError::OutOfMemory { bytes, .. }) => Some((*bytes, None)),
            _ => None,
        }
    }

    pub(crate) fn invalid(argument: &'static str, value: impl std::fmt::Display, expected: &'static str) -> Self {
        TrainError::InvalidArgument {
            argument,
            value: value.to_string(),
            expected,
        }
    }
}
