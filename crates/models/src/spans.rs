//! Answers that are spans of a text.

use kiln_core::{Backend, Error, Result};
use kiln_data::Questions;
use kiln_nn::{DType, Tensor};
use kiln_train::{Metric, Output, Reduction, squad_scores};
use std::collections::BTreeMap;
use std::ops::Range;

/// The most tokens of an answer, as in Hugging Face's examples.
pub const LONGEST_ANSWER: usize = 30;

/// The tokens of the best answer, and its score: the largest sum of the logit of its first and that of its last token, of all spans in `text`
/// of one to `longest` tokens. `None` if the text has no tokens.
///
/// ```
/// let (first, last) = ([0.0, 1.0, 5.0, 0.0], [0.0, 7.0, 1.0, 4.0]);
/// let (tokens, score) = kiln_models::best_span(&first, &last, 1..4, 2).expect("a span");
/// assert_eq!((tokens, score), (2..4, 9.0));
/// ```
pub fn best_span(first: &[f32], last: &[f32], text: Range<usize>, longest: usize) -> Option<(Range<usize>, f32)> {
    let end = text.end.min(first.len()).min(last.len());
    let mut best: Option<(Range<usize>, f32)> = None;
    for (from, &first) in first.iter().enumerate().take(end).skip(text.start) {
        let until = end.min(from.saturating_add(longest));
        for (to, &last) in last.iter().enumerate().take(until).skip(from) {
            let score = first + last;
            if best.as_ref().is_none_or(|(_, highest)| score > *highest) {
                best = Some((from..to + 1, score));
            }
        }
    }
    best
}

/// The answer to a question by the windows of its text that were read.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// Its bytes in the text that the question is about.
    pub bytes: Range<usize>,
    /// The sum of the logits of its first and last token, the largest of all windows.
    pub score: f32,
    /// The smallest sum of the two logits of `[CLS]` of all windows, which says that there is no answer: the score by which BERT finds that a
    /// text does not answer a question where it is the larger one (Devlin et al. 2019).
    pub none: f32,
}

impl Answer {
    /// Adds window number `window`, whose logits of first and last tokens are given, to what is known of its question.
    pub fn add(known: &mut Option<Answer>, questions: &Questions, window: usize, [first, last]: [&[f32]; 2]) {
        let text = questions.text_in(window).unwrap_or(0..0);
        let none = first.first().copied().unwrap_or(0.0) + last.first().copied().unwrap_or(0.0);
        let best = best_span(first, last, text, LONGEST_ANSWER);
        let found = best.and_then(|(span, score)| {
            let (bytes, text) = questions.answer_at(window, &span)?;
            Some((text.to_string(), bytes, score))
        });
        let (text, bytes, score) = found.unwrap_or((String::new(), 0..0, f32::NEG_INFINITY));
        match known {
            Some(known) if known.score >= score => known.none = known.none.min(none),
            _ => {
                *known = Some(Answer {
                    text,
                    bytes,
                    score,
                    none: known.as_ref().map_or(none, |known| known.none.min(none)),
                })
            }
        }
    }

    /// True if it is more likely that there is no answer.
    pub fn is_none(&self) -> bool {
        self.none > self.score
    }
}

/// The exact match and the F1 of predicted answers, SQuAD 1.1's, or SQuAD 2.0's where the texts do not answer some of the questions.
#[derive(Debug)]
pub(crate) struct SpanScores {
    questions: Questions,
    answers: BTreeMap<usize, Option<Answer>>,
    exact: f64,
    failure: Option<Error>,
}

impl SpanScores {
    pub(crate) fn new(questions: &Questions) -> Self {
        SpanScores {
            questions: questions.clone(),
            answers: BTreeMap::new(),
            exact: f64::NAN,
            failure: None,
        }
    }

    /// The scores of a question.
    fn scores(&self, question: usize, answer: &Answer) -> (f64, f64) {
        let right = &self.questions.questions()[question].answers;
        let none = self.questions.has_unanswerable() && answer.is_none();
        match (right.is_empty(), none) {
            (true, none) => (f64::from(u8::from(none)), f64::from(u8::from(none))),
            (false, true) => (0.0, 0.0),
            (false, false) => squad_scores(&answer.text, &right.iter().map(String::as_str).collect::<Vec<_>>()),
        }
    }
}

impl<B: Backend> Metric<B> for SpanScores {
    fn name(&self) -> String {
        "f1".to_string()
    }

    fn reads(&self) -> &[&'static str] {
        &["logits", "windows"]
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let (logits, windows) = (output.floats("logits")?, output.integers("windows")?);
        let &[n, length, 2] = logits.shape().dims() else {
            return Err(Error::invalid("spans", "logits", logits.shape(), "logits [N, T, 2]"));
        };
        let rows = logits
            .to_dtype(DType::F32)?
            .transpose(1, 2)?
            .reshape(&[n, 2 * length])?;
        // Exact: there are fewer than 2²⁴ windows, or the numbers are refused below.
        Tensor::concat(&[&windows.to_float(DType::F32)?.reshape(&[n, 1])?, &rows], 1)
    }

    fn reduction(&self) -> Reduction {
        Reduction::Gather
    }

    fn observe(&mut self, term: &[f64], shape: &[usize]) {
        let width = shape.get(1).copied().unwrap_or(1).max(1);
        for row in term.chunks_exact(width) {
            let window = row[0] as usize;
            let Some(question) = self.questions.question_of(window).filter(|_| window < 1 << 24) else {
                let expected = "the number of a window of the held-back questions, below 2^24";
                self.failure = Some(Error::invalid("spans", "window", window, expected));
                return;
            };
            let logits: Vec<f32> = row[1..].iter().map(|&logit| logit as f32).collect();
            let (first, last) = logits.split_at(logits.len() / 2);
            let known = self.answers.entry(question).or_default();
            Answer::add(known, &self.questions, window, [first, last]);
        }
    }

    fn value(&mut self, _: &[f64], _: u64) -> f64 {
        let answers = std::mem::take(&mut self.answers);
        let (mut exact, mut f1) = (0.0, 0.0);
        for (question, answer) in &answers {
            let scores = answer
                .as_ref()
                .map_or((0.0, 0.0), |answer| self.scores(*question, answer));
            (exact, f1) = (exact + scores.0, f1 + scores.1);
        }
        let count = answers.len() as f64;
        self.exact = exact / count;
        match self.failure {
            None => f1 / count,
            Some(_) => f64::NAN,
        }
    }

    fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn details(&self) -> Vec<(String, f64)> {
        vec![("exact_match".to_string(), self.exact)]
    }
}
