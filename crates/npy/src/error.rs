//! Errors of files of NumPy's.

use std::fmt;

/// The result of reading or writing a file of NumPy's.
pub type Result<T> = std::result::Result<T, NpyError>;

/// A file of NumPy's that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The system refused.
    #[error("{0}")]
    Io(#[source] std::io::Error),
    /// Writing failed; the message names the file.
    #[error(transparent)]
    File(#[from] kiln_files::FileError),
    /// The bytes are not what the format prescribes.
    #[error("not a file of NumPy's: {0}")]
    Format(String),
    /// The array has a dtype without a counterpart here.
    #[error("arrays of {0} have no counterpart here; convert the array, for example by `x.astype(numpy.float32)`")]
    DType(String),
    /// An integer is outside of i32.
    #[error(
        "element {index} is {value}, outside of the range of i32; floats of f64 hold it: `x.astype(numpy.float64)`"
    )]
    Range {
        /// The position of the element in C's order.
        index: usize,
        /// Its value.
        value: i128,
    },
    /// The array is not of the kind that was asked for.
    #[error("an array of {found}, not of {expected}; `read` takes both")]
    Kind {
        /// The kind of the array: floats or integers.
        found: &'static str,
        /// The kind that the caller wants.
        expected: &'static str,
    },
    /// A device error.
    #[error(transparent)]
    Device(#[from] kiln_core::Error),
    /// Another error, and where it happened.
    #[error("{place}: {error}")]
    Within {
        /// A path, or the name of an array.
        place: String,
        /// The error.
        #[source]
        error: Box<NpyError>,
    },
}

impl NpyError {
    pub(crate) fn format(reason: impl Into<String>) -> Self {
        NpyError::Format(reason.into())
    }

    /// The error with the place where it happened.
    pub(crate) fn within(self, place: impl fmt::Display) -> Self {
        NpyError::Within {
            place: kiln_files::shown(&place.to_string()).to_string(),
            error: Box::new(self),
        }
    }
}
