//! Questions about texts as the windows of tokens in which a network reads them.

use super::card::Request;
use super::encoded::{LEARNED, MADE_UP, most_of};
use super::facts::{Fact, Facts};
use super::kinds::{MadeUp, SampleKind};
use super::opened::Opened;
use super::text;
use crate::dataset::check_index;
use crate::formats::{AllQuestions, Context, Paragraph};
use crate::{DataError, Dataset, Question, Questions, Result, Sample, Skipped, Tokens, streams};
use kiln_core::Shape;
use kiln_core::philox::Key;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Windows of `T` tokens: `[CLS] question [SEP] part of the text [SEP]`. An input `[2, T]` has the tokens, and −1 behind the end, then their
/// kinds, 1 for those of the text and the `[SEP]` behind them. Targets are the positions of the first and of the last token of the answer,
/// both 0, that of `[CLS]`, where the window does not have it; the label is the number of the window.
pub static QUESTIONS: SampleKind = SampleKind {
    name: "questions",
    noun: "window",
    describe: |shape| {
        let most = shape.first().copied().unwrap_or_default();
        format!("questions about texts, in windows of {most} tokens")
    },
    batch: 8,
    samples: |made| Ok(Arc::new(made_up(made, 0, made.count)?)),
    synthetic: |made| {
        Ok(Opened {
            train: Arc::new(made_up(made, 0, made.count)?),
            test: Arc::new(made_up(made, made.count, made.held_back())?),
            facts: Facts::default().with(Facts::VOCABULARY, Fact::Numbers(vec![MADE_UP as f64])),
        })
    },
};

impl Dataset for Questions {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.windows()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.windows())?;
        self.fill(index, sample)
    }
    fn shape(&self) -> Option<Shape> {
        Some(self.shape())
    }
    fn skipped(&self) -> Option<&Skipped> {
        Some(self.left_out())
    }
    fn source(&self) -> Option<&Path> {
        self.path()
    }
    fn tokens(&self) -> Option<&Tokens> {
        self.tokens()
    }
    fn questions(&self) -> Option<&Questions> {
        Some(self)
    }
}

/// Questions to train on, where there are any, and those that are held back, each with their file.
pub(super) struct Files {
    pub(super) train: Option<(PathBuf, Vec<Paragraph>)>,
    pub(super) test: (PathBuf, Vec<Paragraph>),
    /// Those of either part that were left out.
    pub(super) skipped: [Skipped; 2],
}

/// The parts with their tokens, which are learned from the questions to train on and their texts.
pub(super) struct Parts {
    pub(super) tokens: Arc<Tokens>,
    pub(super) train: Option<Questions>,
    pub(super) test: Questions,
}

impl Parts {
    pub(super) fn new(request: &Request<'_>, files: Files) -> Result<Self> {
        let most = most_of(request.shape)?;
        let learned = || {
            let (_, paragraphs) = files.train.as_ref().unwrap_or(&files.test);
            let asked = |of: &Paragraph| of.asked.iter().map(|asked| asked.question.clone()).collect::<Vec<_>>();
            let lines = paragraphs
                .iter()
                .flat_map(|of| [vec![of.context.clone()], asked(of)].concat());
            lines.collect::<Vec<String>>().join("\n")
        };
        let tokens = Arc::new(text::tokens_of(request, &LEARNED, "", learned)?);
        let part =
            |(path, paragraphs): &(PathBuf, Vec<Paragraph>)| Questions::of(Some(path), &tokens, most, paragraphs);
        let (train, test) = (files.train.as_ref().map(part).transpose()?, part(&files.test)?);
        let [of_train, of_test] = files.skipped;
        Ok(Parts {
            train: train.map(|train| train.with_skipped(of_train)),
            test: test.with_skipped(of_test),
            tokens,
        })
    }

    /// The facts about the data.
    pub(super) fn facts(&self) -> Facts {
        self.tokens.facts()
    }
}

/// Splits texts into those to train on and every tenth, which is held back.
pub(super) fn every_tenth(path: &Path, all: Vec<Paragraph>) -> Result<Files> {
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (number, paragraph) in all.into_iter().enumerate() {
        if number % 10 == 9 { &mut test } else { &mut train }.push(paragraph);
    }
    match test.is_empty() {
        true => Err(DataError::Empty {
            path: path.to_path_buf(),
            expected: "questions about ten texts or more, every tenth of which is held back",
        }),
        false => Ok(Files {
            train: Some((path.to_path_buf(), train)),
            test: (path.to_path_buf(), test),
            skipped: Default::default(),
        }),
    }
}

/// Texts of random numbers, each asked for one of them, which the text has once; a fifth ask for one that it does not have.
fn made_up(made: &MadeUp<'_>, first: usize, count: usize) -> Result<Questions> {
    let most = most_of(made.shape)?;
    let [cls, sep] = [MADE_UP as i32 - 2, MADE_UP as i32 - 1];
    let mut all = AllQuestions::new(most)?;
    let key = Key::new(made.seed, streams::SUMS, 3);
    for number in first..first + count {
        let draw = |at: usize, bound: usize| key.below((number * (most + 3) + at) as u64, bound.max(1) as u32) as usize;
        // One half of the numbers are asked for, the others fill texts.
        let asked = draw(0, MADE_UP / 2 - 1);
        let length = (most / 4 + draw(1, most / 2)).clamp(1, most - 4);
        let place = draw(2, length);
        let answered = number % 5 != 4;
        let id = |at: usize| match answered && at == place {
            true => asked,
            false => MADE_UP / 2 - 1 + draw(at + 3, MADE_UP / 2 - 1),
        };
        let (mut text, mut ids, mut places) = (String::new(), Vec::new(), Vec::new());
        for id in (0..length).map(id) {
            let word = id.to_string();
            places.push(text.len() as u32..(text.len() + word.len()) as u32);
            text.push_str(&word);
            text.push(' ');
            ids.push(id as i32);
        }
        let question = Question {
            id: number.to_string(),
            text: asked.to_string(),
            answers: answered.then(|| asked.to_string()).into_iter().collect(),
            context: all.contexts.len(),
            ids: vec![asked as i32],
            answer: answered.then_some(place..place + 1),
        };
        all.add(question, ids.len());
        all.contexts.push(Context { text, ids, places });
    }
    Questions::new(None, None, [cls, sep], all)
}
