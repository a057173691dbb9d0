//! The errors of writing a file.

use crate::shown::shown_path;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub(crate) type Result<T, E = FileError> = std::result::Result<T, E>;

/// An error of writing a file. The file that was at the path before is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system reported an error.
    #[error("{}: cannot {action}: {source}", shown_path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file system is full, or the user's quota is.
    #[error("{}: disk full: {needed} bytes needed, {} bytes free; make room or choose another folder", shown_path(path), told(*free))]
    DiskFull {
        /// The file that was to be written.
        path: PathBuf,
        /// The size that the file was to have, in bytes.
        needed: u64,
        /// The number of bytes free, after the part already written was removed; `None` if the system does not tell.
        free: Option<u64>,
    },
    /// The file would be larger than this process may make one (`ulimit -f`).
    #[error("{}: {size} bytes are more than this process may write into one file ({} bytes); raise the limit (ulimit -f)", shown_path(path), told(*limit))]
    TooLarge {
        /// The file that was to be written.
        path: PathBuf,
        /// The size that the file was to have, in bytes.
        size: u64,
        /// The largest size allowed, in bytes; `None` if the system does not tell.
        limit: Option<u64>,
    },
    /// The path is something other than a regular file. It is neither replaced nor written to.
    #[error("{}: is {found}, not a regular file; choose another name", shown_path(path))]
    NotRegular {
        /// The path asked for.
        path: PathBuf,
        /// The kind of thing at the path, with its article: `a FIFO`, `a symbolic link`, …
        found: &'static str,
    },
}

fn told(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "an unknown number of".to_string(), |b| b.to_string())
}

impl FileError {
    /// Returns a function that wraps the system's error in [`FileError::Io`].
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_path_buf();
        move |source| FileError::Io { path, action, source }
    }

    /// Converts the error of a write that was to make the file `size` bytes long; `free` returns the bytes free now.
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

/// The limit on the size of a file that this process may write (`RLIMIT_FSIZE`), in bytes; `None` if there is none.
fn size_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// Checks a file size against the limit of this process (`ulimit -f`). The check comes before the write because a write
/// beyond the limit ends a process that does not ignore the signal SIGXFSZ.
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
