//! What can be wrong with data: which file, where in it, what was found, what was expected, what to do.

use kiln_files::{shown, shown_path};
use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};

/// The result of reading data.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// Where in a file something was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Offset from the start of the (decompressed) file.
    Byte(u64),
    /// A record, counted from 0.
    Record(u64),
    /// A line of a text file, counted from 1, and the column's name or number.
    Line {
        /// The line.
        line: u64,
        /// The column, if one is to blame.
        column: Option<String>,
    },
    /// The file as a whole.
    File,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Byte(at) => write!(f, "byte {at}"),
            Place::Record(index) => write!(f, "record {index}"),
            Place::Line { line, column: None } => write!(f, "line {line}"),
            Place::Line { line, column: Some(c) } => write!(f, "line {line}, column `{}`", shown(c)),
            Place::File => f.write_str("the file"),
        }
    }
}

/// An error of a dataset, a file format, a transform or the loader.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", shown_path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried: `open`, `read`, `list`, …
        action: &'static str,
        /// What the system answered.
        source: std::io::Error,
    },
    /// A file or folder that the layout needs is not there.
    #[error("{}: not found, expected {expected}; {advice}", shown_path(path))]
    Missing {
        /// What was looked for.
        path: PathBuf,
        /// What should have been there.
        expected: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// The first bytes are not those of the format.
    #[error(
        "{}: wrong magic at byte 0: found {found:02x?}, expected {expected}; is this the right file?",
        shown_path(path)
    )]
    Magic {
        /// The file.
        path: PathBuf,
        /// The bytes found.
        found: Vec<u8>,
        /// What the format starts with.
        expected: &'static str,
    },
    /// The file ends before the data it announces. Found out before allocating wherever the file's size tells.
    #[error(
        "{}: truncated at {place}: expected {expected} bytes more, the file holds at most {found}; fetch it again",
        shown_path(path)
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the data was to start.
        place: Place,
        /// Bytes that can be there at most.
        found: u64,
        /// Bytes that were announced.
        expected: u64,
    },
    /// The file goes on after the data it announces.
    #[error(
        "{}: data goes on at {place} where the file was expected to end; its header or its contents are wrong",
        shown_path(path)
    )]
    Trailing {
        /// The file.
        path: PathBuf,
        /// The first byte too many.
        place: Place,
    },
    /// Larger than the limit that guards against decompression bombs. Nothing was allocated.
    #[error(
        "{}: {what} is {found} at {place}, the limit is {limit}; raise the limit if you trust the file",
        shown_path(path)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Where the size stands.
        place: Place,
        /// What is too large.
        what: &'static str,
        /// The size found.
        found: u64,
        /// The size allowed.
        limit: u64,
    },
    /// Compressed data that does not decode.
    #[error("{}: broken {format} at {place}: {}; fetch or export the file again", shown_path(path), shown(reason).sentence())]
    Decode {
        /// The file.
        path: PathBuf,
        /// Where the decoder was.
        place: Place,
        /// The format: `gzip`, `PNG`, `JPEG`.
        format: &'static str,
        /// What the decoder says.
        reason: String,
    },
    /// A header field or a value outside its domain.
    #[error("{}: {what} at {place}: found {}, expected {expected}", shown_path(path), shown(found).sentence())]
    Value {
        /// The file.
        path: PathBuf,
        /// Where it stands.
        place: Place,
        /// What it is: `element type`, `feature`, …
        what: &'static str,
        /// What was found.
        found: String,
        /// What would have been accepted; boxed to keep results small.
        expected: Box<str>,
    },
    /// Two files that belong together have different numbers of records.
    #[error(
        "{}: {found} records, but {} has {expected}; they do not belong together",
        shown_path(path),
        shown_path(other)
    )]
    CountMismatch {
        /// The file.
        path: PathBuf,
        /// The file it belongs to.
        other: PathBuf,
        /// Records in `path`.
        found: u64,
        /// Records in `other`.
        expected: u64,
    },
    /// A label outside the classes.
    #[error(
        "{}: label {label} of {place} is out of range, expected 0..{classes}; skip bad records or correct it",
        shown_path(path)
    )]
    Label {
        /// The file (or the dataset's name).
        path: PathBuf,
        /// The record.
        place: Place,
        /// The label found.
        label: i64,
        /// The number of classes.
        classes: usize,
    },
    /// A file or folder without a single usable record.
    #[error("{}: no records, expected {expected}", shown_path(path))]
    Empty {
        /// The file or folder.
        path: PathBuf,
        /// What should have been there.
        expected: &'static str,
    },
    /// Memory that could not be had.
    #[error("out of memory: {bytes} bytes requested for {what}")]
    OutOfMemory {
        /// What it was for.
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A sample index past the end of a dataset.
    #[error("sample {index} is out of range 0..{len}")]
    Index {
        /// The index asked for.
        index: usize,
        /// The number of samples.
        len: usize,
    },
    /// A sample whose shape does not fit where it goes.
    #[error("{what}: found shape {found}, expected {expected}")]
    Shape {
        /// The transform or the batch.
        what: &'static str,
        /// The shape found.
        found: String,
        /// What would have fitted.
        expected: String,
    },
    /// An option outside its domain.
    #[error("{what}: {argument} = {value}, expected {expected}")]
    InvalidArgument {
        /// The function or type.
        what: &'static str,
        /// The option.
        argument: &'static str,
        /// The value given.
        value: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// A dataset or transform panicked while a sample was made.
    #[error("panicked: {}", shown(message).sentence())]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// A loader thread could not start, or ended without an answer.
    #[error("loader worker {worker}: {reason}")]
    Worker {
        /// The worker's number.
        worker: usize,
        /// What happened.
        reason: String,
    },
    /// An error while a sample was made, with the sample it belongs to.
    #[error("sample {index}: {source}")]
    Sample {
        /// The sample's index in the dataset.
        index: usize,
        /// What went wrong.
        source: Box<DataError>,
    },
    /// A tensor error: shapes that overflow, a device that refuses.
    #[error(transparent)]
    Tensor(Box<kiln_core::Error>),
}

impl From<kiln_core::Error> for DataError {
    fn from(error: kiln_core::Error) -> Self {
        DataError::Tensor(Box::new(error))
    }
}

impl DataError {
    /// The error itself, without the sample around it.
    pub fn root(&self) -> &DataError {
        match self {
            DataError::Sample { source, .. } => source.root(),
            other => other,
        }
    }

    /// Adds the sample that an error came from.
    pub fn of_sample(self, index: usize) -> Self {
        match self {
            already @ DataError::Sample { .. } => already,
            source => DataError::Sample {
                index,
                source: Box::new(source),
            },
        }
    }

    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> DataError {
        let path = path.to_path_buf();
        move |source| DataError::Io { path, action, source }
    }

    pub(crate) fn invalid(
        what: &'static str,
        argument: &'static str,
        value: impl fmt::Display,
        expected: &'static str,
    ) -> Self {
        DataError::InvalidArgument {
            what,
            argument,
            value: value.to_string(),
            expected,
        }
    }

    pub(crate) fn shape(what: &'static str, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        DataError::Shape {
            what,
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}

/// Reserves room for `extra` more elements, or says what could not be had.
pub(crate) fn reserve<T>(values: &mut Vec<T>, extra: usize, what: &'static str) -> Result<()> {
    values.try_reserve(extra).map_err(|_| DataError::OutOfMemory {
        what,
        bytes: (extra as u64).saturating_mul(size_of::<T>() as u64),
    })
}

/// What a caught panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_string())
}
