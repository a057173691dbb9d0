//! The characters of a text and their numbers.

use crate::Result;

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
