//! Comma-separated values (RFC 4180) with float features and one label column.

mod records;

use super::DEFAULT_MAX_BYTES;
use super::input::open_regular;
use crate::error::reserve;
use crate::{Arrays, BadRecords, DataError, Dataset, Labels, Place, Result, Sample, Skipped};
use kiln_core::Shape;
use kiln_files::shown;
use records::{Fields, Flaw, MAX_BYTES, MAX_LINES, Records};
use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A column of the file, by name (which needs a header) or by number from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// The name in the header.
    Name(String),
    /// The number, from 0.
    Index(usize),
}

impl From<&str> for Column {
    fn from(name: &str) -> Self {
        Column::Name(name.to_string())
    }
}

impl From<usize> for Column {
    fn from(index: usize) -> Self {
        Column::Index(index)
    }
}

/// The kind of values in the label column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelKind {
    /// Class numbers in `0..classes`.
    Class {
        /// The number of classes.
        classes: usize,
    },
    /// Class names; classes are the distinct names in sorted order.
    Name,
    /// A number to regress: each sample has one target.
    Number,
}

/// The options for reading a CSV file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvOptions {
    /// The label column; every other column is a feature.
    pub label: Column,
    /// The kind of values in the label column.
    pub kind: LabelKind,
    /// True if the first line holds the names of the columns.
    pub header: bool,
    /// The byte between fields: an ASCII character other than a quote and a line break.
    pub delimiter: u8,
    /// The largest file size accepted, in bytes.
    pub max_bytes: u64,
    /// The policy for lines that do not parse.
    pub bad: BadRecords,
}

impl CsvOptions {
    /// Options for a comma-separated file with a header, of at most [`DEFAULT_MAX_BYTES`] bytes; bad lines are errors.
    pub fn new(label: impl Into<Column>, kind: LabelKind) -> Self {
        CsvOptions {
            label: label.into(),
            kind,
            header: true,
            delimiter: b',',
            max_bytes: DEFAULT_MAX_BYTES,
            bad: BadRecords::Refuse,
        }
    }
}

/// A CSV file in memory; each input has shape `[features]`.
#[derive(Debug, Clone)]
pub struct Csv {
    path: PathBuf,
    arrays: Arrays,
    features: Vec<String>,
    classes: Vec<String>,
    skipped: Arc<Skipped>,
}

/// The layout that every line of a file is checked against.
struct Lines<'a> {
    path: &'a Path,
    options: &'a CsvOptions,
    /// Number of columns, set by the first line.
    width: usize,
    label: usize,
    /// Names of the columns; empty without a header.
    names: Vec<String>,
}

/// The largest number of columns accepted; each costs memory for its name.
const MAX_COLUMNS: usize = 1 << 20;

/// The label of a line.
enum Cell<'r> {
    Class(i32),
    Name(&'r str),
    Number(f32),
}

/// The labels of the lines so far. Each distinct name is kept once; classes are numbered in order of appearance.
#[derive(Default)]
struct Collected {
    classes: Vec<i32>,
    numbers: Vec<f32>,
    names: HashMap<String, i32>,
}

impl Collected {
    fn push(&mut self, cell: Cell<'_>) -> Result<()> {
        let class = match cell {
            Cell::Number(v) => {
                reserve(&mut self.numbers, 1, "labels")?;
                self.numbers.push(v);
                return Ok(());
            }
            Cell::Class(class) => class,
            Cell::Name(name) => match self.names.get(name) {
                Some(&class) => class,
                None => {
                    let class = self.names.len() as i32;
                    self.names.insert(name.to_string(), class);
                    class
                }
            },
        };
        reserve(&mut self.classes, 1, "labels")?;
        self.classes.push(class);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.numbers.is_empty()
    }

    /// Returns the labels and the class names, with named classes renumbered in sorted order of their names.
    fn finish(mut self, kind: LabelKind) -> (Labels, Vec<String>) {
        let mut names: Vec<(String, i32)> = self.names.into_iter().collect();
        names.sort_unstable();
        let labels = match kind {
            LabelKind::Number => Labels::Targets(self.numbers, 1),
            LabelKind::Class { classes } => Labels::Classes(self.classes, classes),
            LabelKind::Name => {
                let mut sorted = vec![0; names.len()];
                for (rank, (_, met)) in names.iter().enumerate() {
                    sorted[*met as usize] = rank as i32;
                }
                self.classes.iter_mut().for_each(|c| *c = sorted[*c as usize]);
                Labels::Classes(self.classes, names.len())
            }
        };
        (labels, names.into_iter().map(|(name, _)| name).collect())
    }
}

/// Opens a file to be read record by record.
fn records_of(path: &Path, options: &CsvOptions) -> Result<Records<BufReader<std::io::Take<std::fs::File>>>> {
    let (file, size) = open_regular(path)?;
    if size > options.max_bytes {
        return Err(DataError::TooLarge {
            path: path.to_path_buf(),
            place: Place::File,
            what: "file size",
            found: size,
            limit: options.max_bytes,
        });
    }
    if !options.delimiter.is_ascii() || matches!(options.delimiter, b'"' | b'\n' | b'\r') {
        let found = options.delimiter.escape_ascii();
        return Err(DataError::invalid(
            "csv",
            "delimiter",
            found,
            "an ASCII character, no quote or line break",
        ));
    }
    // A file that grows while it is read is read up to the size that was checked.
    Records::new(path, BufReader::new(file.take(size)), options.delimiter)
}

/// A file whose header has been read.
type Named<'a> = (Records<BufReader<std::io::Take<std::fs::File>>>, Lines<'a>, Fields);

/// Opens a file and reads the names of its columns.
fn named<'a>(path: &'a Path, options: &'a CsvOptions) -> Result<Named<'a>> {
    let (mut records, mut lines) = (records_of(path, options)?, Lines::new(path, options));
    let mut fields = Fields::default();
    match records.read(&mut fields)? {
        Some(Err(flaw)) => return Err(lines.flawed(flaw, fields.line)),
        Some(Ok(())) => lines.names = fields.iter().map(str::to_string).collect(),
        None => {}
    }
    lines.width = lines.names.len();
    Ok((records, lines, fields))
}

/// A line of a file as texts, one for each column.
pub(crate) struct TextLine {
    /// Counted from 1, as the header is.
    pub(crate) line: u64,
    pub(crate) fields: Vec<String>,
}

/// Reads a file with a header as texts: the names of the columns, and the lines. Bad records are errors, or left out and noted.
pub(crate) fn texts(path: &Path, options: &CsvOptions, skipped: &mut Skipped) -> Result<(Vec<String>, Vec<TextLine>)> {
    let (mut records, lines, mut fields) = named(path, options)?;
    let mut found = Vec::new();
    while let Some(outcome) = records.read(&mut fields)? {
        let whole = outcome.map_err(|flaw| lines.flawed(flaw, fields.line));
        if let Err(error) = whole.and_then(|()| lines.check_width(&fields)) {
            skipped.note(options.bad, error)?;
            continue;
        }
        reserve(&mut found, 1, "lines of a table")?;
        found.push(TextLine {
            line: fields.line,
            fields: fields.iter().map(str::to_string).collect(),
        });
    }
    Ok((lines.names, found))
}

/// Reads the columns with these names of a file with a header, in the order of the names and row by row: `[rows, names]` row-major.
/// Other columns may hold anything.
///
/// # Errors
/// As [`Csv::open`]; a bad record is an error under either policy, so that rows keep their numbers.
pub fn columns(path: impl AsRef<Path>, names: &[String], options: &CsvOptions) -> Result<Vec<f32>> {
    let path = path.as_ref();
    let (mut records, lines, mut fields) = named(path, options)?;
    let at = |name: &String| {
        lines
            .names
            .iter()
            .position(|n| n == name)
            .ok_or_else(|| DataError::Value {
                path: path.to_path_buf(),
                place: Place::Line { line: 1, column: None },
                what: "header",
                found: format!("no column `{}`", shown(name)),
                expected: "a column for each feature".into(),
            })
    };
    let at = names.iter().map(at).collect::<Result<Vec<usize>>>()?;
    let mut values = Vec::new();
    while let Some(outcome) = records.read(&mut fields)? {
        outcome.map_err(|flaw| lines.flawed(flaw, fields.line))?;
        lines.check_width(&fields)?;
        reserve(&mut values, at.len(), "features")?;
        for &column in &at {
            values.push(lines.number(&fields, column, "feature")?);
        }
    }
    Ok(values)
}

impl Csv {
    /// Reads a file. Features and numeric labels must be finite. Spaces around a field are dropped. A quoted field may
    /// contain line breaks; one record is at most 64 lines and 16 MiB.
    ///
    /// Bad records are: a line with another number of fields than the first; a feature that is not a finite number; a
    /// label that does not parse or is out of range; bytes that are not UTF-8; a quote that is not closed; text between a
    /// closing quote and the end of its field. If a quote or the number of fields is wrong, reading goes on with the second
    /// line of the record, so that a stray quote loses no line but its own.
    ///
    /// # Errors
    /// [`DataError::Value`] and [`DataError::Label`] naming line and column, [`DataError::TooLarge`],
    /// [`DataError::Missing`] for a label column that does not exist, [`DataError::InvalidArgument`] for a delimiter that
    /// is not allowed, [`DataError::Empty`], [`DataError::OutOfMemory`], [`DataError::Io`].
    pub fn open(path: impl AsRef<Path>, options: &CsvOptions) -> Result<Self> {
        let path = path.as_ref();
        let mut records = records_of(path, options)?;
        let mut lines = Lines::new(path, options);
        let mut fields = Fields::default();
        if options.header {
            match records.read(&mut fields)? {
                Some(Err(flaw)) => return Err(lines.flawed(flaw, fields.line)),
                Some(Ok(())) => lines.begin(&fields, true)?,
                // An empty file: no column at all.
                None => lines.begin(&Fields::default(), true)?,
            }
        }
        let (mut inputs, mut collected, mut skipped) = (Vec::new(), Collected::default(), Skipped::default());
        while let Some(outcome) = records.read(&mut fields)? {
            let parsed = match outcome {
                Ok(()) => {
                    if lines.width == 0 {
                        lines.begin(&fields, false)?;
                    }
                    if fields.len() != lines.width {
                        // A stray quote may have joined good lines to this one: read them again as lines of their own.
                        records.only_first_line();
                    }
                    lines.parse(&fields, &mut inputs)
                }
                Err(flaw) => Err(lines.flawed(flaw, fields.line)),
            };
            match parsed {
                Ok(cell) => collected.push(cell)?,
                // These are errors of the system, not of the record.
                Err(e @ (DataError::Io { .. } | DataError::OutOfMemory { .. })) => return Err(e),
                Err(e) => skipped.note(options.bad, e)?,
            }
        }
        if collected.is_empty() {
            return Err(skipped.nothing_left(path, "at least one line of data"));
        }
        let (labels, classes) = collected.finish(options.kind);
        let shape = Shape::new(&[lines.width - 1])?;
        let names = lines.names.into_iter().enumerate();
        Ok(Csv {
            path: path.to_path_buf(),
            arrays: Arrays::new(shape, inputs, labels)?,
            features: names.filter(|(i, _)| *i != lines.label).map(|(_, n)| n).collect(),
            classes,
            skipped: Arc::new(skipped),
        })
    }

    /// The features' names in order; empty without a header.
    pub fn feature_names(&self) -> &[String] {
        &self.features
    }
}

impl<'a> Lines<'a> {
    /// Before the first line.
    fn new(path: &'a Path, options: &'a CsvOptions) -> Self {
        Lines {
            path,
            options,
            width: 0,
            label: 0,
            names: Vec::new(),
        }
    }
}

impl Lines<'_> {
    /// Fixes the number of columns and finds the label column.
    fn begin(&mut self, first: &Fields, header: bool) -> Result<()> {
        self.width = first.len();
        if self.width > MAX_COLUMNS {
            return Err(DataError::TooLarge {
                path: self.path.to_path_buf(),
                place: Place::Line { line: 1, column: None },
                what: "number of columns",
                found: self.width as u64,
                limit: MAX_COLUMNS as u64,
            });
        }
        if header {
            self.names = first.iter().map(str::to_string).collect();
        }
        let found = match &self.options.label {
            Column::Index(i) => Some(*i).filter(|&i| i < self.width),
            Column::Name(name) => self.names.iter().position(|n| n == name),
        };
        self.label = found.ok_or(DataError::Missing {
            path: self.path.to_path_buf(),
            expected: "the label column in the first line",
            advice: "name a column of the header, or give its number from 0",
        })?;
        if self.width < 2 {
            return Err(DataError::Value {
                path: self.path.to_path_buf(),
                place: Place::Line { line: 1, column: None },
                what: "number of columns",
                found: self.width.to_string(),
                expected: "at least one feature beside the label".into(),
            });
        }
        Ok(())
    }

    fn value(&self, line: u64, column: usize, what: &'static str, found: &str, expected: &str) -> DataError {
        DataError::Value {
            path: self.path.to_path_buf(),
            place: Place::Line {
                line,
                // Shortened: a name may take megabytes, and up to `Skipped::LISTED` errors are kept.
                column: Some(
                    self.names
                        .get(column)
                        .map_or_else(|| column.to_string(), |name| shown(name).to_string()),
                ),
            },
            what,
            // Shortened: a field may take megabytes.
            found: format!("{:?}", found.chars().take(40).collect::<String>()),
            expected: expected.into(),
        }
    }

    fn flawed(&self, flaw: Flaw, line: u64) -> DataError {
        let (found, expected) = match flaw {
            Flaw::Open => (
                format!("a quote that is not closed within {MAX_LINES} lines or by the end of the file"),
                "a closing quote",
            ),
            Flaw::Text => ("text behind a closing quote".to_string(), "the end of the field"),
            Flaw::Long => (format!("more than {MAX_BYTES} bytes"), "a record of a reasonable size"),
            Flaw::Encoding => ("bytes that are not UTF-8".to_string(), "UTF-8 text"),
        };
        DataError::Value {
            path: self.path.to_path_buf(),
            place: Place::Line { line, column: None },
            what: "record",
            found,
            expected: expected.into(),
        }
    }

    fn check_width(&self, record: &Fields) -> Result<()> {
        match record.len() == self.width {
            true => Ok(()),
            false => Err(DataError::Value {
                path: self.path.to_path_buf(),
                place: Place::Line {
                    line: record.line,
                    column: None,
                },
                what: "number of fields",
                found: record.len().to_string(),
                expected: self.width.to_string().into(),
            }),
        }
    }

    fn number(&self, record: &Fields, column: usize, what: &'static str) -> Result<f32> {
        let field = record.get(column);
        let value = field.parse::<f32>().ok().filter(|v| v.is_finite());
        value.ok_or_else(|| self.value(record.line, column, what, field, "a finite number"))
    }

    /// Appends a line's features; leaves `inputs` as it was when the line is bad.
    fn parse<'r>(&self, record: &'r Fields, inputs: &mut Vec<f32>) -> Result<Cell<'r>> {
        let line = record.line;
        self.check_width(record)?;
        let field = record.get(self.label);
        let cell = match self.options.kind {
            LabelKind::Number => Cell::Number(self.number(record, self.label, "label")?),
            LabelKind::Name if field.is_empty() => {
                return Err(self.value(line, self.label, "label", field, "a class name"));
            }
            LabelKind::Name => Cell::Name(field),
            LabelKind::Class { classes } => {
                let label: i64 = field
                    .parse()
                    .map_err(|_| self.value(line, self.label, "label", field, "a class number"))?;
                let class = i32::try_from(label)
                    .ok()
                    .filter(|&c| usize::try_from(c).is_ok_and(|c| c < classes));
                Cell::Class(class.ok_or_else(|| DataError::Label {
                    path: self.path.to_path_buf(),
                    place: Place::Line { line, column: None },
                    label,
                    classes,
                })?)
            }
        };
        let before = inputs.len();
        reserve(inputs, self.width - 1, "features")?;
        for column in (0..self.width).filter(|&c| c != self.label) {
            match self.number(record, column, "feature") {
                Ok(v) => inputs.push(v),
                Err(e) => {
                    inputs.truncate(before);
                    return Err(e);
                }
            }
        }
        Ok(cell)
    }
}

impl Dataset for Csv {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.arrays.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        self.arrays.read(index, sample)
    }
    fn shape(&self) -> Option<Shape> {
        self.arrays.shape()
    }
    fn classes(&self) -> Option<usize> {
        self.arrays.classes()
    }
    fn class_names(&self) -> &[String] {
        &self.classes
    }
    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }
    fn source(&self) -> Option<&Path> {
        Some(&self.path)
    }
}
