//! Files that are whole or not there: written beside the target, forced to disk, renamed over it.

use crate::{Result, TrainError};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where the bytes of `path` are written before they take its name.
///
/// The name depends on the target alone, so what a killed process left is overwritten by the next save.
fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

/// The folder of `path`, `.` for a bare name.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// Replaces the file at `path` by one that holds `bytes`, or leaves what was there.
///
/// Writes beside the target, forces the file to disk, renames it over the target and forces the folder to disk
/// (POSIX `rename` is atomic: a reader, or a machine that lost power, sees the old file or the new one). One writer at
/// a time per target.
///
/// # Errors
/// [`TrainError::DiskFull`] with needed and free bytes, [`TrainError::Io`] otherwise; the temporary file is removed.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = temporary(path);
    let written = write_synced(&beside, path, bytes)
        .and_then(|()| std::fs::rename(&beside, path).map_err(TrainError::io(path, "replace the file")));
    if let Err(error) = written {
        // The first error is the one to tell; a temporary that stays is overwritten by the next save.
        let _ = std::fs::remove_file(&beside);
        return Err(error);
    }
    let folder = parent(path);
    let opened = File::open(folder).map_err(TrainError::io(folder, "open the folder"))?;
    opened
        .sync_all()
        .map_err(TrainError::io(folder, "force the folder to disk"))
}

fn write_synced(beside: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(beside)
        .map_err(TrainError::io(path, "write"))?;
    fill(&mut file, path, bytes)
}

/// Writes and forces to disk, telling a full disk from other failures.
fn fill(file: &mut File, path: &Path, bytes: &[u8]) -> Result<()> {
    let result = file.write_all(bytes).and_then(|()| file.sync_all());
    result.map_err(|error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => TrainError::DiskFull {
            path: path.to_path_buf(),
            needed: bytes.len() as u64,
            free: free_bytes(parent(path)),
        },
        _ => TrainError::io(path, "write")(error),
    })
}

/// Bytes that an unprivileged process can still write to the file system of `folder`.
fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

/// Removes the temporaries of saves that were killed in `folder`.
pub(crate) fn clean(folder: &Path) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(TrainError::io(folder, "list"))?;
    for entry in entries {
        let entry = entry.map_err(TrainError::io(folder, "list"))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') && name.ends_with(".tmp") {
            std::fs::remove_file(entry.path()).map_err(TrainError::io(&entry.path(), "remove the stale file"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn replaces_whole_files_and_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last.safetensors");
        std::fs::write(dir.path().join(".last.safetensors.tmp"), b"from a killed run").unwrap();
        for bytes in [&b"one"[..], b"", &[7; 70_000]] {
            write_atomic(&path, bytes).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_names_path_and_bytes() {
        let Ok(mut full) = OpenOptions::new().write(true).open("/dev/full") else {
            return;
        };
        let error = fill(&mut full, Path::new("/dev/weights"), &[1; 4096]).unwrap_err();
        let TrainError::DiskFull { path, needed, free } = error else {
            panic!("{error}");
        };
        assert_eq!((path.as_path(), needed), (Path::new("/dev/weights"), 4096));
        assert!(free.is_some());
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_with_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("no/such/last.safetensors");
        let error = write_atomic(&path, b"x").unwrap_err();
        assert!(error.to_string().contains("no/such/last.safetensors"), "{error}");
    }

    const CHILD: &str = "KILN_TEST_SAVES_INTO";

    /// Not a test of its own: what [`a_killed_save_leaves_a_whole_file`] runs and kills.
    #[test]
    fn child_saves_until_killed() {
        let Some(path) = std::env::var_os(CHILD) else { return };
        for round in 0u8.. {
            write_atomic(Path::new(&path), &vec![round; 300_000]).unwrap();
            if round == u8::MAX {
                break;
            }
        }
    }

    #[test]
    fn a_killed_save_leaves_a_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        write_atomic(&path, &vec![0; 300_000]).unwrap();
        for round in 0..40u64 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "files::tests::child_saves_until_killed", "--test-threads=1"])
                .env(CHILD, &path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(4 + round % 13));
            child.kill().unwrap();
            child.wait().unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len(), 300_000);
            assert!(bytes.iter().all(|&b| b == bytes[0]), "a torn file");
        }
        clean(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
