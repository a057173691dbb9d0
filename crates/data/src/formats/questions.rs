//! Questions about texts, and the windows of tokens in which a network reads them.

use crate::{DataError, Result, Sample, Skipped, Tokens};
use kiln_core::Shape;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A text with questions about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Paragraph {
    pub(crate) context: String,
    pub(crate) asked: Vec<Asked>,
}

/// A question, and the bytes of the text that its answers are; none if the text does not answer it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) question: String,
    pub(crate) answers: Vec<Range<usize>>,
}

/// A text that questions are about.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) text: String,
    pub(crate) ids: Vec<i32>,
    /// The bytes of each token.
    pub(crate) places: Vec<Range<u32>>,
}

/// A question about a text.
#[derive(Debug)]
pub struct Question {
    /// Its id in the file; empty for a question that is asked alone.
    pub id: String,
    /// The question.
    pub text: String,
    /// The right answers; none if the text does not answer it.
    pub answers: Vec<String>,
    pub(crate) context: usize,
    pub(crate) ids: Vec<i32>,
    /// The tokens of the text that are the first answer.
    pub(crate) answer: Option<Range<usize>>,
}

/// A question with a part of its text.
#[derive(Debug)]
struct Window {
    question: usize,
    /// The tokens of the text.
    tokens: Range<usize>,
}

/// Questions about texts; its samples are windows, of which a long text has several, which overlap by a third. Clones share the texts.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The file; `None` for questions that are made up or asked alone.
    path: Option<PathBuf>,
    /// `None` for those that are made up.
    tokens: Option<Arc<Tokens>>,
    /// The tokens `[CLS]` and `[SEP]`.
    around: [i32; 2],
    shape: Shape,
    all: Arc<All>,
    skipped: Arc<Skipped>,
}

/// The texts, the questions about them, and the windows of these.
#[derive(Debug)]
pub(crate) struct All {
    /// The tokens of a window.
    most: usize,
    pub(crate) contexts: Vec<Context>,
    questions: Vec<Question>,
    windows: Vec<Window>,
}

/// The parts of a text of `length` tokens for windows with room for `room`, which overlap by `overlap` tokens.
fn parts(length: usize, room: usize, overlap: usize) -> Vec<Range<usize>> {
    let step = room.saturating_sub(overlap).max(1);
    let count = length.saturating_sub(room).div_ceil(step);
    (0..=count).map(|i| i * step..(i * step + room).min(length)).collect()
}

impl All {
    /// # Errors
    /// Windows of fewer than 8 tokens, which have no room for a question and a text.
    pub(crate) fn new(most: usize) -> Result<Self> {
        match most < 8 {
            true => Err(DataError::invalid("questions", "T", most, "at least 8")),
            false => Ok(All {
                most,
                contexts: Vec::new(),
                questions: Vec::new(),
                windows: Vec::new(),
            }),
        }
    }

    /// Adds a question about a text of `length` tokens, cut to a third of a window.
    pub(crate) fn add(&mut self, mut question: Question, length: usize) {
        question.ids.truncate(self.most / 3);
        let room = self.most - question.ids.len() - 3;
        let windows = parts(length, room, (self.most / 3).min(room / 2));
        let number = self.questions.len();
        self.windows.extend(windows.into_iter().map(|tokens| Window {
            question: number,
            tokens,
        }));
        self.questions.push(question);
    }
}

impl Questions {
    pub(crate) fn new(path: Option<&Path>, tokens: Option<&Arc<Tokens>>, around: [i32; 2], all: All) -> Result<Self> {
        Ok(Questions {
            path: path.map(Path::to_path_buf),
            tokens: tokens.cloned(),
            around,
            shape: Shape::new(&[2, all.most])?,
            all: Arc::new(all),
            skipped: Arc::default(),
        })
    }

    /// The questions of some texts, of a tokenizer with the tokens of BERT, in windows of at most `most` tokens.
    pub(crate) fn of(path: Option<&Path>, tokens: &Arc<Tokens>, most: usize, paragraphs: &[Paragraph]) -> Result<Self> {
        let special = tokens.special_of(most)?;
        let mut all = All::new(most)?;
        for paragraph in paragraphs {
            let (ids, places) = encode(tokens, &paragraph.context)?;
            for asked in &paragraph.asked {
                let text = |bytes: &Range<usize>| paragraph.context[bytes.clone()].to_string();
                let question = Question {
                    id: asked.id.clone(),
                    text: asked.question.clone(),
                    answers: asked.answers.iter().map(text).collect(),
                    context: all.contexts.len(),
                    ids: encode(tokens, &asked.question)?.0,
                    answer: asked.answers.first().and_then(|bytes| tokens_in(&places, bytes)),
                };
                all.add(question, ids.len());
            }
            all.contexts.push(Context {
                text: paragraph.context.clone(),
                ids,
                places,
            });
        }
        Questions::new(path, Some(tokens), [special.cls, special.sep], all)
    }

    /// A question about a text, for a network that was trained on windows of `most` tokens.
    ///
    /// # Errors
    /// A question or a text without tokens; tokens other than those of BERT; windows of fewer than 8 tokens.
    pub fn ask(text: &str, question: &str, tokens: &Arc<Tokens>, most: usize) -> Result<Self> {
        let asked = Paragraph {
            context: text.to_string(),
            asked: vec![Asked {
                id: String::new(),
                question: question.trim().to_string(),
                answers: Vec::new(),
            }],
        };
        let asked = Questions::of(None, tokens, most, &[asked])?;
        for (argument, ids) in [
            ("question", &asked.all.questions[0].ids),
            ("text", &asked.all.contexts[0].ids),
        ] {
            if ids.is_empty() {
                return Err(DataError::invalid(
                    "questions",
                    argument,
                    "without tokens",
                    "some words",
                ));
            }
        }
        Ok(asked)
    }

    /// These with the questions that were left out.
    pub(crate) fn with_skipped(self, skipped: Skipped) -> Self {
        Questions {
            skipped: Arc::new(skipped),
            ..self
        }
    }

    /// The shape of a window, `[2, T]`.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The number of windows.
    pub fn windows(&self) -> usize {
        self.all.windows.len()
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_deref()
    }

    pub(crate) fn left_out(&self) -> &Skipped {
        &self.skipped
    }

    /// Makes a sample of a window, which is one of those that there are.
    pub(crate) fn fill(&self, index: usize, sample: &mut Sample) -> Result<()> {
        let (all, most) = (&*self.all, self.all.most);
        let window = &all.windows[index];
        let question = &all.questions[window.question];
        let text = &all.contexts[question.context].ids[window.tokens.clone()];
        let [cls, sep] = self.around;
        let asked = [&[cls], &question.ids[..], &[sep]].concat();
        let (before, used) = (asked.len(), asked.len() + text.len() + 1);
        let ids = asked.iter().chain(text).chain([&sep]).map(|&id| id as f32);
        // Exact in f32: a vocabulary has fewer than 2²⁴ tokens.
        let mut values: Vec<f32> = ids.chain(std::iter::repeat(-1.0)).take(most).collect();
        values.extend((0..most).map(|at| f32::from(at >= before && at < used)));
        sample.fill(self.shape, values.into_iter())?;
        sample.label = index as i32;
        let inside = |answer: &&Range<usize>| answer.start >= window.tokens.start && answer.end <= window.tokens.end;
        let at = |token: usize| (before + token - window.tokens.start) as f32;
        sample.targets = match question.answer.as_ref().filter(inside) {
            Some(answer) => vec![at(answer.start), at(answer.end - 1)],
            None => vec![0.0, 0.0],
        };
        Ok(())
    }

    /// The questions.
    pub fn questions(&self) -> &[Question] {
        &self.all.questions
    }

    /// The number of the question of a window.
    pub fn question_of(&self, window: usize) -> Option<usize> {
        self.all.windows.get(window).map(|window| window.question)
    }

    /// The positions of a window that hold the text.
    pub fn text_in(&self, window: usize) -> Option<Range<usize>> {
        let window = self.all.windows.get(window)?;
        let first = self.all.questions[window.question].ids.len() + 2;
        Some(first..first + window.tokens.len())
    }

    /// The bytes of the text, and the text of them, that positions of a window stand for; `None` where they hold no text.
    pub fn answer_at(&self, window: usize, positions: &Range<usize>) -> Option<(Range<usize>, &str)> {
        let text = self.text_in(window)?;
        if positions.is_empty() || positions.start < text.start || positions.end > text.end {
            return None;
        }
        let window = &self.all.windows[window];
        let context = &self.all.contexts[self.all.questions[window.question].context];
        let token = |position: usize| context.places.get(window.tokens.start + position - text.start);
        let bytes = token(positions.start)?.start as usize..token(positions.end - 1)?.end as usize;
        context.text.get(bytes.clone()).map(|text| (bytes, text))
    }

    /// True if the text does not answer some of the questions.
    pub fn has_unanswerable(&self) -> bool {
        self.questions().iter().any(|question| question.answers.is_empty())
    }
}

/// The tokens of a text, and the bytes of each.
fn encode(tokens: &Tokens, text: &str) -> Result<(Vec<i32>, Vec<Range<u32>>)> {
    let Some(of) = tokens.tokenizer() else {
        return Ok((tokens.encode(text)?, Vec::new()));
    };
    let encoding = of.tokenizer().encode(text)?;
    let place = |place: &Range<usize>| place.start as u32..place.end as u32;
    Ok((
        encoding.ids.iter().map(|&id| id as i32).collect(),
        encoding.offsets.iter().map(place).collect(),
    ))
}

/// The tokens that some bytes of a text touch.
fn tokens_in(places: &[Range<u32>], bytes: &Range<usize>) -> Option<Range<usize>> {
    let first = places.iter().position(|place| place.end as usize > bytes.start)?;
    let last = places.iter().rposition(|place| (place.start as usize) < bytes.end)?;
    (first <= last).then_some(first..last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_overlap_and_cover_the_text() {
        for length in 0..60 {
            for (room, overlap) in [(1, 0), (5, 2), (10, 3), (64, 20)] {
                let parts = parts(length, room, overlap);
                assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, length));
                assert!(parts.iter().all(|part| part.len() <= room), "{parts:?}");
                for pair in parts.windows(2) {
                    assert_eq!(pair[0].end - pair[1].start, overlap, "{length} {room} {overlap}");
                    assert!(pair[1].end > pair[0].end);
                }
            }
        }
    }

    #[test]
    fn bytes_are_those_of_the_tokens_that_they_touch() {
        let places = [0..3, 4..7, 7..9, 12..13];
        for (bytes, tokens) in [(0..3, 0..1), (4..9, 1..3), (5..8, 1..3), (2..13, 0..4)] {
            assert_eq!(tokens_in(&places, &bytes), Some(tokens));
        }
        assert_eq!(tokens_in(&places, &(10..11)), None);
        assert_eq!(tokens_in(&places, &(20..22)), None);
    }
}
