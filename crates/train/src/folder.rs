//! The folder of one run, with its weights, its history and its configuration.

use crate::claim::{Claim, MARK};
use crate::{Result, TrainError, Warning};
use kiln_files::{FileError, Folder, kind_of};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A folder that belongs to one run, which writes all its files there.
///
/// As long as this value or a clone lives, no other run can use the folder, in this process or another: the file
/// `.kiln.lock` in it, which names the process, is locked. The lock ends with the process, even if that is killed.
///
/// The folder is held open, so files are written into it even after it has been moved.
#[derive(Debug, Clone)]
pub struct RunFolder {
    folder: Folder,
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    _claim: Claim,
    /// The contents of small files by name, to write them again if they are removed.
    texts: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl RunFolder {
    /// The weights with the best value of the monitored metric.
    pub const BEST: &'static str = "best.safetensors";
    /// The weights after the last epoch, or after the last step of an interrupted run.
    pub const LAST: &'static str = "last.safetensors";
    /// The averaged weights after the last epoch, if the run averages them
    /// ([`TrainOptions::average`](crate::TrainOptions::average)).
    pub const AVERAGED: &'static str = "averaged.safetensors";
    /// The history: one line per epoch, each a JSON object.
    pub const HISTORY: &'static str = "history.jsonl";
    /// The history as a table for spreadsheets: one row per epoch, and a column per value.
    pub const TABLE: &'static str = "history.csv";
    /// The requests to the run while it was in progress ([`Control`](crate::Control)): one line per request, each a JSON object.
    /// There is none if nothing was asked.
    pub const JOURNAL: &'static str = "journal.jsonl";
    /// The configuration of the run, written by the caller.
    pub const CONFIG: &'static str = "config.json";

    /// Creates the folder `path` and its parents for a new run, and tests that files can be written there, so that the run
    /// does not fail after its first epoch. A link to a folder is followed.
    ///
    /// Temporary files that a killed run left in an otherwise empty folder are removed. After an error the folder is
    /// unchanged.
    ///
    /// # Errors
    /// [`TrainError::Occupied`] for a folder that is not empty, [`TrainError::Busy`] for one that another run uses,
    /// [`TrainError::NotAFolder`], [`TrainError::InvalidArgument`] for an empty path or one with control characters,
    /// [`TrainError::Unlockable`], [`TrainError::File`].
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        check_path(&path)?;
        fs::create_dir_all(&path).map_err(|e| in_the_way(&path).unwrap_or_else(|| cannot_create(&path, e)))?;
        RunFolder::claim(path, check_empty)
    }

    /// Opens the folder of a run that has ended or was killed, for going on with it.
    ///
    /// Temporary files that a killed run left are removed.
    ///
    /// # Errors
    /// [`TrainError::Busy`] for one that another run uses, [`TrainError::Unlockable`], [`TrainError::File`].
    pub fn reopen(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        check_path(&path)?;
        RunFolder::claim(path, |_| Ok(()))
    }

    /// Creates `parent/name` for a new run, or the first of `parent/name-2`, `parent/name-3`, … that does not exist.
    ///
    /// # Errors
    /// [`TrainError::NotAFolder`], [`TrainError::InvalidArgument`], [`TrainError::File`].
    pub fn numbered(parent: impl AsRef<Path>, name: &str) -> Result<Self> {
        let parent = parent.as_ref();
        check_path(&parent.join(name))?;
        fs::create_dir_all(parent).map_err(|e| in_the_way(parent).unwrap_or_else(|| cannot_create(parent, e)))?;
        for number in 1u64.. {
            let path = match number {
                1 => parent.join(name),
                n => parent.join(format!("{name}-{n}")),
            };
            // `create_dir` decides between concurrent runs: one of them creates the folder.
            match fs::create_dir(&path) {
                Ok(()) => match RunFolder::claim(path, check_empty) {
                    // Another run has claimed the new folder first.
                    Err(TrainError::Busy { .. } | TrainError::Occupied { .. }) => {}
                    claimed => return claimed,
                },
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot_create(&path, error)),
            }
        }
        unreachable!("a folder has fewer than 2⁶⁴ entries")
    }

    fn claim(path: PathBuf, allowed: impl Fn(&Folder) -> Result<()>) -> Result<Self> {
        let folder = Folder::open(path)?;
        let claim = Claim::new(&folder, || allowed(&folder))?;
        folder.remove_stale()?;
        Ok(RunFolder {
            folder,
            held: Arc::new(Held {
                _claim: claim,
                texts: Mutex::default(),
            }),
        })
    }

    /// Removes the temporary files and the lock file that a killed run left in the folder at `path`. Does nothing in a folder
    /// in which no run was killed or a run is in progress. A file that cannot be removed is left. Returns the number of files
    /// removed, the lock file included.
    ///
    /// A program that opens the folder of a run should call this first.
    pub fn tidy(path: impl AsRef<Path>) -> usize {
        let path = match path.as_ref() {
            // The parent of a bare file name.
            p if p.as_os_str().is_empty() => Path::new("."),
            p => p,
        };
        let Ok(folder) = Folder::open(path) else {
            return 0;
        };
        match Claim::abandoned(&folder) {
            Some(_claim) => 1 + folder.remove_stale().unwrap_or(0),
            None => 0,
        }
    }

    /// The path at which the folder was created.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The path of the file `name` in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn open(&self) -> &Folder {
        &self.folder
    }

    /// Writes a file of the folder atomically, as [`write_atomic`](crate::write_atomic) does.
    ///
    /// # Errors
    /// [`TrainError::File`], [`TrainError::FolderRemoved`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        if self.folder.is_removed() {
            let path = self.path().to_path_buf();
            return Err(TrainError::FolderRemoved { path });
        }
        Ok(self.folder.write(name, bytes)?)
    }

    /// Writes `value` as indented JSON, atomically. If the file is removed during the run, the run writes it again.
    ///
    /// # Errors
    /// As [`RunFolder::write`].
    pub fn write_json(&self, name: &str, value: &serde_json::Value) -> Result<()> {
        let text = format!("{value:#}\n").into_bytes();
        self.write(name, &text)?;
        self.remember(name, text);
        Ok(())
    }

    /// As [`write_json`](RunFolder::write_json), with blanks behind the text up to `size` bytes, so that
    /// [`overwrite_json`](RunFolder::overwrite_json) finds room for another text.
    ///
    /// # Errors
    /// As [`RunFolder::write`].
    pub fn write_json_with_room(&self, name: &str, value: &serde_json::Value, size: usize) -> Result<()> {
        let mut text = format!("{value:#}\n").into_bytes();
        text.resize(text.len().max(size), b' ');
        self.write(name, &text)?;
        self.remember(name, text);
        Ok(())
    }

    /// Writes `value` as JSON in the place of a file's text, on a disk that is full. The file has to be long enough:
    /// [`write_json_with_room`](RunFolder::write_json_with_room).
    ///
    /// # Errors
    /// [`TrainError::File`], also for a file that is missing or too short.
    pub fn overwrite_json(&self, name: &str, value: &serde_json::Value) -> Result<()> {
        let text = format!("{value:#}\n").into_bytes();
        self.folder.overwrite(name, &text)?;
        self.remember(name, text);
        Ok(())
    }

    /// Reads a file of the folder, also after the folder has been moved.
    ///
    /// # Errors
    /// [`TrainError::File`].
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let mut file = self.folder.open_file(name, false)?;
        let mut bytes = Vec::new();
        let read = file.read_to_end(&mut bytes);
        read.map_err(FileError::io(&self.file(name), "read"))?;
        Ok(bytes)
    }

    /// True if a run works in the folder at `path`, in this process or another, or if the file system has no locks to tell whether the
    /// run that has left its mark there still does.
    pub fn is_in_use(path: impl AsRef<Path>) -> bool {
        Folder::open(path.as_ref()).is_ok_and(|folder| Claim::is_held(&folder))
    }

    fn remember(&self, name: &str, text: Vec<u8>) {
        let mut texts = self.held.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.insert(name.to_string(), text);
    }

    /// Writes again the files of [`write_json`](RunFolder::write_json) that have been removed.
    ///
    /// # Errors
    /// As [`RunFolder::write`].
    pub(crate) fn restore(&self) -> Result<Vec<Warning>> {
        let texts = self.held.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut warnings = Vec::new();
        for (name, text) in texts.iter().filter(|(name, _)| !self.folder.contains(name)) {
            self.write(name, text)?;
            warnings.push(Warning::Restored { path: self.file(name) });
        }
        Ok(warnings)
    }
}

/// Checks that a folder holds nothing but a lock file and temporary files.
fn check_empty(folder: &Folder) -> Result<()> {
    let mut names = folder.names()?;
    names.retain(|name| name != MARK && !Folder::is_temporary(name));
    match names.iter().min() {
        Some(name) => Err(TrainError::Occupied {
            path: folder.path().to_path_buf(),
            found: format!("`{}`", name.to_string_lossy().escape_debug()),
        }),
        None => Ok(()),
    }
}

/// Checks that a path is not empty and has no control characters.
fn check_path(path: &Path) -> Result<()> {
    let text = path.to_string_lossy();
    if text.is_empty() || text.chars().any(char::is_control) {
        let expected = "a path that is not empty and has no control characters";
        return Err(TrainError::invalid("folder", format!("{text:?}"), expected));
    }
    Ok(())
}

fn cannot_create(path: &Path, error: std::io::Error) -> TrainError {
    FileError::io(path, "create the folder")(error).into()
}

/// The error for `path` if it exists and is neither a folder nor a link to one.
fn in_the_way(path: &Path) -> Option<TrainError> {
    let found = match (fs::symlink_metadata(path).ok()?, fs::metadata(path)) {
        (_, Ok(there)) if there.is_dir() => return None,
        (link, Ok(there)) if link.is_symlink() => format!("a link to {}", kind_of(&there)),
        (link, Err(_)) if link.is_symlink() => "a link to nowhere".to_string(),
        (there, _) => kind_of(&there).to_string(),
    };
    Some(TrainError::NotAFolder {
        path: path.to_path_buf(),
        found,
    })
}

#[cfg(test)]
mod tests;
