//! Any text in the table of datasets, to learn its spelling from: mistakes are put into its lines, and the lines are to be written without.

use super::card::{DatasetCard, Request};
use super::facts::Facts;
use super::opened::Shared;
use super::pairs::{self, PAIRS, Pair, Pairs};
use super::text;
use crate::{DataError, Draw, Result, Skipped, TextFile, TokenizerChoice, Typos};
use std::path::Path;
use std::sync::Arc;

/// The most characters of a part of a line.
const MOST: usize = 48;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a text to learn spelling from",
    description: "any text of UTF-8, plain or .gz: its lines, in parts of at most 48 characters, are to be written for the same with \
                  mistakes, drawn anew in each epoch; its last tenth is held back, with mistakes that stay",
    files: "the spelling of",
    ships: None,
    obtain: "take any text of some thousand lines",
    example: "FILE.txt",
    samples: &PAIRS,
    shape: None,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[Facts::VOCABULARY],
    recognises: Path::is_file,
    open: |request| {
        let (train, test) = read(request)?;
        Ok(pairs::opened(train, test))
    },
    held_back: |request| Ok(Arc::new(read(request)?.1) as Shared),
    file: Some(|path, options| pairs::texts_of(path, options, false, &parts)),
};

/// The text between white space in parts of at most [`MOST`] characters, cut at white space where there is some, each with the white space
/// behind it; the last one ends with a line break. Together they are the line.
fn parts(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let (indent, mut rest) = line.split_at(line.len() - line.trim_start().len());
    if !indent.is_empty() {
        found.push(("", indent));
    }
    while !rest.is_empty() {
        // With the character behind the longest part, which may be a blank.
        let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.clone().nth(MOST).map_or(rest.len(), |more| {
            let most = ends.clone().nth(MOST - 1).unwrap_or(rest.len());
            rest[..more].rfind(char::is_whitespace).unwrap_or(most)
        });
        let text = rest[..end].trim_end();
        let behind = &rest[text.len()..];
        let blanks = behind.len() - behind.trim_start().len();
        found.push((text, &behind[..blanks]));
        rest = &behind[blanks..];
    }
    found.push(("", "\n"));
    found
}

/// The lines to train on and those that are held back.
fn read(request: &Request<'_>) -> Result<(Pairs, Pairs)> {
    let missing = || DataError::invalid("spelling", "path", "none", "a text");
    let path = request.path.ok_or_else(missing)?;
    let most = pairs::longest(request.shape)?;
    let file = TextFile::open(path)?;
    let lines: Vec<&str> = file.text().lines().collect();
    let (train, held_back) = lines.split_at(lines.len() - lines.len().div_ceil(10));
    let shown = file.text().replace(['\n', '\t'], " ");
    let tokens = text::tokens_of(request, &TokenizerChoice::Characters, &shown, || train.join("\n"))?;
    let tokens = Arc::new(tokens);
    let of = |lines: &[&str], first: usize, clean: bool| {
        let mut pairs = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            for (text, _) in parts(line).into_iter().filter(|(text, _)| !text.is_empty()) {
                let draw = Draw::new(0, 0, pairs.len());
                pairs.push(Pair {
                    line: (first + number) as u64 + 1,
                    source: match clean {
                        true => text.to_string(),
                        false => Typos::default().of(text, &draw),
                    },
                    target: text.to_string(),
                    clean,
                });
            }
        }
        Pairs::new(
            path,
            &tokens,
            pairs.into_iter(),
            most,
            (request.bad, Skipped::default()),
        )
    };
    Ok((of(train, 0, true)?, of(held_back, train.len(), false)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_short_and_together_the_line() {
        let long = "x".repeat(2 * MOST + 5);
        let words = "the quick brown fox  jumps over the lazy dog, and ".repeat(7);
        for line in [
            "",
            " ",
            "a",
            "  a b",
            &long,
            &words,
            &format!("é {long} é"),
            &"ab ".repeat(16),
            &"abc ".repeat(12),
        ] {
            let parts = parts(line);
            let whole: String = parts.iter().flat_map(|(text, behind)| [*text, *behind]).collect();
            assert_eq!(whole, format!("{line}\n"));
            for (text, behind) in &parts {
                assert!(text.chars().count() <= MOST && text.trim() == *text, "{text:?}");
                assert!(behind.trim().is_empty(), "{behind:?}");
            }
            if line == &words[..] {
                assert!(
                    parts
                        .iter()
                        .all(|(text, _)| text.split_whitespace().all(|w| words.contains(w)))
                );
                assert!(parts.len() < 12, "{parts:?}");
            }
        }
    }
}
