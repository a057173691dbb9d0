//! A recording of a list, with its text.

use crate::{AudioError, Result};
use std::path::{Path, PathBuf};

/// A file with sound and what is said in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Utterance {
    /// The file; it has not been opened.
    pub path: PathBuf,
    /// The text, as the list has it.
    pub text: String,
    /// The part of the data that the list assigns it to: `train`, `test`, …
    pub split: Option<String>,
    /// The speaker, if the list names speakers.
    pub speaker: Option<String>,
    /// The length in seconds, if the list gives one.
    pub seconds: Option<f64>,
    /// The list that it stands in, for messages.
    pub list: PathBuf,
    /// Its line there, counted from 1.
    pub line: usize,
}

/// The text of a list, which has to be UTF-8.
pub(super) fn text_of(path: &Path) -> Result<String> {
    let (mut file, _) = kiln_files::open_regular(path).map_err(AudioError::io(path, "open"))?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut file, &mut text).map_err(AudioError::io(path, "read"))?;
    // A mark of the order of bytes, which spreadsheets write.
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_string(),
        None => text,
    })
}
