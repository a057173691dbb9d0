//! Normalizers: changes of a text before it is split, with the places in the text that the result came from.

use crate::unicode::{is_accent, is_control, is_ideograph};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;
use unicode_normalization::char::canonical_combining_class;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// A change of a text before it is split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Normalizer {
    /// BERT's: control characters are dropped, every kind of space is a blank, ideographs stand apart, letters lose accents and
    /// become small.
    #[serde(rename = "BertNormalizer")]
    Bert {
        /// Drop control characters, and make every kind of space a blank.
        clean_text: bool,
        /// Put blanks around ideographs.
        handle_chinese_chars: bool,
        /// Drop accents; by default if letters are made small.
        strip_accents: Option<bool>,
        /// Make letters small.
        lowercase: bool,
    },
    /// Make letters small.
    Lowercase,
    /// Drop marks such as the accents that [`Normalizer::Nfd`] takes from letters.
    StripAccents,
    /// Unicode's canonical composition.
    #[serde(rename = "NFC")]
    Nfc,
    /// Unicode's canonical decomposition.
    #[serde(rename = "NFD")]
    Nfd,
    /// Unicode's compatibility composition.
    #[serde(rename = "NFKC")]
    Nfkc,
    /// Unicode's compatibility decomposition.
    #[serde(rename = "NFKD")]
    Nfkd,
    /// One after the other.
    Sequence {
        /// The normalizers.
        normalizers: Vec<Normalizer>,
    },
}

/// The types that are supported, for messages.
pub(crate) const SUPPORTED: &str = "BertNormalizer, Lowercase, StripAccents, NFC, NFD, NFKC, NFKD, Sequence";

impl Normalizer {
    /// BERT's for models that do not tell capital letters from small ones.
    pub fn bert_uncased() -> Self {
        Normalizer::Bert {
            clean_text: true,
            handle_chinese_chars: true,
            strip_accents: None,
            lowercase: true,
        }
    }

    /// Applies the change.
    pub(crate) fn apply(&self, text: &mut Normalized<'_>) {
        match self {
            Normalizer::Bert {
                clean_text,
                handle_chinese_chars,
                strip_accents,
                lowercase,
            } => {
                if *clean_text {
                    text.map(|c, out| match c {
                        '\0' | '\u{fffd}' => {}
                        c if is_control(c) => {}
                        c if c.is_whitespace() => out.push(' '),
                        c => out.push(c),
                    });
                }
                if *handle_chinese_chars {
                    text.map(|c, out| match is_ideograph(c) {
                        true => out.extend([' ', c, ' ']),
                        false => out.push(c),
                    });
                }
                if strip_accents.unwrap_or(*lowercase) {
                    Normalizer::Nfd.apply(text);
                    Normalizer::StripAccents.apply(text);
                }
                if *lowercase {
                    Normalizer::Lowercase.apply(text);
                }
            }
            Normalizer::Lowercase => text.map(|c, out| out.extend(c.to_lowercase())),
            Normalizer::StripAccents => text.map(|c, out| out.extend((!is_accent(c)).then_some(c))),
            Normalizer::Nfc => text.map_clusters(|cluster, out| out.extend(cluster.nfc())),
            Normalizer::Nfd => text.map_clusters(|cluster, out| out.extend(cluster.nfd())),
            Normalizer::Nfkc => text.map_clusters(|cluster, out| out.extend(cluster.nfkc())),
            Normalizer::Nfkd => text.map_clusters(|cluster, out| out.extend(cluster.nfkd())),
            Normalizer::Sequence { normalizers } => normalizers.iter().for_each(|one| one.apply(text)),
        }
    }
}

/// A text that was changed, and where its bytes came from.
#[derive(Clone, Debug)]
pub(crate) struct Normalized<'a> {
    pub(crate) text: Cow<'a, str>,
    /// The range of the original text that each byte came from; none while nothing was changed.
    origins: Option<Vec<Range<u32>>>,
}

impl<'a> Normalized<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Normalized {
            text: Cow::Borrowed(text),
            origins: None,
        }
    }

    /// The range of the original text that a range of this one came from.
    pub(crate) fn origin(&self, range: Range<usize>) -> Range<usize> {
        match &self.origins {
            None => range,
            Some(origins) => match origins.get(range) {
                Some([first, .., last]) => first.start as usize..last.end as usize,
                Some([one]) => one.start as usize..one.end as usize,
                _ => 0..0,
            },
        }
    }

    /// Puts a blank in front, which came from nowhere.
    pub(crate) fn prefix_blank(&mut self) {
        let mut origins = self.take_origins();
        origins.insert(0, 0..0);
        self.text.to_mut().insert(0, ' ');
        self.origins = Some(origins);
    }

    /// Replaces every character by those that `change` pushes.
    fn map(&mut self, mut change: impl FnMut(char, &mut Vec<char>)) {
        self.replace(
            |text| text.chars().next().map_or(0, char::len_utf8),
            |piece, out| {
                piece.chars().for_each(|c| change(c, out));
            },
        );
    }

    /// Replaces every run of characters that can be composed with each other.
    fn map_clusters(&mut self, change: impl FnMut(&str, &mut Vec<char>)) {
        let length = |text: &str| {
            let begins =
                |c: char| canonical_combining_class(c) == 0 && is_nfc_quick(std::iter::once(c)) != IsNormalized::Maybe;
            text.char_indices()
                .skip(1)
                .find(|&(_, c)| begins(c))
                .map_or(text.len(), |(at, _)| at)
        };
        self.replace(length, change);
    }

    /// Replaces pieces of the text, whose length in bytes `length` tells at the beginning of each.
    fn replace(&mut self, length: impl Fn(&str) -> usize, mut change: impl FnMut(&str, &mut Vec<char>)) {
        let old = self.text.clone();
        let (mut text, mut origins, mut changed) = (String::with_capacity(old.len()), Vec::new(), false);
        let (mut at, mut made) = (0, Vec::new());
        let before = self.origins.take();
        let origin = |range: Range<usize>| match &before {
            None => range.start as u32..range.end as u32,
            Some(origins) => origins[range.start].start..origins[range.end - 1].end,
        };
        while at < old.len() {
            let end = at + length(&old[at..]);
            let piece = &old[at..end];
            made.clear();
            change(piece, &mut made);
            changed |= !piece.chars().eq(made.iter().copied());
            let same = piece.chars().count() == made.len();
            let mut from = at;
            for &c in &made {
                // A piece of as many characters is changed character by character.
                let range = match same {
                    true => {
                        let length = old[from..].chars().next().map_or(0, char::len_utf8);
                        from += length;
                        from - length..from
                    }
                    false => at..end,
                };
                text.push(c);
                origins.extend(std::iter::repeat_n(origin(range), c.len_utf8()));
            }
            at = end;
        }
        match changed {
            true => (self.text, self.origins) = (Cow::Owned(text), Some(origins)),
            false => self.origins = before,
        }
    }

    fn take_origins(&mut self) -> Vec<Range<u32>> {
        let of_char = |(at, c): (usize, char)| {
            let range = at as u32..(at + c.len_utf8()) as u32;
            std::iter::repeat_n(range, c.len_utf8())
        };
        match self.origins.take() {
            Some(origins) => origins,
            None => self.text.char_indices().flat_map(of_char).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(normalizer: &Normalizer, text: &str) -> (String, Vec<String>) {
        let mut normalized = Normalized::new(text);
        normalizer.apply(&mut normalized);
        let origins = normalized.text.char_indices().map(|(at, c)| {
            let origin = normalized.origin(at..at + c.len_utf8());
            text[origin].to_string()
        });
        (normalized.text.to_string(), origins.collect())
    }

    #[test]
    fn characters_know_where_they_came_from() {
        let (text, origins) = applied(&Normalizer::bert_uncased(), "É\t中\u{200b}a");
        assert_eq!(text, "e  中 a");
        assert_eq!(origins, ["É", "\t", "中", "中", "中", "a"]);
        let (text, origins) = applied(&Normalizer::Nfc, "e\u{301}x\u{1100}\u{1161}");
        assert_eq!(text, "éx\u{ac00}");
        assert_eq!(origins, ["e\u{301}", "x", "\u{1100}\u{1161}"]);
        let (text, origins) = applied(&Normalizer::Nfkd, "ﬁ½");
        assert_eq!(text, "fi1\u{2044}2");
        assert_eq!(origins, ["ﬁ", "ﬁ", "½", "½", "½"]);
        let (text, origins) = applied(&Normalizer::Lowercase, "İA");
        assert_eq!(text, "i\u{307}a");
        assert_eq!(origins, ["İ", "İ", "A"]);
    }

    #[test]
    fn an_unchanged_text_is_not_copied() {
        let mut normalized = Normalized::new("abc");
        Normalizer::bert_uncased().apply(&mut normalized);
        assert!(matches!(normalized.text, Cow::Borrowed(_)) && normalized.origins.is_none());
        normalized.prefix_blank();
        assert_eq!(normalized.text, " abc");
        assert_eq!((normalized.origin(0..2), normalized.origin(1..4)), (0..1, 0..3));
    }
}
