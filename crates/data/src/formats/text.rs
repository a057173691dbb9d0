//! Plain text, character by character.

use super::DEFAULT_MAX_BYTES;
use super::input::open_regular;
use crate::dataset::check_index;
use crate::error::reserve;
use crate::{DataError, Dataset, Place, Result, Sample, Split};
use kiln_core::Shape;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The characters that a model knows, numbered by their code points' order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary(Vec<char>);

impl Vocabulary {
    /// Every character of `text` once.
    pub fn of(text: &str) -> Self {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        Vocabulary(characters)
    }

    /// Number of characters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The characters in order; [`Vocabulary::of`] gives the same vocabulary from them.
    pub fn characters(&self) -> &[char] {
        &self.0
    }

    /// The number of a character.
    pub fn id(&self, character: char) -> Option<i32> {
        self.0.binary_search(&character).ok().map(|i| i as i32)
    }

    /// The character of a number.
    pub fn character(&self, id: usize) -> Option<char> {
        self.0.get(id).copied()
    }

    /// The numbers of a text's characters, or the first character that is not in the vocabulary.
    ///
    /// # Errors
    /// That character.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, char> {
        text.chars().map(|c| self.id(c).ok_or(c)).collect()
    }
}

/// A text file in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    path: PathBuf,
    text: String,
}

impl TextFile {
    /// Reads a file of UTF-8 of at most 1 GiB. Line ends of Windows become those of Unix, and a byte order mark is left out.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::TooLarge`], [`DataError::Empty`], [`DataError::Value`] for bytes that are not UTF-8.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (file, size) = open_regular(path)?;
        let too_large = |found| DataError::TooLarge {
            path: path.to_path_buf(),
            place: Place::File,
            what: "the text",
            found,
            limit: DEFAULT_MAX_BYTES,
        };
        if size > DEFAULT_MAX_BYTES {
            return Err(too_large(size));
        }
        let mut bytes = Vec::new();
        reserve(&mut bytes, size as usize + 1, "a text")?;
        // One more than allowed, of a file that grows meanwhile.
        file.take(DEFAULT_MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(DataError::io(path, "read"))?;
        if bytes.len() as u64 > DEFAULT_MAX_BYTES {
            return Err(too_large(bytes.len() as u64));
        }
        Self::from_bytes(path, bytes)
    }

    /// As [`TextFile::open`], of bytes in memory; messages call them `name`.
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

    /// Every character of it once.
    pub fn vocabulary(&self) -> Vocabulary {
        Vocabulary::of(&self.text)
    }

    /// The text in windows of `context` characters and the one behind: the end of it, a tenth but at least one window, to measure
    /// on, and what is before that to train on.
    ///
    /// # Errors
    /// [`DataError::Value`] for a text that is too short for two windows or has a character that is not in the vocabulary,
    /// [`DataError::InvalidArgument`] for a context of 0, [`DataError::OutOfMemory`].
    pub fn split(&self, vocabulary: &Vocabulary, context: usize) -> Result<Split<TextWindows>> {
        if context == 0 {
            return Err(DataError::invalid("text", "context", 0, "at least 1"));
        }
        let mut ids = Vec::new();
        reserve(&mut ids, self.text.chars().count(), "the characters of a text")?;
        let mut line = 1;
        for c in self.text.chars() {
            let id = vocabulary.id(c).ok_or_else(|| DataError::Value {
                path: self.path.clone(),
                place: Place::Line { line, column: None },
                what: "character",
                found: format!("`{}`", c.escape_debug()),
                expected: format!("one of the {} that the model knows", vocabulary.len()).into(),
            })?;
            line += u64::from(c == '\n');
            ids.push(id);
        }
        let window = context.saturating_add(1);
        if ids.len() / 2 < window {
            return Err(DataError::Value {
                path: self.path.clone(),
                place: Place::File,
                what: "length",
                found: format!("{} characters", ids.len()),
                expected: format!(
                    "at least {}: {window} to train on and as many to measure on",
                    window.saturating_mul(2)
                )
                .into(),
            });
        }
        let begin = ids.len() - (ids.len() / 10).max(window);
        let ids = Arc::new(ids);
        let part = |range: Range<usize>| -> Result<TextWindows> {
            Ok(TextWindows {
                path: self.path.clone(),
                ids: ids.clone(),
                range,
                context,
                shape: Shape::new(&[window])?,
            })
        };
        Ok(Split {
            train: part(0..begin)?,
            test: part(begin..ids.len())?,
        })
    }
}

/// Windows of a text, one after the other: a sample is `context + 1` characters by their numbers, so that each of the first
/// `context` has the next one beside it. Every character but the first is a next one once; what is left at the end is not
/// used. Samples have no label.
#[derive(Debug, Clone)]
pub struct TextWindows {
    path: PathBuf,
    ids: Arc<Vec<i32>>,
    range: Range<usize>,
    context: usize,
    shape: Shape,
}

impl TextWindows {
    /// Number of characters.
    pub fn characters(&self) -> usize {
        self.range.len()
    }
}

impl Dataset for TextWindows {
    fn len(&self) -> usize {
        self.range.len().saturating_sub(1) / self.context
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let start = self.range.start + index * self.context;
        let ids = &self.ids[start..=start + self.context];
        // Exact: a vocabulary has fewer than 2²⁴ characters.
        sample.fill(self.shape, ids.iter().map(|&id| id as f32))?;
        sample.label = 0;
        sample.targets.clear();
        Ok(())
    }
    fn shape(&self) -> Option<Shape> {
        Some(self.shape)
    }
    fn classes(&self) -> Option<usize> {
        None
    }
    fn source(&self) -> Option<&Path> {
        Some(&self.path)
    }
}
