//! The measurements of a run, epoch by epoch, in memory and in the run's folder.

use crate::{Result, Warning};
use kiln_files::{FileError, Folder};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Measured values by name: `loss`, `accuracy`, …
pub type Values = BTreeMap<String, f64>;

/// The numbers of steps of an epoch or run that were run op by op, recorded and replayed.
///
/// On a backend that captures, a repeated step is recorded once and then replayed: one launch for the whole step instead
/// of one for each of its kernels, on the same memory each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// The number of steps that ran op by op.
    pub eager: u64,
    /// The number of steps that were recorded.
    pub recorded: u64,
    /// The number of steps that were replayed.
    pub replayed: u64,
    /// The number of kernels in one replay of the latest recording; 0 without a recording.
    pub launches: u64,
    /// The number of memory blocks that replayed steps allocated on the device; 0 in a steady state.
    pub allocations: u64,
}

impl Execution {
    /// Adds the counts of a later part of the run.
    pub(crate) fn add(&mut self, later: &Execution) {
        self.eager += later.eager;
        self.recorded += later.recorded;
        self.replayed += later.replayed;
        self.allocations += later.allocations;
        if later.launches > 0 {
            self.launches = later.launches;
        }
    }
}

/// The record of one epoch. Everything but the times and `execution` is a pure function of the seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// Optimizer steps done over the whole run; those skipped are not counted.
    pub step: u64,
    /// The number of steps of this epoch that were skipped because their loss or gradient was not finite.
    pub skipped: u64,
    /// The learning rate of the epoch's last step, of the first phase if there are several.
    pub lr: f64,
    /// The learning rate of each phase that has a name.
    #[serde(skip_serializing_if = "Values::is_empty", default, deserialize_with = "values")]
    pub lrs: Values,
    /// The loss, its parts and the metrics over the training samples of the epoch, measured while the weights changed.
    #[serde(deserialize_with = "values")]
    pub train: Values,
    /// The loss, its parts and the metrics on the validation set after the epoch.
    #[serde(deserialize_with = "optional_values")]
    pub valid: Option<Values>,
    /// True if the monitored metric is the best so far.
    pub best: bool,
    /// The number of samples trained on.
    pub samples: u64,
    /// The seconds spent on training, without validation.
    pub seconds: f64,
    /// The number of samples trained on per second.
    pub samples_per_second: f64,
    /// The numbers of steps run op by op, recorded and replayed.
    pub execution: Execution,
}

/// Reads values, of which NaN is written as `null`.
fn values<'de, D: Deserializer<'de>>(from: D) -> Result<Values, D::Error> {
    optional_values(from).map(Option::unwrap_or_default)
}

fn optional_values<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Values>, D::Error> {
    let read = Option::<BTreeMap<String, Option<f64>>>::deserialize(from)?;
    Ok(read.map(|values| {
        values
            .into_iter()
            .map(|(name, value)| (name, value.unwrap_or(f64::NAN)))
            .collect()
    }))
}

/// The epochs of a run so far.
#[derive(Debug, Default)]
pub struct History {
    epochs: Vec<EpochRecord>,
    kept: Option<Kept>,
}

/// The file that a history is kept in.
#[derive(Debug)]
struct Kept {
    folder: Folder,
    name: OsString,
    file: File,
    /// The contents of the file so far.
    text: Vec<u8>,
}

impl Kept {
    /// True if the file is still the one that was opened and is `size` bytes long.
    fn stands_at(&self, size: usize) -> bool {
        let found = self.file.metadata().map(|m| m.len());
        self.folder.holds(&self.name, &self.file) && found.is_ok_and(|found| found == size as u64)
    }

    /// Writes the whole file again.
    fn restore(&mut self) -> Result<(), FileError> {
        self.folder.write(&self.name, &self.text)?;
        self.file = self.folder.open_file(&self.name, false)?;
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

/// A record as a line of the file.
fn line(folder: &Folder, name: &OsStr, record: &EpochRecord) -> Result<Vec<u8>> {
    let failed = |e: serde_json::Error| FileError::io(&folder.path().join(name), "encode")(e.into());
    let mut line = serde_json::to_vec(record).map_err(failed)?;
    line.push(b'\n');
    Ok(line)
}

impl History {
    /// Creates a history that is kept only in memory.
    pub fn new() -> Self {
        History::default()
    }

    /// Creates a history that is also written to `path` as it grows, one JSON object per line. NaN is written as `null`.
    ///
    /// # Errors
    /// [`TrainError::File`](crate::TrainError::File), also if the file exists already.
    pub fn to_file(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default();
        let folder = match path.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        History::in_folder(&Folder::open(folder)?, name)
    }

    pub(crate) fn in_folder(folder: &Folder, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = name.as_ref().to_os_string();
        let Some(file) = folder.create_file(&name)? else {
            let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(FileError::io(&folder.path().join(&name), "create")(exists).into());
        };
        Ok(History {
            epochs: Vec::new(),
            kept: Some(Kept {
                folder: folder.clone(),
                name,
                file,
                text: Vec::new(),
            }),
        })
    }

    /// Continues a history of these epochs in `folder`: the file is written anew, without what came after them.
    pub(crate) fn continued(folder: &Folder, name: impl AsRef<OsStr>, epochs: Vec<EpochRecord>) -> Result<Self> {
        let name = name.as_ref().to_os_string();
        let mut text = Vec::new();
        for record in &epochs {
            text.extend(line(folder, &name, record)?);
        }
        folder.write(&name, &text)?;
        let file = folder.open_file(&name, false)?;
        Ok(History {
            epochs,
            kept: Some(Kept {
                folder: folder.clone(),
                name,
                file,
                text,
            }),
        })
    }

    /// A history of these epochs that is kept only in memory.
    pub(crate) fn of(epochs: Vec<EpochRecord>) -> Self {
        History { epochs, kept: None }
    }

    /// Adds an epoch, to the file first. A file that was removed or changed from outside is written again as a whole.
    ///
    /// # Errors
    /// [`TrainError::File`](crate::TrainError::File); then the file has only whole lines, and the epoch is not added.
    pub fn push(&mut self, record: EpochRecord) -> Result<()> {
        if let Some(kept) = &mut self.kept {
            let line = line(&kept.folder, &kept.name, &record)?;
            let size = kept.text.len();
            kept.text.extend(&line);
            let written = match kept.stands_at(size) {
                true => kept.folder.append(&kept.name, &mut kept.file, size as u64, &line),
                false => kept.restore(),
            };
            if let Err(error) = written {
                kept.text.truncate(size);
                return Err(error.into());
            }
        }
        self.epochs.push(record);
        Ok(())
    }

    /// Writes the file again if it was removed, replaced or truncated from outside, and returns a warning then.
    ///
    /// # Errors
    /// [`TrainError::File`](crate::TrainError::File).
    pub fn restore(&mut self) -> Result<Option<Warning>> {
        match &mut self.kept {
            Some(kept) if !kept.stands_at(kept.text.len()) => {
                kept.restore()?;
                Ok(Some(Warning::Restored { path: kept.path() }))
            }
            _ => Ok(None),
        }
    }

    /// The epochs in order.
    pub fn epochs(&self) -> &[EpochRecord] {
        &self.epochs
    }

    /// The last epoch.
    pub fn last(&self) -> Option<&EpochRecord> {
        self.epochs.last()
    }

    /// The epoch with the best value of the monitored metric.
    pub fn best(&self) -> Option<&EpochRecord> {
        self.epochs.iter().rev().find(|e| e.best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: u64) -> EpochRecord {
        EpochRecord {
            epoch,
            step: 10 * epoch,
            skipped: 0,
            lr: 1e-3,
            lrs: Values::new(),
            train: Values::from([("loss".into(), if epoch == 1 { 0.5 } else { f64::NAN })]),
            valid: None,
            best: epoch == 1,
            samples: 320,
            seconds: 0.5,
            samples_per_second: 640.0,
            execution: Execution::default(),
        }
    }

    #[test]
    fn lines_are_json_and_nan_is_null() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        let mut history = History::to_file(&path).unwrap();
        for epoch in 1..=2 {
            history.push(record(epoch)).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["train"]["loss"], 0.5);
        assert!(lines[1]["train"]["loss"].is_null());
        assert_eq!(history.best().unwrap().epoch, 1);
        let error = History::to_file(&path).unwrap_err();
        assert!(error.to_string().contains("history.jsonl: cannot create"), "{error}");
    }

    #[test]
    fn a_file_that_somebody_took_away_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("history.jsonl"), dir.path().join("other"));
        let mut history = History::to_file(&path).unwrap();
        let harms: [&dyn Fn(); 4] = [
            &|| std::fs::remove_file(&path).unwrap(),
            &|| std::fs::rename(&path, &other).unwrap(),
            &|| {
                std::fs::write(&other, b"something else").unwrap();
                std::fs::rename(&other, &path).unwrap();
            },
            &|| std::fs::write(&path, b"").unwrap(),
        ];
        for (epoch, harm) in (1..).zip(harms) {
            history.push(record(epoch)).unwrap();
            assert_eq!(history.restore().unwrap(), None);
            harm();
            assert_eq!(
                history.restore().unwrap(),
                Some(Warning::Restored { path: path.clone() })
            );
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.lines().count() as u64, epoch);
        }
        history.push(record(5)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 5);
    }
}
