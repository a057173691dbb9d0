//! The folder of one run: its weights, its history, its configuration, and nothing of another run.

use crate::files::{clean, write_atomic};
use crate::{Result, TrainError};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A folder that belongs to one run. Everything a run writes goes into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The weights with the best value of the watched metric.
    pub const BEST: &'static str = "best.safetensors";
    /// The weights after the last epoch, or after the last step of an interrupted run.
    pub const LAST: &'static str = "last.safetensors";
    /// One JSON object a line, one line an epoch.
    pub const HISTORY: &'static str = "history.jsonl";
    /// How the run was asked for.
    pub const CONFIG: &'static str = "config.json";

    /// Creates the folder `path`, with its parents, for a new run, and tries whether files can be written there: a
    /// run must not find that out after its first epoch.
    ///
    /// # Errors
    /// [`TrainError::Occupied`] when there is anything in it, [`TrainError::Io`], [`TrainError::DiskFull`].
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        fs::create_dir_all(&path).map_err(TrainError::io(&path, "create the folder"))?;
        clean(&path)?;
        let mut entries = fs::read_dir(&path).map_err(TrainError::io(&path, "list"))?;
        if let Some(entry) = entries.next() {
            let entry = entry.map_err(TrainError::io(&path, "list"))?;
            return Err(TrainError::Occupied {
                path,
                found: format!("`{}`", entry.file_name().to_string_lossy()),
            });
        }
        RunFolder { path }.probed()
    }

    /// Creates `parent/name` for a new run, or `parent/name-2`, `parent/name-3`, … when the folders before are taken.
    ///
    /// # Errors
    /// [`TrainError::Io`], [`TrainError::DiskFull`].
    pub fn numbered(parent: impl AsRef<Path>, name: &str) -> Result<Self> {
        let parent = parent.as_ref();
        fs::create_dir_all(parent).map_err(TrainError::io(parent, "create the folder"))?;
        for number in 1u64.. {
            let path = match number {
                1 => parent.join(name),
                n => parent.join(format!("{name}-{n}")),
            };
            // Creating is the question: of two runs that start at once, one gets the name.
            match fs::create_dir(&path) {
                Ok(()) => return RunFolder { path }.probed(),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(TrainError::io(&path, "create the folder")(error)),
            }
        }
        unreachable!("a folder has fewer than 2⁶⁴ entries")
    }

    fn probed(self) -> Result<Self> {
        let probe = self.path.join(".kiln-probe.tmp");
        fs::write(&probe, b"kiln").map_err(TrainError::io(&self.path, "write into the folder"))?;
        fs::remove_file(&probe).map_err(TrainError::io(&self.path, "remove a file from the folder"))?;
        Ok(self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file of the folder atomically ([`write_atomic`]).
    ///
    /// # Errors
    /// As [`write_atomic`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write_atomic(&self.file(name), bytes)
    }

    /// Writes `value` as indented JSON, atomically.
    ///
    /// # Errors
    /// As [`write_atomic`].
    pub fn write_json(&self, name: &str, value: &serde_json::Value) -> Result<()> {
        self.write(name, format!("{value:#}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let first = RunFolder::create(dir.path().join("a/b")).unwrap();
        // Empty still: it may be taken.
        RunFolder::create(first.path()).unwrap();
        first.write(RunFolder::LAST, b"weights").unwrap();
        let error = RunFolder::create(first.path()).unwrap_err();
        assert!(matches!(error, TrainError::Occupied { .. }), "{error}");
        assert!(error.to_string().contains("last.safetensors"), "{error}");
        assert_eq!(fs::read(first.file(RunFolder::LAST)).unwrap(), b"weights");
    }

    #[test]
    fn numbered_folders_count_up() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..3)
            .map(|_| RunFolder::numbered(dir.path().join("runs"), "net-0").unwrap())
            .map(|f| f.path().file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["net-0", "net-0-2", "net-0-3"]);
    }

    #[test]
    fn a_file_in_the_way_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        for error in [
            RunFolder::create(file.join("run")).unwrap_err(),
            RunFolder::numbered(&file, "run").unwrap_err(),
        ] {
            assert!(matches!(error, TrainError::Io { .. }), "{error}");
            assert!(error.to_string().contains("file"), "{error}");
        }
    }
}
