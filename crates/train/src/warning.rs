//! The warnings of a run.

use kiln_files::shown_path;
use std::path::PathBuf;

/// A change to a run's folder from outside that did not end the run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A file was removed, replaced or truncated, and was written again from memory.
    Restored {
        /// The file.
        path: PathBuf,
    },
    /// A file was removed, and the run no longer has its contents.
    Lost {
        /// The file.
        path: PathBuf,
    },
    /// A checkpoint is damaged, and an older one was taken.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The folder was moved; the run continues to write into it.
    Moved {
        /// The former path.
        from: PathBuf,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Warning::Restored { path } => {
                write!(
                    f,
                    "{}: was removed or changed while the run went on; it was written again",
                    shown_path(path)
                )
            }
            Warning::Lost { path } => {
                write!(
                    f,
                    "{}: was removed while the run went on, and cannot be written again",
                    shown_path(path)
                )
            }
            Warning::Damaged { path, reason } => write!(
                f,
                "{}: is damaged, and an older checkpoint is used: {}",
                shown_path(path),
                kiln_files::shown(reason).sentence()
            ),
            Warning::Moved { from } => write!(
                f,
                "{}: the folder was moved while the run goes on; its files are written to where it is now",
                shown_path(from)
            ),
        }
    }
}
