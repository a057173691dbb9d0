//! Any text in the table of datasets, as questions for words that are left out of its sentences (Hermann et al. 2015).

use super::card::{DatasetCard, Request};
use super::facts::Facts;
use super::opened::{Opened, Shared};
use super::questions::{Files, Parts, QUESTIONS, every_tenth};
use crate::formats::{Asked, Paragraph};
use crate::{DataError, Result, TextFile, streams};
use kiln_core::philox::Key;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a text with gaps",
    description: "any text of UTF-8, plain or .gz: for a word that is left out of a sentence, with the passage that has the sentence, or for \
                  every fifth another one, which does not answer it; every tenth passage is held back",
    files: "the passages of",
    ships: None,
    obtain: "take any text of some thousand lines",
    example: "FILE.txt",
    samples: &QUESTIONS,
    shape: None,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[Facts::VOCABULARY],
    recognises: Path::is_file,
    open: |request| {
        let parts = Parts::new(request, files(request)?)?;
        let facts = parts.facts();
        let Some(train) = parts.train else {
            return Err(DataError::invalid("cloze", "path", "none", "a text"));
        };
        Ok(Opened {
            train: Arc::new(train),
            test: Arc::new(parts.test),
            facts,
        })
    },
    held_back: |request| Ok(Arc::new(Parts::new(request, files(request)?)?.test) as Shared),
    file: None,
};

/// The words of a passage, but for the rest of its last sentence, and the most of a question.
const PASSAGE: usize = 100;
const QUESTION: usize = 30;

/// The fewest letters of a word that is left out.
const LETTERS: usize = 4;

/// Stands for the word that is left out.
const GAP: &str = "what";

/// Of this many questions of a passage the last is one that it does not answer.
const ASKED: usize = 5;

/// The bytes of the words of a text, which white space separates.
fn words(text: &str) -> Vec<Range<usize>> {
    let start = text.as_ptr() as usize;
    let place = |word: &str| {
        let at = word.as_ptr() as usize - start;
        at..at + word.len()
    };
    text.split_whitespace().map(place).collect()
}

/// The sentences of a text as ranges of its words: each ends with a word that ends with a full stop, a question or an exclamation mark.
fn sentences(text: &str, words: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut found, mut begin) = (Vec::new(), 0);
    for (number, word) in words.iter().enumerate() {
        let end = text[word.clone()].trim_end_matches(['"', '\'', ')', '”', '’']);
        if end.ends_with(['.', '?', '!']) || number + 1 == words.len() {
            found.push(begin..number + 1);
            begin = number + 1;
        }
    }
    found
}

/// A sentence without one of its words, and the bytes of the word, without what is no letter around it; `None` for one that is too short or
/// too long, or has no long word.
fn gap(text: &str, words: &[Range<usize>], draw: impl Fn(u32) -> u32) -> Option<(String, Range<usize>)> {
    if !(4..=QUESTION).contains(&words.len()) {
        return None;
    }
    let letters = |word: &Range<usize>| {
        let inner = text[word.clone()].trim_matches(|c: char| !c.is_alphanumeric());
        let at = inner.as_ptr() as usize - text.as_ptr() as usize;
        (inner.chars().count() >= LETTERS).then(|| at..at + inner.len())
    };
    let long: Vec<(usize, Range<usize>)> = words
        .iter()
        .enumerate()
        .filter_map(|(number, word)| letters(word).map(|letters| (number, letters)))
        .collect();
    let (number, answer) = long.get(draw(u32::try_from(long.len()).ok()?.max(1)) as usize)?;
    let asked = words.iter().enumerate().map(|(other, word)| match other == *number {
        true => GAP,
        false => &text[word.clone()],
    });
    Some((asked.collect::<Vec<_>>().join(" "), answer.clone()))
}

/// The passages of a text with questions.
fn passages(text: &str) -> Vec<Paragraph> {
    let words = words(text);
    let sentences = sentences(text, &words);
    let key = Key::new(0, streams::SUMS, 4);
    let (mut found, mut elsewhere): (Vec<Paragraph>, Option<String>) = (Vec::new(), None);
    let mut rest = &sentences[..];
    while !rest.is_empty() {
        let first = rest[0].start;
        let count = rest
            .iter()
            .take_while(|sentence| sentence.start < first + PASSAGE)
            .count();
        let (passage, after) = rest.split_at(count);
        rest = after;
        let bytes = words[first].start..words[passage[count - 1].end - 1].end;
        let mut asked = Vec::new();
        for sentence in passage {
            if asked.len() == ASKED {
                break;
            }
            let draw = |bound: u32| key.below(sentence.start as u64, bound);
            let Some((question, answer)) = gap(text, &words[sentence.clone()], draw) else {
                continue;
            };
            // A question of the passage before, in the place of one of this.
            let other = if asked.len() + 1 == ASKED {
                elsewhere.take()
            } else {
                None
            };
            let own = answer.start - bytes.start..answer.end - bytes.start;
            let (question, answers) = match other {
                Some(other) => (other, Vec::new()),
                None => (question, Vec::from([own])),
            };
            asked.push(Asked {
                id: format!("{}-{}", found.len(), asked.len()),
                question,
                answers,
            });
        }
        elsewhere = asked.first().map(|asked| asked.question.clone());
        if !asked.is_empty() {
            found.push(Paragraph {
                context: text[bytes].to_string(),
                asked,
            });
        }
    }
    found
}

fn files(request: &Request<'_>) -> Result<Files> {
    let missing = || DataError::invalid("cloze", "path", "none", "a text");
    let path = request.path.ok_or_else(missing)?;
    let file = TextFile::open(path)?;
    every_tenth(path, passages(file.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_fill_the_gaps_of_questions() {
        let line = |i: usize| format!("Number {i} follows {} \"without doubt {}.\" Yes! ", i * 7, i + 1);
        let text: String = (0..200).map(line).collect();
        let found = passages(&text);
        assert!(found.len() > 10);
        let (mut answered, mut others) = (0, 0);
        for passage in &found {
            let context: Vec<&str> = passage.context.split_whitespace().collect();
            let context = context.join(" ");
            for asked in &passage.asked {
                let filled = |answer: &Range<usize>| asked.question.replacen(GAP, &passage.context[answer.clone()], 1);
                match &asked.answers[..] {
                    [] => {
                        others += 1;
                        assert!(
                            !context.contains(asked.question.rsplit(GAP).next().unwrap()),
                            "{asked:?}"
                        );
                    }
                    [answer] => {
                        answered += 1;
                        // Punctuation around the word is left out with it.
                        let whole = filled(answer);
                        let plain = |text: &str| text.replace(['"', '.', '!'], "");
                        assert!(plain(&context).contains(&plain(&whole)), "{whole}: {context}");
                    }
                    more => panic!("{more:?}"),
                }
            }
        }
        assert!(others > 0 && answered > 3 * others, "{answered} {others}");
    }

    #[test]
    fn a_text_without_sentences_has_no_questions() {
        for text in ["", "  \n", "one two.", &"word ".repeat(50)] {
            assert!(passages(text).is_empty(), "{text:?}");
        }
    }
}
