//! Text in the table of datasets: windows of characters, or of the tokens of a tokenizer, as samples.

use super::card::{DatasetCard, Request};
use super::facts::{Fact, Facts};
use super::kinds::{MadeUp, SampleKind};
use super::opened::{Opened, Shared};
use crate::{
    Arrays, DataError, Labels, Result, Split, TextFile, TextWindows, TokenizerChoice, Tokens, Vocabulary, streams,
};
use kiln_core::Shape;
use kiln_core::philox::{Key, spaces};
use std::path::Path;
use std::sync::Arc;

/// Windows `[T + 1]` of the numbers of tokens, which are characters or those of a tokenizer: the first `T` are the input, the last `T` are to be predicted.
pub static WINDOWS: SampleKind = SampleKind {
    name: "tokens",
    noun: "window",
    describe: |shape| format!("sequences of {} tokens", shape.first().copied().unwrap_or_default()),
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
            facts: Tokens::Characters(vocabulary).facts(),
        })
    },
};

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a text",
    description: "any text of UTF-8, plain or .gz, by characters or by the tokens of --tokenizer; its last tenth is held back",
    files: "the text",
    ships: None,
    obtain: "take any text of some thousand characters",
    example: "FILE.txt",
    samples: &WINDOWS,
    shape: None,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[Facts::VOCABULARY],
    recognises: Path::is_file,
    open: |request| {
        let (tokens, split) = split(request)?;
        Ok(Opened {
            facts: tokens.facts(),
            ..Opened::of(split)
        })
    },
    held_back: |request| Ok(Arc::new(split(request)?.1.test)),
    file: None,
};

impl Tokens {
    /// The facts about them that a network is built and asked with.
    pub fn facts(&self) -> Facts {
        match self {
            Tokens::Characters(vocabulary) => {
                let characters = Fact::Text(vocabulary.characters().iter().collect());
                Facts::default().with(Facts::VOCABULARY, characters)
            }
            Tokens::Tokenizer(of) => Facts::default()
                .with(Facts::VOCABULARY, Fact::Numbers(vec![self.len() as f64]))
                .with(Facts::TOKENIZER, Fact::Text(of.digest())),
        }
    }

    /// The tokens of a trained network by the facts about its data, of which the tokenizer, if there is one, is in `file`.
    ///
    /// # Errors
    /// [`DataError::Missing`] for facts that list no tokens, [`DataError::Tokenizer`] for a file that cannot be read,
    /// [`DataError::OtherTokenizer`].
    pub fn of_facts(facts: &Facts, file: &Path) -> Result<Tokens> {
        if let Some(characters) = facts.text(Facts::VOCABULARY) {
            return Ok(Tokens::Characters(Vocabulary::of(characters)));
        }
        let Some(expected) = facts.tokens() else {
            return Err(DataError::Missing {
                path: file.to_path_buf(),
                expected: "the tokens of a network for text",
                advice: "the network is for other data",
            });
        };
        let tokens = Tokens::open(file)?;
        match tokens.tokenizer().map(|of| of.digest()).as_deref() == facts.text(Facts::TOKENIZER) {
            true => Ok(tokens),
            false => Err(DataError::OtherTokenizer {
                path: file.to_path_buf(),
                found: tokens.len(),
                expected,
            }),
        }
    }
}

/// The tokens that texts are cut into: those of the trained network, or those that are asked for, or `own`. A tokenizer is learned from
/// the `training` part, characters are those of all of the text.
pub(super) fn tokens_of<T: AsRef<str>>(
    request: &Request<'_>,
    own: &TokenizerChoice,
    text: &str,
    training: impl FnOnce() -> T,
) -> Result<Tokens> {
    let choice = request.tokenizer.unwrap_or(own);
    match (request.facts.filter(|facts| facts.has(Facts::VOCABULARY)), choice) {
        (None, TokenizerChoice::Characters) => Ok(Tokens::Characters(Vocabulary::of(text))),
        (None, choice) => Tokens::of(choice, training().as_ref()),
        (Some(facts), TokenizerChoice::File(file)) => match facts.text(Facts::VOCABULARY) {
            None => Tokens::of_facts(facts, file),
            Some(_) => Err(not_of(choice, "characters, those of the trained network")),
        },
        (Some(facts), TokenizerChoice::Characters) if facts.tokens().is_none() => {
            Tokens::of_facts(facts, Path::new(""))
        }
        (Some(_), _) => Err(not_of(choice, "the tokenizer.json of the trained network")),
    }
}

fn not_of(choice: &TokenizerChoice, expected: &'static str) -> DataError {
    DataError::invalid("text", "tokenizer", choice, expected)
}

/// The parts of the text, by the tokens of the trained network or its own.
fn split(request: &Request<'_>) -> Result<(Arc<Tokens>, Split<TextWindows>)> {
    let path = request
        .path
        .ok_or_else(|| DataError::invalid("text", "path", "none", "a file"))?;
    let text = TextFile::open(path)?;
    let tokens = Arc::new(tokens_of(request, &TokenizerChoice::Characters, text.text(), || {
        text.training_part()
    })?);
    let split = text.split_by(&tokens, context(request.shape)?)?;
    Ok((tokens, split))
}

/// The tokens of a window without the first.
pub(super) fn context(shape: &[usize]) -> Result<usize> {
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
