//! The errors of tokenizers.

use kiln_files::{FileError, shown, shown_path};
use std::path::PathBuf;

/// The result of a tokenizer's function.
pub type Result<T> = std::result::Result<T, TokenizerError>;

/// An error of reading, making or using a tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file cannot be read.
    #[error("{}: cannot {action}: {source}", shown_path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The text of a file is no tokenizer.
    #[error("{}: {source}", shown_path(path))]
    InFile {
        /// The file.
        path: PathBuf,
        /// The error of its text.
        source: Box<TokenizerError>,
    },
    /// The text is no JSON, or not of the layout of a `tokenizer.json`.
    #[error("no tokenizer.json: {0}; a file that `save` of Hugging Face's tokenizers wrote is expected")]
    Json(#[from] serde_json::Error),
    /// A part of a tokenizer that is not built here.
    #[error("the {part} `{kind}` is not supported; supported are {supported}")]
    Unsupported {
        /// The part of the pipeline: `normalizer`, `model`, …
        part: &'static str,
        /// Its type, or its option.
        kind: String,
        /// The types that are.
        supported: &'static str,
    },
    /// A part of a tokenizer that contradicts another.
    #[error("the {part} {problem}")]
    Invalid {
        /// The part of the pipeline.
        part: &'static str,
        /// The contradiction.
        problem: String,
    },
    /// A token that the vocabulary does not have.
    #[error("the vocabulary has no token `{}`", shown(token))]
    UnknownToken {
        /// The token.
        token: String,
    },
    /// A piece of text that no token stands for, of a tokenizer without a token for unknown pieces.
    #[error("no token stands for `{}`, and the tokenizer has none for unknown text", shown(text))]
    UnknownText {
        /// The piece of text.
        text: String,
    },
    /// An id beyond the vocabulary.
    #[error("the vocabulary has no token {id}; it has {size}")]
    UnknownId {
        /// The id.
        id: u32,
        /// The number of tokens.
        size: usize,
    },
}

impl TokenizerError {
    pub(crate) fn invalid(part: &'static str, problem: impl Into<String>) -> Self {
        TokenizerError::Invalid {
            part,
            problem: problem.into(),
        }
    }
}
