//! Plain text as a sequence of tokens, for language models: characters, or the tokens of a tokenizer.

use super::DEFAULT_MAX_BYTES;
use super::ids::Ids;
use super::input::Input;
use super::text_windows::TextWindows;
use super::tokens::{NotEncoded, Tokens};
use super::vocabulary::Vocabulary;
use crate::{DataError, Place, Result, Split};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A text file in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    path: PathBuf,
    text: String,
}

impl TextFile {
    /// Reads a UTF-8 file of at most 1 GiB, or such a file compressed by gzip. `\r\n` becomes `\n`, and a byte order mark is dropped.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::TooLarge`], [`DataError::Empty`], [`DataError::OutOfMemory`], [`DataError::Decode`] for
    /// compressed data that is broken, [`DataError::Value`] for bytes that are not UTF-8.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = Input::open(path, DEFAULT_MAX_BYTES)?.rest("the text")?;
        Self::from_bytes(path, bytes)
    }

    /// As [`TextFile::open`], and for the path `-` what standard input has, which is not compressed.
    ///
    /// # Errors
    /// As [`TextFile::open`].
    pub fn open_or_stdin(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path != Path::new("-") {
            return Self::open(path);
        }
        let (name, mut bytes) = (Path::new("standard input"), Vec::new());
        let read = std::io::stdin().lock().take(DEFAULT_MAX_BYTES).read_to_end(&mut bytes);
        match read {
            Ok(_) => Self::from_bytes(name, bytes),
            Err(source) => Err(DataError::Io {
                path: name.to_path_buf(),
                action: "read",
                source,
            }),
        }
    }

    /// As [`TextFile::open`], from bytes in memory; error messages show `name` in place of a path.
    ///
    /// # Errors
    /// As [`TextFile::open`].
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self> {
        let path = name.into();
        let text = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            DataError::Value {
                path: path.clone(),
                place: Place::Byte(at as u64),
                what: "text",
                found: format!("the byte 0x{:02x}", e.as_bytes()[at]),
                expected: "UTF-8".into(),
            }
        })?;
        let text = match text.contains("\r\n") {
            true => text.replace("\r\n", "\n"),
            false => text,
        };
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_string(),
            None => text,
        };
        if text.is_empty() {
            let expected = "text";
            return Err(DataError::Empty { path, expected });
        }
        Ok(TextFile { path, text })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The vocabulary of the distinct characters of the text.
    pub fn vocabulary(&self) -> Vocabulary {
        Vocabulary::of(&self.text)
    }

    /// The text without the last tenth of its characters, which is held back where tokens are those of a tokenizer: what a tokenizer
    /// is learned from.
    pub fn training_part(&self) -> &str {
        &self.text[..self.held_back()]
    }

    /// The byte at which the last tenth of the characters begins.
    fn held_back(&self) -> usize {
        let count = self.text.chars().count() / 10;
        let last = self.text.char_indices().rev().take(count).last();
        last.map_or(self.text.len(), |(at, _)| at)
    }

    /// Splits the text into training and test windows of characters. The last tenth of the characters, but at least one window of
    /// `context + 1`, is the test set; everything before is the training set.
    ///
    /// # Errors
    /// [`DataError::Value`] for a text that is too short for two windows or has a character that is not in the vocabulary,
    /// [`DataError::InvalidArgument`] for a context of 0, [`DataError::OutOfMemory`].
    pub fn split(&self, vocabulary: &Vocabulary, context: usize) -> Result<Split<TextWindows>> {
        self.split_by(&Arc::new(Tokens::Characters(vocabulary.clone())), context)
    }

    /// Splits the text into training and test windows. By characters as [`TextFile::split`]; by the tokens of a tokenizer, the last tenth
    /// of the characters is the test set, and each part is encoded by itself.
    ///
    /// # Errors
    /// [`DataError::Value`] for a text that is too short for a window in each part or has a character that is not in the vocabulary,
    /// [`DataError::Tokenizer`] for text that no token stands for, [`DataError::InvalidArgument`] for a context of 0,
    /// [`DataError::OutOfMemory`].
    pub fn split_by(&self, tokens: &Arc<Tokens>, context: usize) -> Result<Split<TextWindows>> {
        if context == 0 {
            return Err(DataError::invalid("text", "context", 0, "at least 1"));
        }
        let window = context.saturating_add(1);
        let part = |ids: &Arc<Ids>, range: Range<usize>, text: &str| {
            TextWindows::new(&self.path, tokens, ids, range, context, text)
        };
        let short = |found: String, expected: String| DataError::Value {
            path: self.path.clone(),
            place: Place::File,
            what: "length",
            found,
            expected: expected.into(),
        };
        match &**tokens {
            Tokens::Characters(_) => {
                let ids = Arc::new(self.encoded(tokens, &self.text)?);
                if ids.len() / 2 < window {
                    let least = window.saturating_mul(2);
                    return Err(short(
                        format!("{} characters", ids.len()),
                        format!("at least {least}: {window} to train on and as many to measure on"),
                    ));
                }
                let begin = ids.len() - (ids.len() / 10).max(window);
                Ok(Split {
                    train: part(&ids, 0..begin, "")?,
                    test: part(&ids, begin..ids.len(), "")?,
                })
            }
            Tokens::Tokenizer(_) => {
                let (of_train, of_test) = self.text.split_at(self.held_back());
                let train = Arc::new(self.encoded(tokens, of_train)?);
                let test = Arc::new(self.encoded(tokens, of_test)?);
                for (ids, name) in [
                    (&train, "before its last tenth"),
                    (&test, "in its last tenth, which is held back"),
                ] {
                    if ids.len() < window {
                        let expected = format!("at least {window}, those of a window; take a longer text");
                        return Err(short(format!("{} tokens {name}", ids.len()), expected));
                    }
                }
                Ok(Split {
                    train: part(&train, 0..train.len(), of_train)?,
                    test: part(&test, 0..test.len(), of_test)?,
                })
            }
        }
    }

    /// The tokens of a part of the text.
    fn encoded(&self, tokens: &Tokens, text: &str) -> Result<Ids> {
        let most = match tokens {
            Tokens::Characters(_) => text.chars().count(),
            // A guess: a token stands for some characters.
            Tokens::Tokenizer(_) => text.len() / 4,
        };
        let mut ids = Ids::new(tokens.len(), most)?;
        let mut failed = None;
        let encoded = tokens.encode_each(text, &mut |id, _| {
            if failed.is_none() {
                failed = ids.push(id).err();
            }
        });
        let unknown = |at: usize, c: char| DataError::Value {
            path: self.path.clone(),
            place: Place::Line {
                line: 1 + text[..at].bytes().filter(|&b| b == b'\n').count() as u64,
                column: None,
            },
            what: "character",
            found: format!("`{}`", c.escape_debug()),
            expected: format!("one of the {} that the model knows", tokens.len()).into(),
        };
        match (encoded, failed) {
            (Err(NotEncoded::At(at, c)), _) => Err(unknown(at, c)),
            (Err(NotEncoded::Error(error)), _) | (Ok(()), Some(error)) => Err(error),
            (Ok(()), None) => Ok(ids),
        }
    }
}
