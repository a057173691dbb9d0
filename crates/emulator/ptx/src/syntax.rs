//! Errors of the parser.

use thiserror::Error;

/// Text that is not PTX, or PTX that the parser does not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("PTX line {line}: {message}")]
pub struct SyntaxError {
    /// The line of the PTX text.
    pub line: u32,
    /// The fault: what was found and what was expected.
    pub message: String,
}

pub(crate) type Result<T> = std::result::Result<T, SyntaxError>;

pub(crate) fn error<T>(line: u32, message: impl Into<String>) -> Result<T> {
    Err(SyntaxError {
        line,
        message: message.into(),
    })
}
