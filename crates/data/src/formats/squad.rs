//! Questions about texts, in the JSON of SQuAD 1.1 and 2.0.

use super::input::Input;
use super::questions::{Asked, Paragraph};
use crate::{BadRecords, DEFAULT_MAX_BYTES, DataError, Place, Result, Skipped};
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;

#[derive(Deserialize)]
struct File {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    paragraphs: Vec<ListedParagraph>,
}

#[derive(Deserialize)]
struct ListedParagraph {
    context: String,
    qas: Vec<ListedQuestion>,
}

#[derive(Deserialize)]
struct ListedQuestion {
    id: String,
    question: String,
    #[serde(default)]
    answers: Vec<ListedAnswer>,
    #[serde(default)]
    is_impossible: bool,
}

#[derive(Deserialize)]
struct ListedAnswer {
    text: String,
    answer_start: usize,
}

/// The byte at which a character begins, or the end behind the last one; `None` beyond.
fn byte_of(text: &str, character: usize) -> Option<usize> {
    let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.into_iter().nth(character)
}

/// The bytes of an answer in its text.
fn bytes_of(context: &str, answer: &ListedAnswer) -> Result<Range<usize>, String> {
    let Some(start) = byte_of(context, answer.answer_start) else {
        return Err(format!(
            "{} in a context of {} characters",
            answer.answer_start,
            context.chars().count()
        ));
    };
    match context[start..].starts_with(&answer.text) {
        true => Ok(start..start + answer.text.len()),
        false => {
            let found: String = context[start..].chars().take(answer.text.chars().count()).collect();
            Err(format!("{}, where the context has `{found}`", answer.answer_start))
        }
    }
}

/// The question with its answers, or the field that is wrong, with what was found and expected.
fn checked(context: &str, of: &ListedQuestion) -> Result<Asked, (&'static str, String, String)> {
    if of.question.trim().is_empty() {
        return Err(("question", "none".to_string(), "a question".to_string()));
    }
    match (of.answers.is_empty(), of.is_impossible) {
        (true, false) => {
            let expected = "one or more, or is_impossible".to_string();
            return Err(("answers", "none".to_string(), expected));
        }
        (false, true) => {
            let found = format!("{} of a question with is_impossible", of.answers.len());
            return Err(("answers", found, "none".to_string()));
        }
        _ => {}
    }
    let answer = |answer: &ListedAnswer| {
        if answer.text.trim().is_empty() {
            return Err(("text", "none".to_string(), "the text of an answer".to_string()));
        }
        bytes_of(context, answer).map_err(|found| {
            let expected = format!("the character of the context where `{}` begins", answer.text);
            ("answer_start", found, expected)
        })
    };
    Ok(Asked {
        id: of.id.clone(),
        question: of.question.trim().to_string(),
        answers: of.answers.iter().map(answer).collect::<Result<_, _>>()?,
    })
}

/// Reads a file of questions; texts without any are left out.
///
/// # Errors
/// JSON that is none or lacks a field, with its line; a question without text or answers, or an answer that is not in its text where it is
/// said to be, by the number of the question in the file, unless bad ones are left out; no questions.
pub(crate) fn read(path: &Path, bad: BadRecords, skipped: &mut Skipped) -> Result<Vec<Paragraph>> {
    let bytes = Input::open(path, DEFAULT_MAX_BYTES)?.rest("questions")?;
    let file: File = serde_json::from_slice(&bytes).map_err(|error| DataError::Decode {
        path: path.to_path_buf(),
        place: Place::Line {
            line: error.line() as u64,
            column: None,
        },
        format: "SQuAD JSON",
        reason: error.to_string(),
    })?;
    let (mut paragraphs, mut number) = (Vec::new(), 0);
    for listed in file.data.into_iter().flat_map(|article| article.paragraphs) {
        let mut asked = Vec::new();
        for question in &listed.qas {
            match checked(&listed.context, question) {
                Ok(question) => asked.push(question),
                Err((field, found, expected)) => {
                    let error = DataError::Value {
                        path: path.to_path_buf(),
                        place: Place::Record(number),
                        what: field,
                        found: format!("{found} (question `{}`)", question.id),
                        expected: expected.into(),
                    };
                    skipped.note(bad, error)?;
                }
            }
            number += 1;
        }
        if !asked.is_empty() {
            paragraphs.push(Paragraph {
                context: listed.context,
                asked,
            });
        }
    }
    match paragraphs.is_empty() {
        true => Err(std::mem::take(skipped).nothing_left(path, "questions with answers")),
        false => Ok(paragraphs),
    }
}
