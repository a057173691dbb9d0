//! The letters of transcripts.

use std::collections::BTreeSet;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The letters that a network of speech writes. Its class 0 is the blank of CTC, class `i + 1` the letter `i`; the first letter is the
/// space.
///
/// ```
/// use kiln_data::Alphabet;
///
/// let alphabet = Alphabet::of_texts(["¡Una rana!", "a toad"]);
/// assert_eq!(alphabet.to_string(), " adnortu");
/// assert_eq!((alphabet.classes(), alphabet.labels("Nada.")), (9, vec![4, 2, 3, 2]));
/// assert_eq!(alphabet.text(&[4, 2, 3, 2]), "nada");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alphabet {
    letters: Vec<char>,
}

impl Alphabet {
    /// The letters of texts, [normalised](Alphabet::normalise): the space, then the others in the order of Unicode.
    pub fn of_texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut letters = BTreeSet::new();
        for text in texts {
            letters.extend(Alphabet::normalise(text).chars());
        }
        letters.remove(&' ');
        let letters = std::iter::once(' ').chain(letters).collect();
        Alphabet { letters }
    }

    /// The alphabet that [`to_string`](ToString::to_string) has written.
    pub fn of(letters: &str) -> Self {
        Alphabet {
            letters: letters.chars().collect(),
        }
    }

    /// A transcript as it is compared: NFC, lower case, without punctuation, words one space apart. Letters, digits and apostrophes stay,
    /// a dash separates words.
    ///
    /// ```
    /// # use kiln_data::Alphabet;
    /// assert_eq!(Alphabet::normalise("  «Don’t»  stop-it, JOSE\u{301}! "), "don't stop it josé");
    /// ```
    pub fn normalise(text: &str) -> String {
        let mut normal = String::with_capacity(text.len());
        for c in text.nfc().flat_map(char::to_lowercase).nfc() {
            match c {
                '\'' | '\u{2019}' => normal.push('\''),
                c if c.is_alphanumeric() || is_combining_mark(c) => normal.push(c),
                c if c.is_whitespace() || matches!(c, '-' | '\u{2010}'..='\u{2015}' | '/') => normal.push(' '),
                _ => {}
            }
        }
        normal.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The number of classes: the letters and the blank.
    pub fn classes(&self) -> usize {
        self.letters.len() + 1
    }

    /// The classes of a text, normalised. Letters that are not in the alphabet are left out.
    pub fn labels(&self, text: &str) -> Vec<usize> {
        let class = |c: char| self.letters.iter().position(|&letter| letter == c).map(|at| at + 1);
        Alphabet::normalise(text).chars().filter_map(class).collect()
    }

    /// The text of classes, in which blanks and what is no class are nothing.
    pub fn text(&self, labels: &[usize]) -> String {
        let letters = labels
            .iter()
            .filter_map(|&label| self.letters.get(label.checked_sub(1)?));
        letters.collect()
    }

    /// The letters in the order of their classes, from class 1 on.
    pub fn letters(&self) -> &[char] {
        &self.letters
    }
}

impl std::fmt::Display for Alphabet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.letters.iter().try_for_each(|letter| write!(f, "{letter}"))
    }
}
