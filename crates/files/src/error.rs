//! What can go wrong when a file is written.

use crate::shown::shown_path;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub(crate) type Result<T, E = FileError> = std::result::Result<T, E>;

/// An error of writing a file. Whatever stood at the path before still stands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", shown_path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// The file system is full, or the user's share of it is.
    #[error("{}: disk full: {needed} bytes needed, {} bytes free; make room or choose another folder", shown_path(path), told(*free))]
    DiskFull {
        /// The file that was to be written.
        path: PathBuf,
        /// Its size.
        needed: u64,
        /// Bytes that are free for it, what was written of it given back; `None` if the system did not tell.
        free: Option<u64>,
    },
    /// The file would be larger than this process may make one (`ulimit -f`).
    #[error("{}: {size} bytes are more than this process may write into one file ({} bytes); raise the limit (ulimit -f)", shown_path(path), told(*limit))]
    TooLarge {
        /// The file that was to be written.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The largest size that is allowed, if the system told.
        limit: Option<u64>,
    },
    /// Something that is no regular file has the name. It is neither replaced nor written through.
    #[error("{}: is {found}, not a regular file; choose another name", shown_path(path))]
    NotRegular {
        /// The path asked for.
        path: PathBuf,
        /// What is there: `a FIFO`, `a symbolic link`, …
        found: &'static str,
    },
}

fn told(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "an unknown number of".to_string(), |b| b.to_string())
}

impl FileError {
    /// What the system refused, as [`FileError::Io`].
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_path_buf();
        move |source| FileError::Io { path, action, source }
    }

    /// The error of a write that was to make the file `size` bytes long; `free` tells how many bytes are free now.
    pub(crate) fn of_write(path: &Path, size: u64, error: io::Error, free: impl FnOnce() -> Option<u64>) -> Self {
        let path = path.to_path_buf();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FileError::DiskFull {
                path,
                needed: size,
                free: free(),
            },
            ErrorKind::FileTooLarge => FileError::TooLarge {
                path,
                size,
                limit: size_limit(),
            },
            _ => FileError::io(&path, "write")(error),
        }
    }
}

/// The most bytes that this process may write into one file.
fn size_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// Refuses a size that the limit on this process's files forbids. Asking first matters: where the signal SIGXFSZ is not
/// ignored, a write beyond the limit ends the process.
///
/// # Errors
/// [`FileError::TooLarge`].
pub fn check_size(path: &Path, size: u64) -> Result<()> {
    match size_limit() {
        Some(limit) if size > limit => Err(FileError::TooLarge {
            path: path.to_path_buf(),
            size,
            limit: Some(limit),
        }),
        _ => Ok(()),
    }
}
