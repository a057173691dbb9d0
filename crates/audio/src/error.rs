//! Errors of sound, of files with sound and of lists of utterances.

use kiln_files::{shown, shown_path};
use std::path::{Path, PathBuf};

/// The result of a function of this crate.
pub type Result<T, E = AudioError> = std::result::Result<T, E>;

/// An error of a file with sound, a list of utterances, or an argument.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AudioError {
    /// The operating system reported an error.
    #[error("{}: cannot {action}: {source}", shown_path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed: `open`, `read`, `list`.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The bytes are not those of a format that is read.
    #[error(
        "{}: not a WAV, FLAC or Ogg Vorbis file ({}); convert it, for example by `ffmpeg -i FILE FILE.flac`",
        shown_path(path),
        shown(reason)
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The decoder's reason.
        reason: String,
    },
    /// The format is one that is read, and the bytes are damaged or end too early.
    #[error("{}: broken at {seconds:.2} s: {}; fetch it again", shown_path(path), shown(reason))]
    Broken {
        /// The file.
        path: PathBuf,
        /// The length of the sound before the error, in seconds.
        seconds: f64,
        /// The decoder's reason.
        reason: String,
    },
    /// The file has no sound: no channel, or not a single sample.
    #[error("{}: it has no samples", shown_path(path))]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file gives a sample rate that is none.
    #[error("{}: sample rate {rate}, expected 1 to {} Hz", shown_path(path), crate::MAX_RATE)]
    Rate {
        /// The file.
        path: PathBuf,
        /// The rate in the file, in Hz.
        rate: u32,
    },
    /// A list of utterances has no column that is needed.
    #[error("{}: no column `{column}`, found {}", shown_path(path), shown(found))]
    Column {
        /// The list.
        path: PathBuf,
        /// The name of the column.
        column: &'static str,
        /// The columns of the first line.
        found: String,
    },
    /// A line of a list of utterances cannot be read.
    #[error("{}: line {line}: {reason}", shown_path(path))]
    Line {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// A folder or list has no utterances.
    #[error("{}: no utterances, expected {expected}", shown_path(path))]
    NoUtterances {
        /// The folder or list.
        path: PathBuf,
        /// A description of what was expected there.
        expected: &'static str,
    },
    /// An argument is invalid, or memory ran out.
    #[error(transparent)]
    Argument(#[from] kiln_core::Error),
}

impl AudioError {
    /// Returns a function that wraps the system's error in [`AudioError::Io`].
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| AudioError::Io { path, action, source }
    }
}
