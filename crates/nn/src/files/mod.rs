//! Files that are whole or not there: written beside the target, forced to disk, renamed over it.

mod error;
mod folder;

pub use error::FileError;
pub use folder::{Folder, is_unlockable};

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

type Result<T, E = FileError> = std::result::Result<T, E>;

/// How the names of temporary files end. They begin with a dot.
const TEMPORARY: &str = ".kiln-tmp";

/// The most bytes that a name may have on the file systems in use.
const LONGEST: usize = 255;

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

/// Where the bytes of the file `name` are written before they take its name. It depends on the name alone, so what a
/// killed process left is overwritten by the next that writes the file.
fn temporary(name: &OsStr) -> OsString {
    let mut bytes = [b".", name.as_bytes(), TEMPORARY.as_bytes()].concat();
    if bytes.len() > LONGEST {
        // Two long names that begin alike wait for each other, no more.
        bytes = [
            b".",
            &name.as_bytes()[..LONGEST - 1 - TEMPORARY.len()],
            TEMPORARY.as_bytes(),
        ]
        .concat();
    }
    OsString::from_vec(bytes)
}

/// Whether `name` is one that [`temporary`] gives.
fn is_temporary(name: &OsStr) -> bool {
    let inner = name.as_bytes().strip_prefix(b".");
    inner
        .and_then(|n| n.strip_suffix(TEMPORARY.as_bytes()))
        .is_some_and(|n| !n.is_empty())
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

/// What a user calls something with this metadata: `a FIFO`, `a folder`, …
pub fn kind(metadata: &Metadata) -> &'static str {
    folder::kind(rustix::fs::FileType::from_raw_mode(metadata.mode()))
}

#[cfg(test)]
mod tests;
