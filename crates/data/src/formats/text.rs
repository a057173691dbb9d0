//! Plain text as a sequence of characters, for language models on characters.

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

/// The characters that a model knows, numbered from 0 in the order of their code points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary(Vec<char>);

impl Vocabulary {
    /// The vocabulary of the distinct characters of `text`.
    pub fn of(text: &str) -> Self {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        Vocabulary(characters)
    }

    /// The number of characters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no characters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The characters in order; [`Vocabulary::of`] makes the same vocabulary of them.
    pub fn characters(&self) -> &[char] {
        &self.0
    }

    /// The number of a character; `None` if it is not in the vocabulary.
    pub fn id(&self, character: char) -> Option<i32> {
        self.0.binary_search(&character).ok().map(|i| i as i32)
    }

    /// The character with number `id`; `None` past the end.
    pub fn character(&self, id: usize) -> Option<char> {
        self.0.get(id).copied()
    }

    /// Converts a text to the numbers of its characters.
    ///
    /// # Errors
    /// The first character that is not in the vocabulary.
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
    /// Reads a UTF-8 file of at most 1 GiB. `\r\n` becomes `\n`, and a byte order mark is dropped.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::TooLarge`], [`DataError::Empty`], [`DataError::OutOfMemory`], [`DataError::Value`] for
    /// bytes that are not UTF-8.
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
        // One byte more than allowed shows that the file has grown since its size was checked.
        file.take(DEFAULT_MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(DataError::io(path, "read"))?;
        if bytes.len() as u64 > DEFAULT_MAX_BYTES {
            return Err(too_large(bytes.len() as u64));
        }
        Self::from_bytes(path, bytes)
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

    /// Splits the text into training and test windows. The last tenth of the characters, but at least one window of
    /// `context + 1`, is the test set; everything before is the training set.
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

/// Consecutive windows of a text. A sample's input has shape `[context + 1]` and holds the numbers of the characters: the
/// first `context` are a model's input and the last `context` its targets. Neighbouring windows share one character, so
/// every character but the first is a target once; characters that do not fill a window are dropped. The label is 0.
#[derive(Debug, Clone)]
pub struct TextWindows {
    path: PathBuf,
    ids: Arc<Vec<i32>>,
    range: Range<usize>,
    context: usize,
    shape: Shape,
}

impl TextWindows {
    /// The number of characters in this part of the text.
    pub fn characters(&self) -> usize {
        self.range.len()
    }
}

impl Dataset for TextWindows {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.range.len().saturating_sub(1) / self.context
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let start = self.range.start + index * self.context;
        let ids = &self.ids[start..=start + self.context];
        // Exact in f32: a vocabulary has fewer than 2²⁴ characters.
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
