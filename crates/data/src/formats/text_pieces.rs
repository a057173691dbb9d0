//! Texts that are read piece by piece, so that one larger than the memory can be.

use super::input::Input;
use super::tokens::line_end;
use crate::{DataError, Place, Result};
use std::path::{Path, PathBuf};

/// The least bytes of a piece, unless the text ends.
const PIECE: usize = 1 << 20;

/// The most bytes of a piece: a line that is longer is cut.
const MOST: usize = 1 << 26;

/// The pieces of a text file of UTF-8, plain or compressed by gzip. Each ends behind a line break between two visible characters, where no
/// tokenizer joins what comes before and behind, unless a line is longer than 64 MiB. `\r\n` becomes `\n`, and a byte order mark is dropped,
/// as for [`TextFile`](crate::TextFile).
pub(crate) struct TextPieces {
    path: PathBuf,
    input: Input<'static>,
    /// Bytes that were read and not yet given out.
    bytes: Vec<u8>,
    /// Bytes of the text that were given out or dropped.
    before: u64,
    ended: bool,
}

impl TextPieces {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Ok(TextPieces {
            path: path.to_path_buf(),
            input: Input::open(path, u64::MAX)?,
            bytes: Vec::new(),
            before: 0,
            ended: false,
        })
    }

    /// The next piece; `None` behind the last one.
    ///
    /// # Errors
    /// Bytes that are not UTF-8, compressed data that is broken, memory.
    pub(crate) fn next(&mut self) -> Result<Option<String>> {
        loop {
            // What is no whole character at the end waits for the bytes that follow.
            let text = match std::str::from_utf8(&self.bytes) {
                Ok(text) => text,
                Err(error) if error.error_len().is_some() || self.ended => {
                    let at = error.valid_up_to();
                    return Err(DataError::Value {
                        path: self.path.clone(),
                        place: Place::Byte(self.before + at as u64),
                        what: "text",
                        found: format!("the byte 0x{:02x}", self.bytes[at]),
                        expected: "UTF-8".into(),
                    });
                }
                Err(error) => std::str::from_utf8(&self.bytes[..error.valid_up_to()]).unwrap_or_default(),
            };
            let end = match self.ended {
                true => Some(text.len()),
                false if text.len() > PIECE => match line_end(text, PIECE) {
                    end if end < text.len() => Some(end),
                    _ if text.len() >= MOST => Some(text.len()),
                    _ => None,
                },
                false => None,
            };
            if let Some(end) = end {
                let piece = self.cleaned(end);
                self.bytes.drain(..end);
                self.before += end as u64;
                match (piece.is_empty(), self.ended && self.bytes.is_empty()) {
                    (true, true) => return Ok(None),
                    (true, false) => continue,
                    (false, _) => return Ok(Some(piece)),
                }
            }
            let more = self.input.some(PIECE.max(self.bytes.len()))?;
            self.ended = more.is_empty();
            self.bytes.extend(more);
        }
    }

    /// The first bytes, up to a character's end, as a text.
    fn cleaned(&self, end: usize) -> String {
        let text = std::str::from_utf8(&self.bytes[..end]).unwrap_or_default();
        let text = match self.before {
            0 => text.strip_prefix('\u{feff}').unwrap_or(text),
            _ => text,
        };
        text.replace("\r\n", "\n")
    }
}
