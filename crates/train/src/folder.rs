//! The folder of one run: its weights, its history, its configuration, and nothing of another run.

use crate::claim::{Claim, MARK};
use crate::{Result, TrainError, Warning};
use kiln_files::{FileError, Folder, kind_of};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A folder that belongs to one run. Everything a run writes goes into it.
///
/// While a value or a clone of it lives, no other run can have the folder, in this process or another: the file
/// `.kiln.lock` in it is locked, which names the process. The lock ends with its process, however that ends.
///
/// The folder is held open: one that is moved gets its files where it then is.
#[derive(Debug, Clone)]
pub struct RunFolder {
    folder: Folder,
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    _claim: Claim,
    /// Small files by name, to be written again if somebody removes them.
    texts: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl RunFolder {
    /// The weights with the best value of the monitored metric.
    pub const BEST: &'static str = "best.safetensors";
    /// The weights after the last epoch, or after the last step of an interrupted run.
    pub const LAST: &'static str = "last.safetensors";
    /// One JSON object a line, one line an epoch.
    pub const HISTORY: &'static str = "history.jsonl";
    /// The options that the run was asked for with.
    pub const CONFIG: &'static str = "config.json";

    /// Creates the folder `path`, with its parents, for a new run, and tries whether files can be written there: a
    /// run must not find that out after its first epoch. A link to a folder is followed.
    ///
    /// Temporary files that a killed run left in an otherwise empty folder are removed. A folder that is refused stays as
    /// it is.
    ///
    /// # Errors
    /// [`TrainError::Occupied`] when there is anything in it, [`TrainError::Busy`] when a run works in it,
    /// [`TrainError::NotAFolder`], [`TrainError::InvalidArgument`] for an empty path or one with control characters,
    /// [`TrainError::Unlockable`], [`TrainError::File`].
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        check_path(&path)?;
        fs::create_dir_all(&path).map_err(|e| in_the_way(&path).unwrap_or_else(|| cannot_create(&path, e)))?;
        RunFolder::claim(path)
    }

    /// Creates `parent/name` for a new run, or `parent/name-2`, `parent/name-3`, … when the folders before are taken.
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
            // Creating is the question: of two runs that start at once, one gets the name.
            match fs::create_dir(&path) {
                Ok(()) => match RunFolder::claim(path) {
                    // Another run was asked for by this very name, and was quicker.
                    Err(TrainError::Busy { .. } | TrainError::Occupied { .. }) => {}
                    claimed => return claimed,
                },
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot_create(&path, error)),
            }
        }
        unreachable!("a folder has fewer than 2⁶⁴ entries")
    }

    fn claim(path: PathBuf) -> Result<Self> {
        let folder = Folder::open(path)?;
        let claim = Claim::new(&folder, || check_empty(&folder))?;
        folder.remove_stale()?;
        Ok(RunFolder {
            folder,
            held: Arc::new(Held {
                _claim: claim,
                texts: Mutex::default(),
            }),
        })
    }

    /// Removes what a killed run left in the folder at `path`: its temporary files and its lock, by their exact names.
    /// Does nothing in a folder that no run was killed in, or in which one works; what cannot be removed stays. Returns how
    /// many files it has removed.
    ///
    /// To be called first by anything that opens the folder of a run.
    pub fn tidy(path: impl AsRef<Path>) -> usize {
        let path = match path.as_ref() {
            // The folder of a bare name.
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

    /// The path at which it was created.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn open(&self) -> &Folder {
        &self.folder
    }

    /// Writes a file of the folder atomically, as [`write_atomic`](crate::write_atomic) does.
    ///
    /// # Errors
    /// [`TrainError::File`]; [`TrainError::FolderRemoved`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        if self.folder.is_removed() {
            let path = self.path().to_path_buf();
            return Err(TrainError::FolderRemoved { path });
        }
        Ok(self.folder.write(name, bytes)?)
    }

    /// Writes `value` as indented JSON, atomically. A run that finds the file gone writes it again.
    ///
    /// # Errors
    /// As [`RunFolder::write`].
    pub fn write_json(&self, name: &str, value: &serde_json::Value) -> Result<()> {
        let text = format!("{value:#}\n").into_bytes();
        self.write(name, &text)?;
        let mut texts = self.held.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.insert(name.to_string(), text);
        Ok(())
    }

    /// Writes those files again that [`write_json`](RunFolder::write_json) has written and somebody has removed.
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

/// Refuses a folder that holds anything but what a killed run left.
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

/// Refuses a path that nobody means.
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

/// The thing that stands at `path`, if that is neither a folder nor a link to one.
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
