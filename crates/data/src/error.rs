//! The errors of reading data. Each names the file, the place in it, the value found and the value expected.

use kiln_audio::AudioError;
use kiln_files::{shown, shown_path};
use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};

/// The result of reading data.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// A place in a file.
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
        /// The name or number of the column, if the error is in one.
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
    /// The operating system reported an error.
    #[error("{}: cannot {action}: {source}", shown_path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed: `open`, `read`, `list`, …
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file, folder or column that is needed does not exist.
    #[error("{}: not found, expected {expected}; {advice}", shown_path(path))]
    Missing {
        /// The path that was looked for, or the file that lacks the column.
        path: PathBuf,
        /// A description of what was expected there.
        expected: &'static str,
        /// A hint at the remedy.
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
        /// The first bytes of the format.
        expected: &'static str,
    },
    /// The file ends before the data that it announces. Wherever the file's size tells, this is detected before allocating.
    #[error(
        "{}: truncated at {place}: expected {expected} bytes more, the file holds at most {found}; fetch it again",
        shown_path(path)
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The start of the data that is missing.
        place: Place,
        /// The largest number of bytes that the file can hold from there on.
        found: u64,
        /// The number of bytes that were announced.
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
    /// A size beyond the limit that guards against decompression bombs. Nothing was allocated.
    #[error(
        "{}: {what} is {found} at {place}, the limit is {limit}; raise the limit if you trust the file",
        shown_path(path)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The place of the size in the file.
        place: Place,
        /// The name of the quantity: `file size`, `number of pixels`, …
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
        /// The decoder's position in the file; byte 0 where the decoder does not tell.
        place: Place,
        /// The format: `gzip`, `PNG`, `JPEG`.
        format: &'static str,
        /// The decoder's message.
        reason: String,
    },
    /// A header field or a value outside its domain.
    #[error("{}: {what} at {place}: found {}, expected {expected}", shown_path(path), shown(found).sentence())]
    Value {
        /// The file.
        path: PathBuf,
        /// The place of the value.
        place: Place,
        /// The name of the value: `element type`, `feature`, …
        what: &'static str,
        /// The value found, as text.
        found: String,
        /// The values that are accepted; boxed to keep results small.
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
        /// The file, or the dataset's name for data in memory.
        path: PathBuf,
        /// The record.
        place: Place,
        /// The label found.
        label: i64,
        /// The number of classes.
        classes: usize,
    },
    /// Other classes than those that a network was trained on.
    #[error(
        "{}: the classes {}, expected those that the network was trained on: {}",
        shown_path(path),
        shown(found),
        shown(expected)
    )]
    Classes {
        /// The file or folder.
        path: PathBuf,
        /// The names of its classes.
        found: String,
        /// Those of the network's classes.
        expected: String,
    },
    /// A file or folder without a single usable record.
    #[error("{}: no records, expected {expected}", shown_path(path))]
    Empty {
        /// The file or folder.
        path: PathBuf,
        /// A description of what was expected there.
        expected: &'static str,
    },
    /// A file or folder of which nothing is left where bad records are left out.
    #[error(
        "{}: no records are left without {count} bad ones, the first of them: {first}",
        shown_path(path)
    )]
    AllBad {
        /// The file or folder.
        path: PathBuf,
        /// The number of bad records.
        count: u64,
        /// The error of the first one.
        first: Box<DataError>,
    },
    /// An allocation that failed.
    #[error("out of memory: {bytes} bytes requested for {what}")]
    OutOfMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// The number of bytes requested.
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
    /// A sample whose shape differs from the one that a transform or batch needs.
    #[error("{what}: found shape {found}, expected {expected}")]
    Shape {
        /// The transform or the batch.
        what: &'static str,
        /// The shape found.
        found: String,
        /// The shape expected.
        expected: String,
    },
    /// Arrays of which no batch can be made.
    #[error("a batch of this kind has {expected} in `{name}`; there are {found}")]
    Arrays {
        /// The path of the field.
        name: String,
        /// Its contents: floats or integers.
        expected: String,
        /// The arrays, with their names, dtypes and shapes.
        found: String,
    },
    /// A batch that cannot be written over one of other arrays.
    #[error("cannot write the batch ({found}) over one of another layout ({expected})")]
    Layout {
        /// The arrays of the batch.
        found: String,
        /// The tensors that it was to be written over.
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
        /// The values that are accepted.
        expected: &'static str,
    },
    /// A dataset or transform panicked while a sample was made.
    #[error("panicked: {}", shown(message).sentence())]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// A loader thread could not start, or ended without making its batch.
    #[error("loader worker {worker}: {reason}")]
    Worker {
        /// The worker's number.
        worker: usize,
        /// The reason, as text.
        reason: String,
    },
    /// An error in reading or transforming one sample, with the sample's index.
    #[error("sample {index}: {source}")]
    Sample {
        /// The sample's index in the dataset.
        index: usize,
        /// The error itself.
        source: Box<DataError>,
    },
    /// A tokenizer that cannot be read or learned, or a text that it has no tokens for.
    #[error(transparent)]
    Tokenizer(Box<kiln_tokenizer::TokenizerError>),
    /// A character that the vocabulary of a trained network does not have.
    #[error("there is no token for the character `{}`; {known} characters are known", character.escape_debug())]
    UnknownCharacter {
        /// The character.
        character: char,
        /// The number of those that are known.
        known: usize,
    },
    /// A `tokenizer.json` that is another than that of the trained network.
    #[error(
        "{}: a tokenizer of {found} tokens, but not that of the network, which has {expected}; \
         it is the tokenizer.json in the folder of its run",
        shown_path(path)
    )]
    OtherTokenizer {
        /// The file.
        path: PathBuf,
        /// Its number of tokens.
        found: usize,
        /// That of the network's tokenizer.
        expected: usize,
    },
    /// The sound of an utterance cannot be read.
    #[error("{}: line {line}: {source}", shown_path(list))]
    Utterance {
        /// The list that names the file.
        list: PathBuf,
        /// The line of the list, counted from 1.
        line: usize,
        /// The error, which names the file.
        source: Box<AudioError>,
    },
    /// An error of a file with sound or of a list of utterances.
    #[error(transparent)]
    Audio(Box<AudioError>),
    /// A tensor error: a shape that overflows, or an error of the device.
    #[error(transparent)]
    Tensor(Box<kiln_core::Error>),
}

impl From<kiln_core::Error> for DataError {
    fn from(error: kiln_core::Error) -> Self {
        DataError::Tensor(Box::new(error))
    }
}

impl From<AudioError> for DataError {
    fn from(error: AudioError) -> Self {
        DataError::Audio(Box::new(error))
    }
}

impl DataError {
    /// Returns the innermost error, without [`DataError::Sample`] around it.
    pub fn root(&self) -> &DataError {
        match self {
            DataError::Sample { source, .. } => source.root(),
            other => other,
        }
    }

    /// Wraps the error in [`DataError::Sample`], unless it is one already.
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

/// Reserves room for `extra` more elements, or fails with [`DataError::OutOfMemory`]; `what` names their purpose.
pub(crate) fn reserve<T>(values: &mut Vec<T>, extra: usize, what: &'static str) -> Result<()> {
    values.try_reserve(extra).map_err(|_| DataError::OutOfMemory {
        what,
        bytes: (extra as u64).saturating_mul(size_of::<T>() as u64),
    })
}

/// The message of a caught panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_string())
}
