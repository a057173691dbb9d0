//! Labelled texts in the table of datasets: a text and its class in each line of a table.

use super::card::{DatasetCard, FileOptions, Request};
use super::encoded::{Encoded, EncodedTexts, LEARNED, MADE_UP, most_of};
use super::facts::{Fact, Facts};
use super::kinds::{MadeUp, SampleKind};
use super::opened::{Opened, Shared};
use super::text;
use super::tsv::{Row, Tsv, value};
use crate::{Arrays, BadRecords, DataError, Labels, Result, Sample, Skipped, TextFile, Tokens, streams};
use kiln_core::Shape;
use kiln_core::philox::Key;
use std::path::Path;
use std::sync::Arc;

/// Texts of at most `T` tokens with a class: `[CLS]`, the tokens, `[SEP]`, and −1 behind the end.
pub static TEXTS: SampleKind = SampleKind {
    name: "texts",
    noun: "text",
    describe: |shape| format!("texts of at most {} tokens", shape.first().copied().unwrap_or_default()),
    batch: 8,
    samples: |made| Ok(Arc::new(made_up(made, 0, made.count)?)),
    synthetic: |made| {
        let classes = (0..made.outputs).map(|class| class.to_string()).collect();
        Ok(Opened {
            train: Arc::new(made_up(made, 0, made.count)?),
            test: Arc::new(made_up(made, made.count, made.held_back())?),
            facts: Facts::default()
                .with(Facts::VOCABULARY, Fact::Numbers(vec![MADE_UP as f64]))
                .with(Facts::CLASSES, Fact::Names(classes)),
        })
    },
};

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "labelled texts",
    description: "a .tsv with a header: a column `text`, one `label` of names or `score` of numbers (negative, positive), and `split` of \
                  train and test; without it every tenth line is held back",
    files: "the texts",
    ships: None,
    obtain: "write a table with a text and its label in each line, separated by a tab",
    example: "FILE.tsv",
    samples: &TEXTS,
    shape: None,
    classes: &[],
    has_classes: true,
    has_target: false,
    facts: &[Facts::VOCABULARY, Facts::CLASSES],
    recognises: |path| path.extension().is_some_and(|extension| extension == "tsv"),
    open: |request| {
        let texts = read(request)?;
        Ok(Opened {
            facts: texts
                .tokens
                .facts()
                .with(Facts::CLASSES, Fact::Names(texts.train.names.to_vec())),
            train: Arc::new(texts.train),
            test: Arc::new(texts.test),
        })
    },
    held_back: |request| Ok(Arc::new(read(request)?.test) as Shared),
    file: Some(one),
};

/// The tokens of a text between `[CLS]` and `[SEP]`, at most so many in all.
fn tokens_of(tokens: &Tokens, text: &str, most: usize) -> Result<Vec<i32>> {
    let special = tokens.special_of(most)?;
    let mut ids = vec![special.cls];
    ids.extend(tokens.encode(text)?);
    ids.truncate(most - 1);
    ids.push(special.sep);
    Ok(ids)
}

/// The texts to train on and those that are held back.
struct Both {
    tokens: Arc<Tokens>,
    train: EncodedTexts,
    test: EncodedTexts,
}

fn read(request: &Request<'_>) -> Result<Both> {
    let path = request
        .path
        .ok_or_else(|| DataError::invalid("texts", "path", "none", "a table"))?;
    let most = most_of(request.shape)?;
    let file = TextFile::open(path)?;
    let table = Tsv::of(&file, path);
    let column = table.column(&["text"], "a column `text`")?;
    let label = table.column(&["label", "score"], "a column `label` or `score`")?;
    let scores = table.name(label) == "score";
    let rows = table.rows(BadRecords::Refuse, &mut Skipped::default())?;
    let known = request.facts.and_then(|facts| facts.names(Facts::CLASSES));
    let names: Arc<[String]> = match (known, scores) {
        (Some(known), _) => known.into(),
        (None, true) => ["negative", "positive"].map(String::from).into(),
        (None, false) => {
            let mut names: Vec<String> = rows.iter().map(|row| row.fields[label].trim().to_string()).collect();
            names.sort_unstable();
            names.dedup();
            names.into()
        }
    };
    let class = |row: &Row<'_>| -> Result<i32> {
        let label = row.fields[label].trim();
        let wrong = |expected: String| {
            let what = if scores { "score" } else { "label" };
            value(
                path,
                (row.line, None),
                what,
                format!("`{}`", label.escape_debug()),
                expected,
            )
        };
        match scores {
            true => match label.parse::<f64>() {
                Ok(score) if score.is_finite() => Ok((score >= 0.0).into()),
                _ => Err(wrong("a number".to_string())),
            },
            false => match names.iter().position(|name| name == label) {
                Some(class) => Ok(class as i32),
                None => Err(wrong(format!("one of {}", names.join(", ")))),
            },
        }
    };
    let training = || {
        let texts: Vec<&str> = rows
            .iter()
            .filter(|row| !row.held_back)
            .map(|row| row.fields[column])
            .collect();
        texts.join("\n")
    };
    let tokens = Arc::new(text::tokens_of(request, &LEARNED, file.text(), training)?);
    let part = |held_back: bool| -> Result<EncodedTexts> {
        let (mut texts, mut characters, mut count) = (Vec::new(), 0, 0);
        for row in rows.iter().filter(|row| row.held_back == held_back) {
            let ids = tokens_of(&tokens, row.fields[column], most)?;
            (characters, count) = (characters + row.fields[column].chars().count(), count + ids.len() - 2);
            texts.push(Encoded {
                ids,
                label: class(row)?,
                targets: Vec::new(),
            });
        }
        if texts.is_empty() {
            let expected = if held_back {
                "lines that are held back"
            } else {
                "lines to train on"
            };
            return Err(DataError::Empty {
                path: path.to_path_buf(),
                expected,
            });
        }
        Ok(EncodedTexts {
            path: Some(path.to_path_buf()),
            tokens: Some(tokens.clone()),
            names: names.clone(),
            shape: Shape::new(&[most])?,
            texts,
            characters_per_token: characters as f64 / count.max(1) as f64,
        })
    };
    Ok(Both {
        train: part(false)?,
        test: part(true)?,
        tokens,
    })
}

/// A file as one text.
fn one(path: &Path, options: &FileOptions<'_>) -> Result<Vec<Sample>> {
    let most = most_of(options.shape)?;
    let file = options.tokenizer.unwrap_or(Path::new("tokenizer.json"));
    let tokens = Tokens::of_facts(options.facts, file)?;
    let text = TextFile::open_or_stdin(path)?;
    let of_text = Encoded {
        ids: tokens_of(&tokens, text.text().trim(), most)?,
        ..Encoded::default()
    };
    let mut sample = Sample::default();
    of_text.fill(Shape::new(&[most])?, &mut sample)?;
    Ok(vec![sample])
}

/// Random tokens, of which the second tells the class.
fn made_up(made: &MadeUp<'_>, first: usize, count: usize) -> Result<Arrays> {
    let most = most_of(made.shape)?;
    let key = Key::new(made.seed, streams::SUMS, 1);
    let classes = u32::try_from(made.outputs).unwrap_or(u32::MAX).max(1);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for text in first..first + count {
        let draw = |at: usize, bound: u32| key.below((text * (most + 2) + at) as u64, bound);
        let label = draw(0, classes);
        let length = most / 4 + draw(1, most as u32 / 2 + 1) as usize;
        labels.push(label as i32);
        values.extend((0..most).map(|at| match at {
            1 => label as f32,
            _ if at < length.max(2) => draw(at + 2, MADE_UP as u32) as f32,
            _ => -1.0,
        }));
    }
    Arrays::new(Shape::new(&[most])?, values, Labels::Classes(labels, made.outputs))
}
