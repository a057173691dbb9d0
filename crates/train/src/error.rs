//! The errors of a training run: what was asked, what was found, what to do.

use kiln_data::DataError;
use kiln_files::FileError;
use kiln_files::shown_path;
use std::path::PathBuf;

/// The result of anything in this crate.
pub type Result<T, E = TrainError> = std::result::Result<T, E>;

/// An error of the training loop or of the files it keeps. A step that is named by its number is one that was asked
/// for: steps skipped before it count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// An op, a layer, an optimizer or the device.
    #[error(transparent)]
    Tensor(#[from] kiln_core::Error),
    /// An op or a layer, with the step of the run at which it happened.
    #[error("step {step} (epoch {epoch}): {source}")]
    Step {
        /// The step, counted from 1 over the whole run.
        step: u64,
        /// The epoch, counted from 1.
        epoch: u64,
        /// The error itself.
        source: kiln_core::Error,
    },
    /// A dataset or its loader.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The loss is NaN or infinite. Nothing was saved after the last finite weights.
    #[error("step {step} (epoch {epoch}): the loss is {value}{}; {advice}", cause.as_ref().map(|c| format!(" ({c})")).unwrap_or_default())]
    NonFiniteLoss {
        /// The first step with such a loss, counted from 1 over the whole run.
        step: u64,
        /// Its epoch, counted from 1.
        epoch: u64,
        /// The loss.
        value: f64,
        /// The place at which the first value that is not finite was seen, as far as that can be told afterwards.
        cause: Option<String>,
        /// Something to try.
        advice: &'static str,
    },
    /// A weight became NaN or infinite though every loss was finite. It was not saved.
    #[error("after step {step} (epoch {epoch}): parameter `{name}` holds values that are not finite; {advice}")]
    NonFiniteWeights {
        /// The last step, counted from 1 over the whole run.
        step: u64,
        /// The epoch, counted from 1.
        epoch: u64,
        /// The parameter's dotted name.
        name: String,
        /// Something to try.
        advice: &'static str,
    },
    /// More steps in a row than configured had to be skipped.
    #[error(
        "step {step} (epoch {epoch}): {count} steps in a row were skipped because their loss or gradient is not finite; {advice}"
    )]
    TooManySkipped {
        /// The last of them, counted from 1 over the whole run.
        step: u64,
        /// Its epoch, counted from 1.
        epoch: u64,
        /// The number of steps.
        count: u64,
        /// Something to try.
        advice: &'static str,
    },
    /// The metric that decides what is best is not among those measured.
    #[error("the run is asked to monitor `{asked}`, but it measures {found}; name one of these")]
    UnknownMetric {
        /// The name asked for.
        asked: String,
        /// The names there are.
        found: String,
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
    /// A folder for a run already holds something that is not of this run.
    #[error(
        "{}: already holds {found}; choose another folder, or move this one away",
        shown_path(path)
    )]
    Occupied {
        /// The folder.
        path: PathBuf,
        /// One of the things found in it.
        found: String,
    },
    /// A run works in the folder.
    #[error(
        "{}: {holder} works in this folder; choose another folder, or wait for its end",
        shown_path(path)
    )]
    Busy {
        /// The folder.
        path: PathBuf,
        /// Who: `a run (process 123 on host, started 5 s ago)`.
        holder: String,
    },
    /// The folder has the mark of a run, and its file system has no locks to tell whether the run still goes on.
    #[error(
        "{}: {holder} has left its mark here, and this file system has no locks to tell whether it still works; choose \
         another folder, or remove {mark} if it does not",
        shown_path(path)
    )]
    Unlockable {
        /// The folder.
        path: PathBuf,
        /// Who, as in [`TrainError::Busy`].
        holder: String,
        /// The name of the mark.
        mark: &'static str,
    },
    /// The path that a run's folder was to have is something else.
    #[error("{}: is {found}, not a folder; choose another name", shown_path(path))]
    NotAFolder {
        /// The path asked for.
        path: PathBuf,
        /// The thing that is there: `a FIFO`, `a link to nowhere`, …
        found: String,
    },
    /// The folder was removed while the run went on.
    #[error(
        "{}: the folder was removed while the run went on, and with it what the run had saved",
        shown_path(path)
    )]
    FolderRemoved {
        /// The folder.
        path: PathBuf,
    },
    /// Weights that could not be encoded.
    #[error(transparent)]
    Weights(#[from] kiln_nn::weights::WeightsError),
}

impl TrainError {
    pub(crate) fn invalid(argument: &'static str, value: impl std::fmt::Display, expected: &'static str) -> Self {
        TrainError::InvalidArgument {
            argument,
            value: value.to_string(),
            expected,
        }
    }
}
