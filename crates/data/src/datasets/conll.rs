//! Tagged words in the table of datasets: files as of the CoNLL tasks, a word and its tag in each line.

use super::card::{DatasetCard, FileOptions, Request};
use super::encoded::{Encoded, EncodedTexts, LEARNED, MADE_UP, most_of};
use super::facts::{Fact, Facts};
use super::kinds::{MadeUp, SampleKind};
use super::opened::{Opened, Shared};
use super::text;
use crate::{DataError, Place, Result, Sample, TextFile, Tokens, streams};
use kiln_core::Shape;
use kiln_core::philox::Key;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sentences of at most `T` tokens: `[CLS]`, the tokens, `[SEP]`, and −1 behind the end. Targets `[T]` are the tags of the first tokens of
/// words, and −100 elsewhere.
pub static TAGGED: SampleKind = SampleKind {
    name: "tagged",
    noun: "sentence",
    describe: |shape| {
        format!(
            "sentences of at most {} tokens",
            shape.first().copied().unwrap_or_default()
        )
    },
    batch: 8,
    samples: |made| Ok(Arc::new(made_up(made, 0, made.count)?)),
    synthetic: |made| {
        Ok(Opened {
            train: Arc::new(made_up(made, 0, made.count)?),
            test: Arc::new(made_up(made, made.count, made.held_back())?),
            facts: Facts::default()
                .with(Facts::VOCABULARY, Fact::Numbers(vec![MADE_UP as f64]))
                .with(
                    Facts::CLASSES,
                    Fact::Names((0..made.outputs).map(made_up_tag).collect()),
                ),
        })
    },
};

/// The target of a token that has no tag: PyTorch's `ignore_index`.
const IGNORED: f32 = -100.0;

/// The names of the files of a folder: to train on, and held back.
const FILES: [(&str, &str); 4] = [
    ("train.conll", "test.conll"),
    ("train.txt", "test.txt"),
    ("train.bio", "test.bio"),
    ("eng.train", "eng.testb"),
];

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "tagged words",
    description: "a .conll with a word first and its tag last in each line (tabs or blanks between, empty lines between sentences), every \
                  tenth sentence held back; or a folder with train.conll and test.conll, or .txt",
    files: "the tagged words",
    ships: None,
    obtain: "write a file with a word and its tag in each line, and an empty line behind each sentence",
    example: "FILE.conll",
    samples: &TAGGED,
    shape: None,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[Facts::VOCABULARY, Facts::CLASSES],
    recognises: |path| {
        let named = |name: &str| path.join(name).is_file();
        let file = |extension: &std::ffi::OsStr| extension == "conll" || extension == "bio";
        path.extension().is_some_and(file) || FILES.iter().any(|(train, test)| named(train) && named(test))
    },
    open: |request| {
        let part = Parts::read(request)?;
        let Some(train) = part.train else {
            return Err(DataError::Missing {
                path: request.path.unwrap_or(Path::new("")).to_path_buf(),
                expected: "a file train.conll, train.txt, train.bio or eng.train",
                advice: "a folder has a file to train on and one that is held back; or name one file",
            });
        };
        Ok(Opened {
            facts: part
                .tokens
                .facts()
                .with(Facts::CLASSES, Fact::Names(train.names.to_vec())),
            train: Arc::new(train),
            test: Arc::new(part.test),
        })
    },
    held_back: |request| Ok(Arc::new(Parts::read(request)?.test) as Shared),
    file: Some(one),
};

/// A sentence of a file.
struct Sentence {
    words: Vec<String>,
    /// The tag of each word, and its line.
    tags: Vec<(String, u64)>,
}

/// The fields of a line: what tabs separate, or blanks where there are no tabs.
fn fields(line: &str) -> Vec<&str> {
    let separator = if line.contains('\t') { '\t' } else { ' ' };
    let fields = line.split(separator).map(str::trim);
    fields.filter(|field| !field.is_empty()).collect()
}

/// The sentences of a file; lines of `-DOCSTART-`, which begin a document, are left out.
fn sentences(path: &Path) -> Result<Vec<Sentence>> {
    let file = TextFile::open(path)?;
    let mut sentences = Vec::new();
    let mut begins = true;
    for (number, line) in file.text().lines().enumerate() {
        let fields = fields(line);
        let (word, tag) = match fields[..] {
            [] => {
                begins = true;
                continue;
            }
            ["-DOCSTART-", ..] => continue,
            [word, .., tag] => (word, tag),
            [_] => {
                return Err(DataError::Value {
                    path: path.to_path_buf(),
                    place: line_of(number as u64 + 1),
                    what: "word",
                    found: format!("`{}` without a tag", line.escape_debug()),
                    expected: "a word and its tag, with a tab or a blank between".into(),
                });
            }
        };
        if std::mem::take(&mut begins) {
            sentences.push(Sentence {
                words: Vec::new(),
                tags: Vec::new(),
            });
        }
        if let Some(last) = sentences.last_mut() {
            last.words.push(word.to_string());
            last.tags.push((tag.to_string(), number as u64 + 1));
        }
    }
    match sentences.is_empty() {
        true => Err(DataError::Empty {
            path: path.to_path_buf(),
            expected: "a word and its tag in each line",
        }),
        false => Ok(sentences),
    }
}

fn line_of(line: u64) -> Place {
    Place::Line { line, column: None }
}

/// The sentences to train on, where there are any, and those that are held back, each with their file.
type Files = (Option<(PathBuf, Vec<Sentence>)>, (PathBuf, Vec<Sentence>));

fn files(path: &Path) -> Result<Files> {
    if path.is_dir() {
        let found = FILES.map(|(train, test)| (path.join(train), path.join(test)));
        let Some((train, test)) = found.into_iter().find(|(_, test)| test.is_file()) else {
            return Err(DataError::Missing {
                path: path.to_path_buf(),
                expected: "a file test.conll, test.txt, test.bio or eng.testb",
                advice: "a folder has a file to train on and one that is held back; or name one file",
            });
        };
        let to_train_on = match train.is_file() {
            true => Some((train.clone(), sentences(&train)?)),
            false => None,
        };
        let held_back = sentences(&test)?;
        return Ok((to_train_on, (test, held_back)));
    }
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (number, sentence) in sentences(path)?.into_iter().enumerate() {
        if number % 10 == 9 { &mut test } else { &mut train }.push(sentence);
    }
    match test.is_empty() {
        true => Err(DataError::Empty {
            path: path.to_path_buf(),
            expected: "ten sentences or more, every tenth of which is held back",
        }),
        false => Ok((Some((path.to_path_buf(), train)), (path.to_path_buf(), test))),
    }
}

/// The sentences to train on, where there are any, and those held back.
struct Parts {
    tokens: Arc<Tokens>,
    train: Option<EncodedTexts>,
    test: EncodedTexts,
}

impl Parts {
    fn read(request: &Request<'_>) -> Result<Self> {
        let path = request
            .path
            .ok_or_else(|| DataError::invalid("conll", "path", "none", "a file or a folder"))?;
        let most = most_of(request.shape)?;
        let (train, test) = files(path)?;
        let known = request.facts.and_then(|facts| facts.names(Facts::CLASSES));
        let names: Arc<[String]> = match known {
            Some(known) => known.into(),
            None => {
                let all = train.iter().chain([&test]).flat_map(|(_, sentences)| sentences);
                let mut names: Vec<String> = all.flat_map(|s| s.tags.iter().map(|(tag, _)| tag.clone())).collect();
                names.sort_unstable();
                names.dedup();
                names.into()
            }
        };
        let text = || {
            let learned = train.as_ref().unwrap_or(&test);
            let lines: Vec<String> = learned.1.iter().map(|sentence| sentence.words.join(" ")).collect();
            lines.join("\n")
        };
        let tokens = Arc::new(text::tokens_of(request, &LEARNED, "", text)?);
        let part = |(path, sentences): &(PathBuf, Vec<Sentence>)| -> Result<EncodedTexts> {
            let (mut texts, mut characters, mut count) = (Vec::new(), 0, 0);
            for sentence in sentences {
                let tag = |(tag, line): &(String, u64)| match names.iter().position(|name| name == tag) {
                    Some(tag) => Ok(tag as f32),
                    None => Err(DataError::Value {
                        path: path.clone(),
                        place: line_of(*line),
                        what: "tag",
                        found: format!("`{}`", tag.escape_debug()),
                        expected: format!("one of {}", names.join(", ")).into(),
                    }),
                };
                let tags: Vec<f32> = sentence.tags.iter().map(tag).collect::<Result<_>>()?;
                let parts = cut(&tokens, &sentence.words, &tags, most)?;
                characters += sentence
                    .words
                    .iter()
                    .map(|word| word.chars().count() + 1)
                    .sum::<usize>();
                count += parts.iter().map(|part| part.ids.len() - 2).sum::<usize>();
                texts.extend(parts);
            }
            Ok(EncodedTexts {
                path: Some(path.clone()),
                tokens: Some(tokens.clone()),
                names: names.clone(),
                shape: Shape::new(&[most])?,
                texts,
                characters_per_token: characters as f64 / count.max(1) as f64,
            })
        };
        Ok(Parts {
            train: train.as_ref().map(part).transpose()?,
            test: part(&test)?,
            tokens,
        })
    }
}

/// A sentence as samples of at most so many tokens, which begin and end with whole words: one, unless it is longer. The first token of a
/// word has its tag, the others have none, as in Hugging Face's examples.
fn cut(tokens: &Tokens, words: &[String], tags: &[f32], most: usize) -> Result<Vec<Encoded>> {
    let special = tokens.special_of(most)?;
    let unknown = tokens.tokenizer().and_then(|of| of.tokenizer().id("[UNK]"));
    let begin = || Encoded {
        ids: vec![special.cls],
        label: 0,
        targets: vec![IGNORED],
    };
    let mut parts = vec![begin()];
    for (word, &tag) in words.iter().zip(tags) {
        let mut ids = tokens.encode(word)?;
        if ids.is_empty() {
            ids.push(unknown.map_or(special.mask, |id| id as i32));
        }
        ids.truncate(most - 2);
        let last = parts.len() - 1;
        if parts[last].ids.len() + ids.len() + 1 > most {
            parts.push(begin());
        }
        if let Some(part) = parts.last_mut() {
            part.targets.push(tag);
            part.targets.extend(std::iter::repeat_n(IGNORED, ids.len() - 1));
            part.ids.extend(ids);
        }
    }
    for part in &mut parts {
        part.ids.push(special.sep);
        part.targets.resize(most, IGNORED);
    }
    Ok(parts)
}

/// The words of the sentences of a file, one a line, as a network that tags words is asked about them: what white space separates, and
/// punctuation at the ends of words by itself, as in the files of the CoNLL tasks. `-` is standard input.
///
/// # Errors
/// As [`TextFile::open`].
pub fn sentences_of(path: &Path) -> Result<Vec<Vec<String>>> {
    let file = TextFile::open_or_stdin(path)?;
    let sentences = file.text().lines().map(words_of);
    Ok(sentences.filter(|words| !words.is_empty()).collect())
}

/// The words of a line.
fn words_of(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        let inner = |c: char| c.is_alphanumeric();
        let first = word.find(inner).unwrap_or(word.len());
        let last = word.char_indices().rev().find(|&(_, c)| inner(c));
        let last = last.map_or(first, |(at, c)| at + c.len_utf8());
        words.extend(word[..first].chars().map(String::from));
        if first < last {
            words.push(word[first..last].to_string());
        }
        words.extend(word[last..].chars().map(String::from));
    }
    words
}

/// The sentences of a file, whose words have the target 0.
fn one(path: &Path, options: &FileOptions<'_>) -> Result<Vec<Sample>> {
    samples_of_sentences(&sentences_of(path)?, options)
}

/// The samples of sentences, for a trained network that tags words: the first token of each word has the target 0 and all others −100.
///
/// # Errors
/// A tokenizer that cannot be read or is another than the network's.
pub fn samples_of_sentences(sentences: &[Vec<String>], options: &FileOptions<'_>) -> Result<Vec<Sample>> {
    let most = most_of(options.shape)?;
    let file = options.tokenizer.unwrap_or(Path::new("tokenizer.json"));
    let tokens = Tokens::of_facts(options.facts, file)?;
    let mut samples = Vec::new();
    for words in sentences {
        for part in cut(&tokens, words, &vec![0.0; words.len()], most)? {
            let mut sample = Sample::default();
            part.fill(Shape::new(&[most])?, &mut sample)?;
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// The name of a tag that is made up: `O`, `B-1`, `I-1`, `B-2`, …
fn made_up_tag(tag: usize) -> String {
    match (tag, tag % 2) {
        (0, _) => "O".to_string(),
        (_, 1) => format!("B-{}", tag / 2 + 1),
        _ => format!("I-{}", tag / 2),
    }
}

/// Random tokens, each of which tells its tag.
fn made_up(made: &MadeUp<'_>, first: usize, count: usize) -> Result<EncodedTexts> {
    let most = most_of(made.shape)?;
    let key = Key::new(made.seed, streams::SUMS, 2);
    let outputs = made.outputs.max(1);
    let texts = (first..first + count).map(|text| {
        let draw = |at: usize, bound: u32| key.below((text * (most + 1) + at) as u64, bound);
        let length = (most / 4 + draw(0, most as u32 / 2 + 1) as usize).clamp(2, most.max(2));
        let ids: Vec<i32> = (0..length).map(|at| draw(at + 1, MADE_UP as u32) as i32).collect();
        let tag = |at: usize| match ids.get(at) {
            Some(&id) if at > 0 => (id as usize % outputs) as f32,
            _ => IGNORED,
        };
        Encoded {
            label: 0,
            targets: (0..most).map(tag).collect(),
            ids,
        }
    });
    Ok(EncodedTexts {
        path: None,
        tokens: None,
        names: (0..outputs).map(made_up_tag).collect(),
        shape: Shape::new(&[most])?,
        texts: texts.collect(),
        characters_per_token: f64::NAN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerChoice;

    #[test]
    fn a_long_sentence_becomes_several_samples_without_losing_a_word() {
        let tokens = Tokens::of(&TokenizerChoice::WordPiece(40), "low lower lowest newest").unwrap();
        let words: Vec<String> = ["low", "newest", "\u{7}", "lowest", "qqqqqqqqqqqqqqqqqq", "lower"]
            .map(String::from)
            .to_vec();
        let tags: Vec<f32> = (0..words.len()).map(|tag| tag as f32).collect();
        for most in 3..30 {
            let parts = cut(&tokens, &words, &tags, most).unwrap();
            let mut found: Vec<f32> = Vec::new();
            for part in &parts {
                assert!(part.ids.len() <= most && part.ids.len() > 2, "{most}: {part:?}");
                assert_eq!(part.targets.len(), most);
                assert_eq!((part.targets[0], part.targets[part.ids.len() - 1]), (IGNORED, IGNORED));
                found.extend(part.targets.iter().filter(|tag| **tag >= 0.0));
            }
            assert_eq!(found, tags, "{most}");
        }
        assert_eq!(cut(&tokens, &words, &tags, 60).unwrap().len(), 1);
        assert!(cut(&tokens, &words, &tags, 2).is_err());
    }

    #[test]
    fn punctuation_at_the_ends_of_words_is_apart() {
        let words = words_of("She (Ada) flew\t to St. Ives, didn't she?!  ... ü");
        let expected = "She ( Ada ) flew to St . Ives , didn't she ? ! . . . ü";
        assert_eq!(words.join(" "), expected);
        assert!(words_of("  ").is_empty());
    }

    #[test]
    fn tags_that_are_made_up_are_of_the_bio_scheme() {
        let names: Vec<String> = (0..5).map(made_up_tag).collect();
        assert_eq!(names, ["O", "B-1", "I-1", "B-2", "I-2"]);
    }
}
