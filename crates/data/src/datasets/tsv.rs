//! Tables of texts: columns are separated by tabs, and named by the first line.

use crate::{BadRecords, DataError, Place, Result, Skipped, TextFile};
use std::path::Path;

/// A table whose columns are known.
pub(super) struct Tsv<'a> {
    path: &'a Path,
    text: &'a str,
    header: Vec<&'a str>,
}

/// A line of a table.
pub(super) struct Row<'a> {
    /// Counted from 1, as the header is.
    pub(super) line: u64,
    /// As many as the header has.
    pub(super) fields: Vec<&'a str>,
    /// True for lines whose column `split` says something else than `train`; without the column for every tenth.
    pub(super) held_back: bool,
}

impl<'a> Tsv<'a> {
    /// The table of a file.
    pub(super) fn of(file: &'a TextFile, path: &'a Path) -> Self {
        let header = file.text().lines().next().unwrap_or_default();
        Tsv {
            path,
            text: file.text(),
            header: header.split('\t').map(str::trim).collect(),
        }
    }

    /// The name of a column.
    pub(super) fn name(&self, column: usize) -> &'a str {
        self.header[column]
    }

    /// The first column of one of these names; an error that expects `expected`, if there is none.
    pub(super) fn column(&self, names: &[&str], expected: &'static str) -> Result<usize> {
        let place = |name: &&str| self.header.iter().position(|column| column == name);
        names.iter().find_map(place).ok_or_else(|| DataError::Missing {
            path: self.path.to_path_buf(),
            expected,
            advice: "the first line of the table names its columns, separated by tabs",
        })
    }

    /// The lines that are not empty. One with another number of fields is an error, or is left out and noted.
    pub(super) fn rows(&self, bad: BadRecords, skipped: &mut Skipped) -> Result<Vec<Row<'a>>> {
        let split = self.header.iter().position(|column| *column == "split");
        let mut rows = Vec::new();
        for (number, line) in self.text.lines().enumerate().skip(1) {
            if line.is_empty() {
                continue;
            }
            let (line, fields): (u64, Vec<&str>) = (number as u64 + 1, line.split('\t').collect());
            if fields.len() != self.header.len() {
                let expected = format!("{}, those of the first line", self.header.len());
                let error = value(self.path, (line, None), "number of fields", fields.len(), expected);
                skipped.note(bad, error)?;
                continue;
            }
            rows.push(Row {
                line,
                held_back: match split {
                    Some(split) => fields[split].trim() != "train",
                    None => rows.len() % 10 == 9,
                },
                fields,
            });
        }
        Ok(rows)
    }
}

/// The error of a value in a line of a file, and in a column if it is in one.
pub(super) fn value(
    path: &Path,
    (line, column): (u64, Option<&str>),
    what: &'static str,
    found: impl std::fmt::Display,
    expected: String,
) -> DataError {
    DataError::Value {
        path: path.to_path_buf(),
        place: Place::Line {
            line,
            column: column.map(str::to_string),
        },
        what,
        found: found.to_string(),
        expected: expected.into(),
    }
}
