//! Atomic writes: a file is written beside the target, synced to disk and renamed over it.

use crate::error::{FileError, Result};
use crate::folder::Folder;
use std::ffi::OsStr;
use std::path::Path;

/// Replaces the file at `path` by one that holds `bytes`, atomically; an error leaves the old file.
///
/// Writes a temporary file beside the target, syncs it to disk, renames it over the target and syncs the folder. POSIX
/// `rename` is atomic, so that after a crash there is the old file or the new one. Writers of one path wait for each
/// other where the file system has locks. A temporary file that a killed writer left is reused by the next one.
///
/// # Errors
/// [`FileError::DiskFull`], [`FileError::TooLarge`], [`FileError::NotRegular`] and, for other errors of the system,
/// [`FileError::Io`]. After an error no temporary file remains.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let (folder, name) = split(path.as_ref())?;
    Folder::open(folder)
        .map_err(|e| named(path.as_ref(), e))?
        .write(name, bytes)
}

/// Checks that [`write_atomic`] can write to `path`, so that hours of work do not end in an error. A temporary file is
/// created and removed.
///
/// # Errors
/// As [`write_atomic`].
pub fn check_writable(path: impl AsRef<Path>) -> Result<()> {
    let (folder, name) = split(path.as_ref())?;
    Folder::open(folder).map_err(|e| named(path.as_ref(), e))?.try_out(name)
}

/// The folder of `path`, `.` for a bare name, and the name in it.
fn split(path: &Path) -> Result<(&Path, &OsStr)> {
    let Some(name) = path.file_name() else {
        let e = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it does not end in a file's name");
        return Err(FileError::io(path, "write")(e));
    };
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => Ok((p, name)),
        _ => Ok((Path::new("."), name)),
    }
}

/// Replaces the folder in an error by the whole path.
fn named(path: &Path, error: FileError) -> FileError {
    match error {
        FileError::Io { source, .. } => FileError::io(path, "write")(source),
        other => other,
    }
}

#[cfg(test)]
mod tests;
