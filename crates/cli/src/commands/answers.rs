//! Answers to a question about texts, by a network that reads them.

use crate::args::PredictArgs;
use crate::error::{Error, Result};
use crate::finite;
use crate::output::{self, line, passed_over};
use crate::weights::Saved;
use kiln_core::Backend;
use kiln_data::{Dataset, Questions, Sample, TextFile, Tokens};
use kiln_files::{shown, shown_path};
use kiln_models::Answer;
use kiln_nn::{Tensor, no_grad};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Windows that are read at once.
const AT_ONCE: usize = 16;

/// Prints the answer that each file gives to the question. A file that cannot be read is passed over, and the exit code says so.
pub(super) fn all<B: Backend>(backend: &B, saved: &Saved<B>, args: &PredictArgs) -> Result<u8> {
    let Some(question) = &args.question else {
        return Err(Error::usage("--question is missing").help("ask what the texts are to answer: --question TEXT"));
    };
    if args.files.is_empty() {
        return Err(Error::usage("<FILE> is missing").help("name files with a text each, or - for standard input"));
    }
    let tokens = saved.text_tokens()?;
    let (tokens, mut exit) = (Arc::new(tokens), 0);
    for path in &args.files {
        match answer(backend, saved, &tokens, question, path) {
            Ok(answer) => show(saved, path, question, &answer, args.json),
            Err(error) => exit = passed_over(&error),
        }
    }
    Ok(exit)
}

/// The answer of a file.
fn answer<B: Backend>(
    backend: &B,
    saved: &Saved<B>,
    tokens: &Arc<Tokens>,
    question: &str,
    path: &Path,
) -> Result<Answer> {
    let text = TextFile::open_or_stdin(path)?;
    let most = saved.model.input().shape[0];
    let questions = Questions::ask(text.text(), question, tokens, most)
        .map_err(|e| Error::from(e).context(shown_path(path).to_string()))?;
    let (mut best, mut sample) = (None, Sample::default());
    for first in (0..questions.len()).step_by(AT_ONCE) {
        let (mut values, count) = (Vec::new(), AT_ONCE.min(questions.len() - first));
        for window in first..first + count {
            questions.read(window, &mut sample)?;
            values.extend_from_slice(&sample.input);
        }
        let windows = Tensor::from_slice(backend, &values, &[count, 2, most])?;
        let logits = || {
            let of_tokens = saved.net.of_tokens(&windows);
            of_tokens.unwrap_or_else(|| windows.transpose(1, 2))
        };
        let found = no_grad(|| logits()?.transpose(1, 2)?.to_vec::<f32>())?;
        if found.iter().any(|logit| !logit.is_finite()) {
            return Err(finite::overflow(
                logits,
                &format!("{}: the logits of answers", shown_path(path)),
            )?);
        }
        let length = found.len() / (2 * count);
        for (window, logits) in found.chunks(2 * length.max(1)).enumerate() {
            let (firsts, lasts) = logits.split_at(length);
            Answer::add(&mut best, &questions, first + window, [firsts, lasts]);
        }
    }
    best.ok_or_else(|| Error::failure(format!("{}: there is no text in it", shown_path(path))))
}

/// Prints an answer.
fn show<B: Backend>(saved: &Saved<B>, path: &Path, question: &str, answer: &Answer, json: bool) {
    if json {
        output::json(&json!({
            "file": path.display().to_string(),
            "model": saved.model.name(),
            "question": question,
            "answer": answer.text,
            "from": answer.bytes.start,
            "to": answer.bytes.end,
            "score": answer.score,
            "no_answer_score": answer.none,
            "answered": !answer.is_none(),
        }));
        return;
    }
    // A line break in an answer would look like the end of it.
    let words: Vec<&str> = answer.text.split_whitespace().collect();
    let doubt = if answer.is_none() { " (or no answer)" } else { "" };
    line(&format!("{}: {}{doubt}", shown_path(path), shown(&words.join(" "))));
}
