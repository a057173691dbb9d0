//! The history as a table: `history.csv`, a row for each epoch.

use crate::kept::Kept;
use crate::{EpochRecord, Result, Values, Warning};
use kiln_files::Folder;
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// The named values of a run, of which each is a column.
#[derive(Debug, Default, PartialEq, Clone)]
struct Columns {
    lrs: BTreeSet<String>,
    train: BTreeSet<String>,
    valid: BTreeSet<String>,
    machine: BTreeSet<String>,
}

impl Columns {
    /// Adds the values of an epoch.
    fn add(&mut self, record: &EpochRecord) {
        self.lrs.extend(record.lrs.keys().cloned());
        self.train.extend(record.train.keys().cloned());
        self.valid.extend(record.valid.iter().flat_map(|v| v.keys().cloned()));
        self.machine.extend(record.machine.keys().cloned());
    }

    fn header(&self) -> Vec<u8> {
        let of = |group: &'static str, names: &BTreeSet<String>| -> Vec<String> {
            names.iter().map(|name| field(&format!("{group}/{name}"))).collect()
        };
        let cells = [
            vec!["epoch".to_string(), "step".to_string(), "lr".to_string()],
            of("lr", &self.lrs),
            of("train", &self.train),
            of("valid", &self.valid),
            ["best", "skipped", "samples", "seconds", "waiting", "samples_per_second"]
                .map(str::to_string)
                .into(),
            ["eager", "recorded", "replayed", "launches", "allocations"]
                .map(str::to_string)
                .into(),
            of("machine", &self.machine),
        ];
        line(&cells.concat())
    }

    fn row(&self, record: &EpochRecord) -> Vec<u8> {
        let of = |names: &BTreeSet<String>, values: &Values| -> Vec<String> {
            names
                .iter()
                .map(|name| values.get(name).map_or(String::new(), |v| number(*v)))
                .collect()
        };
        let done = &record.execution;
        let counts = |counts: &[u64]| counts.iter().map(u64::to_string).collect::<Vec<_>>();
        let cells = [
            counts(&[record.epoch, record.step]),
            vec![number(record.lr)],
            of(&self.lrs, &record.lrs),
            of(&self.train, &record.train),
            of(&self.valid, record.valid.as_ref().unwrap_or(&Values::new())),
            counts(&[record.best.into(), record.skipped, record.samples]),
            [record.seconds, record.waiting, record.samples_per_second]
                .map(number)
                .into(),
            counts(&[
                done.eager,
                done.recorded,
                done.replayed,
                done.launches,
                done.allocations,
            ]),
            of(&self.machine, &record.machine),
        ];
        line(&cells.concat())
    }
}

/// A cell by RFC 4180.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

/// The shortest text that reads back as the same number; an empty cell for NaN and infinities, which JSON does not have either.
fn number(value: f64) -> String {
    match value.is_finite() {
        true => format!("{value:?}"),
        false => String::new(),
    }
}

fn line(cells: &[String]) -> Vec<u8> {
    (cells.join(",") + "\r\n").into_bytes()
}

/// The table in its file.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Columns,
    kept: Kept,
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn create(folder: &Folder, name: &OsStr) -> Result<Self> {
        Ok(Table {
            columns: Columns::default(),
            kept: Kept::create(folder, name)?,
        })
    }

    /// Replaces a table by one of these epochs, or creates it. Without an epoch it is empty: the first one gives the columns.
    pub(crate) fn replace(folder: &Folder, name: &OsStr, epochs: &[EpochRecord]) -> Result<Self> {
        let mut columns = Columns::default();
        epochs.iter().for_each(|epoch| columns.add(epoch));
        let mut text = match epochs.is_empty() {
            true => Vec::new(),
            false => columns.header(),
        };
        epochs.iter().for_each(|epoch| text.extend(columns.row(epoch)));
        let kept = Kept::replace(folder, name, text)?;
        Ok(Table { columns, kept })
    }

    /// Adds the row of an epoch that comes after those `before`. If it has values that they have not, the table is written
    /// again with a column for each.
    pub(crate) fn push(&mut self, before: &[EpochRecord], record: &EpochRecord) -> Result<()> {
        let mut columns = self.columns.clone();
        columns.add(record);
        if columns == self.columns && !before.is_empty() {
            return self.kept.append(&columns.row(record));
        }
        let mut all = columns.header();
        before
            .iter()
            .chain([record])
            .for_each(|epoch| all.extend(columns.row(epoch)));
        self.kept.rewrite(all)?;
        self.columns = columns;
        Ok(())
    }

    /// Writes the file again if it was removed or changed from outside.
    pub(crate) fn restore(&mut self) -> Result<Option<Warning>> {
        self.kept.restore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Execution;

    fn record(epoch: u64, train: &[(&str, f64)], valid: Option<f64>) -> EpochRecord {
        EpochRecord {
            epoch,
            step: 10 * epoch,
            skipped: 0,
            lr: 1e-7,
            lrs: Values::new(),
            train: train.iter().map(|(name, v)| (name.to_string(), *v)).collect(),
            valid: valid.map(|loss| Values::from([("loss".to_string(), loss)])),
            best: epoch == 1,
            samples: 320,
            seconds: 0.5,
            waiting: 0.125,
            samples_per_second: 640.0,
            execution: Execution {
                eager: 10,
                ..Default::default()
            },
            machine: Values::new(),
        }
    }

    #[test]
    fn rows_are_added_and_a_new_value_gets_a_column() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let name = OsStr::new("history.csv");
        let read = || std::fs::read_to_string(dir.path().join(name)).unwrap();
        let mut table = Table::create(&folder, name).unwrap();
        let epochs = [
            record(1, &[("loss", 0.5)], Some(0.25)),
            record(2, &[("loss", f64::NAN)], None),
            record(3, &[("loss", 0.1), ("words, \"quoted\"", 2.0)], Some(f64::INFINITY)),
        ];
        for (i, epoch) in epochs.iter().take(2).enumerate() {
            table.push(&epochs[..i], epoch).unwrap();
        }
        let tail = "eager,recorded,replayed,launches,allocations\r\n";
        let expected = format!(
            "epoch,step,lr,train/loss,valid/loss,best,skipped,samples,seconds,waiting,samples_per_second,{tail}\
             1,10,1e-7,0.5,0.25,1,0,320,0.5,0.125,640.0,10,0,0,0,0\r\n\
             2,20,1e-7,,,0,0,320,0.5,0.125,640.0,10,0,0,0,0\r\n"
        );
        assert_eq!(read(), expected);
        table.push(&epochs[..2], &epochs[2]).unwrap();
        let expected = format!(
            "epoch,step,lr,train/loss,\"train/words, \"\"quoted\"\"\",valid/loss,best,skipped,samples,seconds,waiting,samples_per_second,{tail}\
             1,10,1e-7,0.5,,0.25,1,0,320,0.5,0.125,640.0,10,0,0,0,0\r\n\
             2,20,1e-7,,,,0,0,320,0.5,0.125,640.0,10,0,0,0,0\r\n\
             3,30,1e-7,0.1,2.0,,0,0,320,0.5,0.125,640.0,10,0,0,0,0\r\n"
        );
        assert_eq!(read(), expected);
        // What goes on from some of the epochs has the same table as what never stopped.
        let mut again = Table::replace(&folder, name, &epochs[..1]).unwrap();
        again.push(&epochs[..1], &epochs[1]).unwrap();
        again.push(&epochs[..2], &epochs[2]).unwrap();
        assert_eq!(read(), expected);
        std::fs::remove_file(dir.path().join(name)).unwrap();
        assert!(again.restore().unwrap().is_some());
        assert_eq!(read(), expected);
    }
}
