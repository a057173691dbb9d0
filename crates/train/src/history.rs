//! The epochs of a run, in memory and in the run's folder.

use crate::csv::Table;
use crate::kept::Kept;
use crate::{EpochRecord, Result, Warning};
use kiln_files::{FileError, Folder};
use std::path::Path;

/// The epochs of a run so far.
#[derive(Debug, Default)]
pub struct History {
    epochs: Vec<EpochRecord>,
    lines: Option<Kept>,
    table: Option<Table>,
}

/// A record as a line of the file at `path`.
fn line(path: &Path, record: &EpochRecord) -> Result<Vec<u8>> {
    let failed = |e: serde_json::Error| FileError::io(path, "encode")(e.into());
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
        Ok(History {
            lines: Some(Kept::create(&Folder::open(folder)?, name)?),
            ..History::new()
        })
    }

    /// Creates a history that is also written to two files of `folder`, as lines and as a table.
    pub(crate) fn in_folder(folder: &Folder, lines: &str, table: &str) -> Result<Self> {
        Ok(History {
            epochs: Vec::new(),
            lines: Some(Kept::create(folder, lines.as_ref())?),
            table: Some(Table::create(folder, table.as_ref())?),
        })
    }

    /// Continues a history of these epochs in `folder`: the files are written anew, without what came after them.
    pub(crate) fn continued(folder: &Folder, lines: &str, table: &str, epochs: Vec<EpochRecord>) -> Result<Self> {
        let mut text = Vec::new();
        for record in &epochs {
            text.extend(line(&folder.path().join(lines), record)?);
        }
        Ok(History {
            lines: Some(Kept::replace(folder, lines.as_ref(), text)?),
            table: Some(Table::replace(folder, table.as_ref(), &epochs)?),
            epochs,
        })
    }

    /// A history of these epochs that is kept only in memory.
    pub(crate) fn of(epochs: Vec<EpochRecord>) -> Self {
        History {
            epochs,
            ..History::new()
        }
    }

    /// Adds an epoch, to the files first. A file that was removed or changed from outside is written again as a whole.
    ///
    /// # Errors
    /// [`TrainError::File`](crate::TrainError::File); then the files have only whole lines, and the epoch is not added.
    pub fn push(&mut self, record: EpochRecord) -> Result<()> {
        let size = self.lines.as_ref().map_or(0, Kept::size);
        if let Some(lines) = &mut self.lines {
            let line = line(&lines.path(), &record)?;
            lines.append(&line)?;
        }
        if let Some(table) = &mut self.table
            && let Err(error) = table.push(&self.epochs, &record)
        {
            if let Some(lines) = &mut self.lines {
                lines.rollback(size);
            }
            return Err(error);
        }
        self.epochs.push(record);
        Ok(())
    }

    /// Writes the files again that were removed, replaced or truncated from outside, and returns a warning for each.
    ///
    /// # Errors
    /// [`TrainError::File`](crate::TrainError::File).
    pub fn restore(&mut self) -> Result<Vec<Warning>> {
        let lines = self.lines.as_mut().map_or(Ok(None), Kept::restore)?;
        let table = self.table.as_mut().map_or(Ok(None), Table::restore)?;
        Ok(lines.into_iter().chain(table).collect())
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
    use crate::{Execution, Values};

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
            waiting: 0.125,
            samples_per_second: 640.0,
            execution: Execution::default(),
            machine: Values::new(),
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
            assert_eq!(history.restore().unwrap(), []);
            harm();
            assert_eq!(history.restore().unwrap(), [Warning::Restored { path: path.clone() }]);
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.lines().count() as u64, epoch);
        }
        history.push(record(5)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 5);
    }
}
