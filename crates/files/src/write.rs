//! Files that are whole or not there: written beside the target, forced to disk, renamed over it.

use crate::error::{FileError, Result};
use crate::folder::Folder;
use std::ffi::OsStr;
use std::path::Path;

/// Replaces the file at `path` by one that holds `bytes`, or leaves what was there.
///
/// Writes beside the target, forces the file to disk, renames it over the target and forces the folder to disk: POSIX
/// `rename` is atomic, so a reader, or a machine that lost power, sees the old file or the new one. Writers of one path
/// wait for each other where the file system has locks. What a killed writer left is used by the next one.
///
/// # Errors
/// [`FileError`]: a full disk with needed and free bytes, a limit on the size of files, a target that is no regular file,
/// and whatever else the system refuses. Nothing is left beside the target.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let (folder, name) = split(path.as_ref())?;
    Folder::open(folder)
        .map_err(|e| named(path.as_ref(), e))?
        .write(name, bytes)
}

/// Refuses a path that [`write_atomic`] could not write to: a folder that is not there, something else than a regular
/// file. Nothing is written for long; before hours of work is the time to find out.
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

/// The error of opening the folder of `path`, with the whole path.
fn named(path: &Path, error: FileError) -> FileError {
    match error {
        FileError::Io { source, .. } => FileError::io(path, "write")(source),
        other => other,
    }
}

#[cfg(test)]
mod tests;
