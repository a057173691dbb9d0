//! Text in the table of datasets: windows of characters as samples.

use super::card::{DatasetCard, Request};
use super::facts::{Fact, Facts};
use super::kinds::{MadeUp, SampleKind};
use super::opened::{Opened, Shared};
use crate::{Arrays, DataError, Labels, Result, Split, TextFile, TextWindows, Vocabulary, streams};
use kiln_core::Shape;
use kiln_core::philox::{Key, spaces};
use std::path::Path;
use std::sync::Arc;

/// Windows `[T + 1]` of the numbers of characters: the first `T` are the input, the last `T` are to be predicted.
pub static WINDOWS: SampleKind = SampleKind {
    name: "tokens",
    noun: "window",
    describe: |shape| format!("sequences of {} characters", shape.first().copied().unwrap_or_default()),
    batch: 4,
    samples: |made| Ok(Arc::new(random(made)?)),
    synthetic: |made| {
        let context = context(made.shape)?;
        // The held-back tenth of the text has as many windows as are asked for, or more.
        let windows = made.count.saturating_add(made.held_back()).saturating_add(1);
        let text = sums(windows.saturating_mul(context.saturating_add(1)), made.seed)?;
        let text = TextFile::from_bytes("sums", text.into_bytes())?;
        let vocabulary = text.vocabulary();
        let split = text.split(&vocabulary, context)?;
        let first = |part: TextWindows, count: usize| -> Result<Shared> {
            let count = count.min(crate::Dataset::len(&part));
            Ok(Arc::new(crate::Subset::new(part, (0..count).collect())?))
        };
        Ok(Opened {
            train: first(split.train, made.count)?,
            test: first(split.test, made.held_back())?,
            facts: facts(&vocabulary),
        })
    },
};

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a text",
    description: "any text of UTF-8, character by character; its last tenth is held back",
    files: "the text",
    ships: None,
    obtain: "take any text of some thousand characters",
    example: "FILE.txt",
    samples: &WINDOWS,
    classes: &[],
    has_target: false,
    facts: &[Facts::VOCABULARY],
    recognises: Path::is_file,
    open: |request| {
        let (vocabulary, split) = split(request)?;
        Ok(Opened {
            facts: facts(&vocabulary),
            ..Opened::of(split)
        })
    },
    held_back: |request| Ok(Arc::new(split(request)?.1.test)),
    file: None,
};

fn facts(vocabulary: &Vocabulary) -> Facts {
    let characters = Fact::Text(vocabulary.characters().iter().collect());
    Facts::default().with(Facts::VOCABULARY, characters)
}

/// The parts of the text, by the vocabulary of the trained network or its own.
fn split(request: &Request<'_>) -> Result<(Vocabulary, Split<TextWindows>)> {
    let path = request
        .path
        .ok_or_else(|| DataError::invalid("text", "path", "none", "a file"))?;
    let text = TextFile::open(path)?;
    let known = request.facts.and_then(|facts| facts.text(Facts::VOCABULARY));
    let vocabulary = known.map_or_else(|| text.vocabulary(), Vocabulary::of);
    let split = text.split(&vocabulary, context(request.shape)?)?;
    Ok((vocabulary, split))
}

fn context(shape: &[usize]) -> Result<usize> {
    match *shape {
        [context] => Ok(context),
        _ => Err(DataError::shape("text", format!("{shape:?}"), "windows [T]")),
    }
}

/// Windows of random characters, with nothing to learn.
fn random(made: &MadeUp<'_>) -> Result<Arrays> {
    let window = context(made.shape)?.saturating_add(1);
    let bound = u32::try_from(made.outputs).unwrap_or(u32::MAX).max(1);
    let key = Key::new(made.seed, *spaces::SAMPLING.start() + 1, 0);
    let ids = (0..made.count.saturating_mul(window) as u64).map(|i| key.below(i, bound) as f32);
    let labels = Labels::Classes(vec![0; made.count], 1);
    Arrays::new(Shape::new(&[window])?, ids.collect(), labels)
}

/// A text of so many characters, or a few more: sums of numbers below 50, one a line.
fn sums(characters: usize, seed: u64) -> Result<String> {
    let key = Key::new(seed, streams::SUMS, 0);
    let mut text = String::new();
    text.try_reserve(characters.saturating_add(16))
        .map_err(|_| DataError::OutOfMemory {
            what: "a text",
            bytes: characters as u64,
        })?;
    for line in 0.. {
        if text.len() >= characters {
            break;
        }
        let (a, b) = (key.below(2 * line, 50), key.below(2 * line + 1, 50));
        text.push_str(&format!("{a}+{b}={}\n", a + b));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_text_has_the_windows_that_are_asked_for() {
        for (count, context) in [(1, 1), (7, 8), (40, 16)] {
            let made = MadeUp {
                shape: &[context],
                outputs: 65,
                count,
                seed: 3,
            };
            let made_up = (WINDOWS.synthetic)(&made).unwrap();
            assert_eq!(made_up.train.len(), count, "{count} windows of {context}");
            assert_eq!(made_up.train.get(0).unwrap().input.len(), context + 1);
            assert!((1..=made.held_back()).contains(&made_up.test.len()));
            let known = made_up.facts.text(Facts::VOCABULARY).unwrap();
            assert!(known.chars().all(|c| "\n+=0123456789".contains(c)), "{known:?}");
        }
    }
}
