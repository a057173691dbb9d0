//! Pairs of texts in the table of datasets, of which the second is written for the first: translations, corrections, answers.

use super::card::{DatasetCard, FileOptions, Request};
use super::facts::Facts;
use super::kinds::{MadeUp, SampleKind};
use super::opened::{Opened, Shared};
use super::text;
use super::tsv::{Tsv, value};
use crate::dataset::check_index;
use crate::{
    BadRecords, DataError, Dataset, Result, Sample, Skipped, TextFile, TokenizerChoice, Tokens, Vocabulary, streams,
};
use kiln_core::Shape;
use kiln_core::philox::Key;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pairs of texts. The input is the source and the targets are the text that belongs to it, both as the code points of characters: a batch
/// cuts them into the dataset's tokens, so that transforms can change characters. The label is 1 where the source is the target itself,
/// for a task to put mistakes into, and else 0.
///
/// Files for a trained network become texts one after the other, whose targets are the white space behind each.
pub static PAIRS: SampleKind = SampleKind {
    name: "pairs",
    noun: "pair",
    describe: |shape| {
        let most = shape.first().copied().unwrap_or_default();
        format!("pairs of texts of at most {most} tokens")
    },
    batch: 16,
    samples: |made| Ok(Arc::new(random(made)?)),
    synthetic: |made| {
        let tokens = Arc::new(Tokens::Characters(Vocabulary::of(LETTERS)));
        Ok(Opened {
            train: Arc::new(reversed(made, &tokens, 0..made.count)?),
            test: Arc::new(reversed(made, &tokens, made.count..made.count + made.held_back())?),
            facts: tokens.facts(),
        })
    },
};

/// The letters of texts that are made up to be learned, and the longest of these.
const LETTERS: &str = "abcdefgh";
const LONGEST: usize = 6;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "pairs of texts",
    description: "a .tsv (or .tsv.gz) with a header: columns `source` and `target`, and `split` of train and test; without it every tenth \
                  line is held back",
    files: "the pairs",
    ships: None,
    obtain: "write a table with a text and what belongs to it in each line, separated by a tab",
    example: "FILE.tsv",
    samples: &PAIRS,
    shape: None,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[Facts::VOCABULARY],
    recognises: |path| {
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
        name.is_some_and(|name| name.ends_with(".tsv") || name.ends_with(".tsv.gz"))
    },
    open: |request| {
        let (train, test) = read(request)?;
        Ok(opened(train, test))
    },
    held_back: |request| Ok(Arc::new(read(request)?.1) as Shared),
    file: Some(|path, options| texts_of(path, options, true, &|line| vec![(line.trim(), "\n")])),
};

/// Both parts of a dataset.
pub(super) fn opened(train: Pairs, test: Pairs) -> Opened {
    Opened {
        facts: train.tokens.facts(),
        train: Arc::new(train),
        test: Arc::new(test),
    }
}

/// The most tokens of a text.
pub(super) fn longest(shape: &[usize]) -> Result<usize> {
    match *shape {
        [most] => Ok(most),
        _ => Err(DataError::shape("pairs", format!("{shape:?}"), "texts [T]")),
    }
}

/// A source and its target in a file.
pub(super) struct Pair {
    pub(super) line: u64,
    pub(super) source: String,
    pub(super) target: String,
    /// True if both are the same, for a task to put mistakes into the source.
    pub(super) clean: bool,
}

/// Pairs of texts in memory.
#[derive(Debug)]
pub(super) struct Pairs {
    path: Option<PathBuf>,
    tokens: Arc<Tokens>,
    /// Sources, targets, and labels.
    pairs: Vec<(String, String, i32)>,
    /// The tokens of the longer text of each.
    lengths: Vec<u32>,
    characters_per_token: f64,
    skipped: Arc<Skipped>,
}

impl Pairs {
    /// Pairs of a file, of which no text has more than `most` tokens.
    ///
    /// # Errors
    /// No pairs; a text without tokens, with too many or with an unknown character, unless bad ones are left out.
    pub(super) fn new(
        path: &Path,
        tokens: &Arc<Tokens>,
        pairs: impl Iterator<Item = Pair>,
        most: usize,
        (bad, mut skipped): (BadRecords, Skipped),
    ) -> Result<Self> {
        let mut all = Pairs::empty(tokens);
        for pair in pairs {
            let count = |text: &str, column| count(path, tokens, text, (pair.line, column), most);
            let columns = match pair.clean {
                true => [None, None],
                false => [Some("source"), Some("target")],
            };
            match (count(&pair.source, columns[0]), count(&pair.target, columns[1])) {
                (Ok(source), Ok(target)) => all.push(pair, [source, target]),
                (Err(error), _) | (_, Err(error)) => skipped.note(bad, error)?,
            }
        }
        if all.pairs.is_empty() {
            return Err(skipped.nothing_left(path, "pairs of texts, to train on and to hold back"));
        }
        all.path = Some(path.to_path_buf());
        all.skipped = Arc::new(skipped);
        Ok(all)
    }

    fn empty(tokens: &Arc<Tokens>) -> Self {
        Pairs {
            path: None,
            tokens: tokens.clone(),
            pairs: Vec::new(),
            lengths: Vec::new(),
            characters_per_token: 1.0,
            skipped: Arc::default(),
        }
    }

    fn push(&mut self, pair: Pair, [source, target]: [usize; 2]) {
        let (n, characters) = (self.pairs.len() as f64, pair.target.chars().count() as f64);
        self.characters_per_token = (self.characters_per_token * n + characters / target as f64) / (n + 1.0);
        self.pairs.push((pair.source, pair.target, pair.clean.into()));
        self.lengths.push(source.max(target) as u32);
    }
}

/// The number of tokens of a text in a line of a file.
fn count(path: &Path, tokens: &Tokens, text: &str, place: (u64, Option<&str>), most: usize) -> Result<usize> {
    let wrong = |what, found: String, expected: String| value(path, place, what, found, expected);
    let ids = tokens.encode(text).map_err(|error| match error {
        DataError::UnknownCharacter { character, known } => wrong(
            "character",
            format!("`{}`", character.escape_debug()),
            format!("one of the {known} that the model knows"),
        ),
        error => error,
    })?;
    match ids.len() {
        0 => Err(wrong("text", "none".to_string(), "a text".to_string())),
        count if count > most => {
            let noun = tokens.noun();
            Err(wrong("length", format!("{count} {noun}s"), format!("at most {most}")))
        }
        count => Ok(count),
    }
}

/// The code points of a text.
fn code_points(text: &str) -> impl Iterator<Item = f32> {
    // Exact in f32: they are below 2²¹.
    text.chars().map(|c| u32::from(c) as f32)
}

impl Dataset for Pairs {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.pairs.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let (source, target, label) = &self.pairs[index];
        fill(sample, source, target)?;
        sample.label = *label;
        Ok(())
    }
    fn length(&self, index: usize) -> Option<u32> {
        self.lengths.get(index).copied()
    }
    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }
    fn source(&self) -> Option<&Path> {
        self.path.as_deref()
    }
    fn tokens(&self) -> Option<&Tokens> {
        Some(&self.tokens)
    }
    fn characters_per_token(&self) -> Option<f64> {
        Some(self.characters_per_token)
    }
}

fn fill(sample: &mut Sample, source: &str, target: &str) -> Result<()> {
    let source: Vec<f32> = code_points(source).collect();
    sample.fill(Shape::new(&[source.len()])?, source.into_iter())?;
    sample.label = 0;
    sample.targets.clear();
    sample.targets.extend(code_points(target));
    Ok(())
}

/// The pairs to train on and those that are held back.
fn read(request: &Request<'_>) -> Result<(Pairs, Pairs)> {
    let missing = || DataError::invalid("pairs", "path", "none", "a table");
    let path = request.path.ok_or_else(missing)?;
    let most = longest(request.shape)?;
    let file = TextFile::open(path)?;
    let table = Tsv::of(&file, path);
    let source = table.column(&["source"], "a column `source`")?;
    let target = table.column(&["target"], "a column `target`")?;
    let mut skipped = Skipped::default();
    let rows = table.rows(request.bad, &mut skipped)?;
    let texts = |held_back: Option<bool>| -> String {
        let of = rows.iter().filter(|row| held_back.is_none_or(|h| row.held_back == h));
        of.flat_map(|row| [row.fields[source].trim(), "\n", row.fields[target].trim(), "\n"])
            .collect()
    };
    let all = texts(None).replace('\n', "");
    let tokens = text::tokens_of(request, &TokenizerChoice::Characters, &all, || texts(Some(false)))?;
    let tokens = Arc::new(tokens);
    let part = |held_back: bool, skipped: Skipped| {
        let of = rows.iter().filter(|row| row.held_back == held_back).map(|row| Pair {
            line: row.line,
            source: row.fields[source].trim().to_string(),
            target: row.fields[target].trim().to_string(),
            clean: false,
        });
        Pairs::new(path, &tokens, of, most, (request.bad, skipped))
    };
    Ok((part(false, skipped)?, part(true, Skipped::default())?))
}

/// The lines of a file, or of standard input for `-`, as sources: each in parts with the white space behind them.
pub(super) fn texts_of(
    path: &Path,
    options: &FileOptions<'_>,
    bounded: bool,
    parts: &dyn for<'a> Fn(&'a str) -> Vec<(&'a str, &'a str)>,
) -> Result<Vec<Sample>> {
    let most = if bounded { longest(options.shape)? } else { usize::MAX };
    let file = options.tokenizer.unwrap_or(Path::new("tokenizer.json"));
    let tokens = Tokens::of_facts(options.facts, file)?;
    let text = TextFile::open_or_stdin(path)?;
    let mut samples = Vec::new();
    for (number, line) in text.text().lines().enumerate() {
        for (part, behind) in parts(line) {
            if !part.is_empty() {
                count(path, &tokens, part, (number as u64 + 1, None), most)?;
            }
            let mut sample = Sample::default();
            fill(&mut sample, part, behind)?;
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// Pairs of random characters, as many different ones as the network knows tokens, with nothing to learn.
fn random(made: &MadeUp<'_>) -> Result<Pairs> {
    // Private use: there are enough of them, and no text has them.
    let character = |number: u32| char::from_u32(0xF_0000 + number.min(0xFFFD)).unwrap_or_default();
    let bound = u32::try_from(made.outputs).unwrap_or(u32::MAX).max(1);
    let length = (longest(made.shape)? / 2).saturating_sub(1).max(1);
    let key = Key::new(made.seed, streams::SUMS, 2);
    let text = |number: usize| -> String {
        let draws = (0..length).map(|at| key.below((number * length + at) as u64, bound));
        draws.map(character).collect()
    };
    let known: String = (0..bound).map(character).collect();
    let mut all = Pairs::empty(&Arc::new(Tokens::Characters(Vocabulary::of(&known))));
    for index in 0..made.count {
        let pair = Pair {
            line: 0,
            source: text(2 * index),
            target: text(2 * index + 1),
            clean: false,
        };
        all.push(pair, [length; 2]);
    }
    Ok(all)
}

/// Short texts, and each of them from its end to its beginning.
fn reversed(made: &MadeUp<'_>, tokens: &Arc<Tokens>, numbers: std::ops::Range<usize>) -> Result<Pairs> {
    let longest = longest(made.shape)?.min(LONGEST);
    let key = Key::new(made.seed, streams::SUMS, 3);
    let mut all = Pairs::empty(tokens);
    for number in numbers {
        let draw = |at: usize, bound: usize| key.below((number * (LONGEST + 1) + at) as u64, bound as u32) as usize;
        let length = 1 + draw(0, longest);
        let source: String = (1..=length)
            .map(|at| char::from(LETTERS.as_bytes()[draw(at, LETTERS.len())]))
            .collect();
        let pair = Pair {
            line: 0,
            target: source.chars().rev().collect(),
            source,
            clean: false,
        };
        all.push(pair, [length; 2]);
    }
    Ok(all)
}
