//! Tokens that are found in a text before it is split: special ones such as `<|endoftext|>`, and words that were added to a
//! vocabulary.

use crate::unicode::is_word;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A token that stands for its text wherever that occurs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddedToken {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub content: String,
    /// It stands only for whole words.
    #[serde(default)]
    pub single_word: bool,
    /// The spaces before it belong to it.
    #[serde(default)]
    pub lstrip: bool,
    /// The spaces behind it belong to it.
    #[serde(default)]
    pub rstrip: bool,
    /// It is looked for in the normalized text.
    #[serde(default)]
    pub normalized: bool,
    /// It is no text, and left out of decoded text on request.
    #[serde(default)]
    pub special: bool,
}

impl AddedToken {
    /// A special token.
    pub(crate) fn special(id: u32, content: &str) -> Self {
        AddedToken {
            id,
            content: content.to_string(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }
    }
}

/// A part of a text: an added token, or what stands between them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Token(u32, Range<usize>),
    Text(Range<usize>),
}

/// Finds the tokens in a text, leftmost first and of those at one place the longest.
pub(crate) fn find(tokens: &[AddedToken], text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    let mut first = [false; 256];
    for token in tokens {
        if let Some(&byte) = token.content.as_bytes().first() {
            first[byte as usize] = true;
        }
    }
    while at < text.len() {
        let rest = &text[at..];
        let here = |token: &&AddedToken| {
            !token.content.is_empty()
                && rest.starts_with(&token.content)
                && (!token.single_word || alone(text, at..at + token.content.len()))
        };
        let found = match first[text.as_bytes()[at] as usize] {
            true => tokens.iter().filter(here).max_by_key(|token| token.content.len()),
            false => None,
        };
        let Some(token) = found else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        let (mut from, mut to) = (at, at + token.content.len());
        if token.lstrip {
            from = start + text[start..from].trim_end().len();
        }
        if token.rstrip {
            to = text.len() - text[to..].trim_start().len();
        }
        if start < from {
            parts.push(Part::Text(start..from));
        }
        parts.push(Part::Token(token.id, from..to));
        (start, at) = (to, to);
    }
    if start < text.len() {
        parts.push(Part::Text(start..text.len()));
    }
    parts
}

/// True if no word goes on at either end of a range.
fn alone(text: &str, range: Range<usize>) -> bool {
    let before = text[..range.start].chars().next_back();
    let behind = text[range.end..].chars().next();
    !before.is_some_and(is_word) && !behind.is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_from_the_left_and_the_longest_first() {
        let tokens = [
            AddedToken::special(0, "<s>"),
            AddedToken::special(1, "<s><s>"),
            AddedToken {
                lstrip: true,
                rstrip: true,
                ..AddedToken::special(2, "[M]")
            },
            AddedToken {
                single_word: true,
                ..AddedToken::special(3, "cat")
            },
        ];
        let found = |text: &str| -> Vec<String> {
            let show = |part: Part| match part {
                Part::Token(id, range) => format!("{id}:{}", &text[range]),
                Part::Text(range) => text[range].to_string(),
            };
            find(&tokens, text).into_iter().map(show).collect()
        };
        assert_eq!(found("a<s><s><s>é"), ["a", "1:<s><s>", "0:<s>", "é"]);
        assert_eq!(found("x  [M]\n y"), ["x", "2:  [M]\n ", "y"]);
        assert_eq!(found("cats cat"), ["cats ", "3:cat"]);
        assert_eq!(found("<s"), ["<s"]);
        assert!(found("").is_empty());
    }
}
