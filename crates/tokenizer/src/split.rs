//! Pre-tokenizers: how a text is split into the words that the model then divides.

use crate::unicode::{is_letter, is_number, is_punctuation, is_word};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The way to split a text into words. A model never joins what is split here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum PreTokenizer {
    /// GPT-2's: words, numbers and signs, each with the blank before it, and every byte written as a printable character.
    ByteLevel {
        /// Put a blank before a text that begins with none.
        add_prefix_space: bool,
        /// Leave out blanks from the places of tokens in the text.
        #[serde(default = "yes")]
        trim_offsets: bool,
        /// Split at all; without, a text is one word.
        #[serde(default = "yes")]
        use_regex: bool,
    },
    /// BERT's: at spaces, which are left out, and around every sign.
    #[serde(rename = "BertPreTokenizer")]
    Bert,
    /// Words and runs of signs, without the spaces between them: `\w+|[^\w\s]+`.
    Whitespace,
    /// Words are the runs of characters between spaces.
    WhitespaceSplit,
    /// One after the other.
    Sequence {
        /// The pre-tokenizers.
        pretokenizers: Vec<PreTokenizer>,
    },
}

/// The types that are supported, for messages.
pub(crate) const SUPPORTED: &str = "ByteLevel, BertPreTokenizer, Whitespace, WhitespaceSplit, Sequence";

pub(crate) fn yes() -> bool {
    true
}

impl PreTokenizer {
    /// GPT-2's, without a blank put before the text.
    pub fn byte_level() -> Self {
        PreTokenizer::ByteLevel {
            add_prefix_space: false,
            trim_offsets: true,
            use_regex: true,
        }
    }

    /// True if bytes are written as printable characters.
    pub(crate) fn is_byte_level(&self) -> bool {
        match self {
            PreTokenizer::ByteLevel { .. } => true,
            PreTokenizer::Sequence { pretokenizers } => pretokenizers.iter().any(Self::is_byte_level),
            _ => false,
        }
    }

    /// True if a blank is put before a text that begins with none.
    pub(crate) fn adds_prefix_space(&self) -> bool {
        match self {
            PreTokenizer::ByteLevel { add_prefix_space, .. } => *add_prefix_space,
            // Behind another pre-tokenizer it would be put before every word.
            PreTokenizer::Sequence { pretokenizers } => pretokenizers.first().is_some_and(Self::adds_prefix_space),
            _ => false,
        }
    }

    /// The words of a text.
    pub(crate) fn split(&self, text: &str) -> Vec<Range<usize>> {
        match self {
            PreTokenizer::ByteLevel { use_regex: false, .. } => {
                std::iter::once(0..text.len()).filter(|r| !r.is_empty()).collect()
            }
            PreTokenizer::ByteLevel { .. } => pieces(text, gpt2_word).collect(),
            PreTokenizer::Bert => words(text, |rest, first| match is_punctuation(first) {
                true => first.len_utf8(),
                false => run(rest, |c| !c.is_whitespace() && !is_punctuation(c)),
            }),
            PreTokenizer::Whitespace => words(text, |rest, first| match is_word(first) {
                true => run(rest, is_word),
                false => run(rest, |c| !is_word(c) && !c.is_whitespace()),
            }),
            PreTokenizer::WhitespaceSplit => words(text, |rest, _| run(rest, |c| !c.is_whitespace())),
            PreTokenizer::Sequence { pretokenizers } => {
                let mut words: Vec<Range<usize>> = std::iter::once(0..text.len()).collect();
                for one in pretokenizers {
                    let split = |word: &Range<usize>| {
                        let (start, inner) = (word.start, one.split(&text[word.clone()]));
                        inner.into_iter().map(move |r| start + r.start..start + r.end)
                    };
                    words = words.iter().flat_map(split).collect();
                }
                words
            }
        }
    }
}

/// Cuts a text into pieces, whose length `length` tells at the beginning of each.
fn pieces(text: &str, length: impl Fn(&str) -> usize) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        if rest.is_empty() {
            return None;
        }
        let start = at;
        at += length(rest).max(1);
        Some(start..at)
    })
}

/// The words of a text without the spaces between them; `length` tells that of a word by the text from it on and its first
/// character.
fn words(text: &str, length: impl Fn(&str, char) -> usize) -> Vec<Range<usize>> {
    let cut = |rest: &str| match rest.chars().next() {
        Some(c) if !c.is_whitespace() => length(rest, c),
        _ => run(rest, char::is_whitespace),
    };
    let is_space = |range: &Range<usize>| text[range.clone()].starts_with(char::is_whitespace);
    pieces(text, cut).filter(|range| !is_space(range)).collect()
}

/// The length in bytes of the characters at the beginning that `belongs` takes.
fn run(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

/// The length of GPT-2's word at the beginning of a text that is not empty, which is the match of
/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.
fn gpt2_word(text: &str) -> usize {
    let contractions = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];
    if let Some(contraction) = contractions.iter().find(|c| text.starts_with(**c)) {
        return contraction.len();
    }
    let blank = usize::from(text.starts_with(' '));
    let word = &text[blank..];
    if let Some(first) = word.chars().next().filter(|c| !c.is_whitespace()) {
        let length = match first {
            c if is_letter(c) => run(word, is_letter),
            c if is_number(c) => run(word, is_number),
            _ => run(word, |c| !c.is_whitespace() && !is_letter(c) && !is_number(c)),
        };
        return blank + length;
    }
    // Spaces: the last one belongs to the word behind them.
    let spaces = run(text, char::is_whitespace);
    let last = text[..spaces].chars().next_back().map_or(0, char::len_utf8);
    match spaces == text.len() || spaces == last {
        true => spaces,
        false => spaces - last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pre: &PreTokenizer, text: &str) -> Vec<String> {
        pre.split(text).into_iter().map(|r| text[r].to_string()).collect()
    }

    #[test]
    fn gpt2_keeps_the_blank_with_its_word() {
        let words = |text| split(&PreTokenizer::byte_level(), text);
        assert_eq!(
            words("Hello world's 123abc!?"),
            ["Hello", " world", "'s", " 123", "abc", "!?"]
        );
        assert_eq!(words("a  b\n\nc "), ["a", " ", " b", "\n", "\n", "c", " "]);
        assert_eq!(words("  \n x"), ["  \n", " x"]);
        assert_eq!(
            words("don't 'tis \u{a0}é½"),
            ["don", "'t", " '", "tis", " ", "\u{a0}", "é", "½"]
        );
        assert_eq!(words("   "), ["   "]);
        assert!(words("").is_empty());
        let whole = PreTokenizer::ByteLevel {
            add_prefix_space: false,
            trim_offsets: true,
            use_regex: false,
        };
        assert_eq!(split(&whole, "a b"), ["a b"]);
        assert!(split(&whole, "").is_empty());
    }

    #[test]
    fn others_leave_spaces_out() {
        let text = " ab, c_d--\u{e9}\t1.5 ";
        assert_eq!(
            split(&PreTokenizer::Bert, text),
            ["ab", ",", "c", "_", "d", "-", "-", "é", "1", ".", "5"]
        );
        assert_eq!(
            split(&PreTokenizer::Whitespace, text),
            ["ab", ",", "c_d", "--", "é", "1", ".", "5"]
        );
        assert_eq!(split(&PreTokenizer::WhitespaceSplit, text), ["ab,", "c_d--é", "1.5"]);
        let both = PreTokenizer::Sequence {
            pretokenizers: vec![PreTokenizer::WhitespaceSplit, PreTokenizer::Bert],
        };
        assert_eq!(split(&both, text), split(&PreTokenizer::Bert, text));
    }
}
