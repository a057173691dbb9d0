//! The tags of the words of sentences, by a network that tags words.

use super::asked::Asked;
use crate::data;
use crate::error::{Error, Result};
use crate::finite;
use crate::output::{self, line, passed_over};
use crate::weights::{Saved, tokenizer_file};
use kiln_core::Backend;
use kiln_data::{Sample, samples_of_sentences, sentences_of};
use kiln_files::{shown, shown_path};
use kiln_nn::{Tensor, no_grad};
use kiln_train::entities;
use serde_json::json;
use std::path::Path;

/// Sentences that are tagged at once.
const AT_ONCE: usize = 32;

/// Prints the tag of every word of every file: a word and its tag in each line, and an empty line between sentences, as in the files that
/// such networks are trained on. A file that cannot be read is passed over, and the exit code says so.
pub(super) fn all<B: Backend>(backend: &B, asked: &Asked<'_, B>) -> Result<u8> {
    let (args, saved) = (asked.args, asked.saved);
    let names = data::names_of(saved);
    let tokenizer = tokenizer_file(&saved.path);
    let mut exit = 0;
    for path in &asked.files {
        let tagged = sentences_of(path).and_then(|sentences| {
            let samples = samples_of_sentences(&sentences, &asked.options(&tokenizer))?;
            Ok((sentences, samples))
        });
        match tagged
            .map_err(Error::from)
            .and_then(|read| tags(backend, saved, read, path))
        {
            Ok(sentences) if args.json => show_json(saved, path, &names, &sentences),
            Ok(sentences) => show(&names, &sentences),
            Err(error) => exit = passed_over(&error),
        }
    }
    Ok(exit)
}

/// A word, the number of its tag, and how likely that is.
type Tagged = (String, usize, f64);

/// The sentences of a file, with the tag of each word.
fn tags<B: Backend>(
    backend: &B,
    saved: &Saved<B>,
    (sentences, samples): (Vec<Vec<String>>, Vec<Sample>),
    path: &Path,
) -> Result<Vec<Vec<Tagged>>> {
    let mut found = Vec::new();
    for samples in samples.chunks(AT_ONCE) {
        of_samples(backend, saved, samples, path, &mut found)?;
    }
    // A long sentence is several samples, which have its words in order.
    let mut found = found.into_iter();
    let sentences = sentences.into_iter().map(|words| {
        let tagged = words.into_iter().zip(found.by_ref());
        tagged.map(|(word, (tag, share))| (word, tag, share)).collect()
    });
    Ok(sentences.collect())
}

/// Adds the tags of the words of some samples, and how likely they are.
fn of_samples<B: Backend>(
    backend: &B,
    saved: &Saved<B>,
    samples: &[Sample],
    path: &Path,
    found: &mut Vec<(usize, f64)>,
) -> Result<()> {
    let most = samples.first().map_or(0, |sample| sample.input.len());
    let values: Vec<f32> = samples.iter().flat_map(|sample| sample.input.iter().copied()).collect();
    let texts = Tensor::from_slice(backend, &values, &[samples.len(), most])?;
    let logits = || {
        let of_tokens = saved.net.of_tokens(&texts);
        of_tokens.unwrap_or_else(|| texts.reshape(&[samples.len(), most, 1]))
    };
    let found_logits = no_grad(logits)?;
    let (length, tags) = (found_logits.shape()[1], found_logits.shape()[2].max(1));
    let shares = no_grad(|| found_logits.softmax(-1)?.to_f64())?;
    if shares.iter().any(|share| !share.is_finite()) {
        let what = format!("{}: the probabilities of tags", shown_path(path));
        return Err(finite::overflow(logits, &what)?);
    }
    for (sample, shares) in samples.iter().zip(shares.chunks(length * tags)) {
        for (_, shares) in sample
            .targets
            .iter()
            .zip(shares.chunks(tags))
            .filter(|(tag, _)| **tag >= 0.0)
        {
            let likeliest = shares.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
            found.push(likeliest.unwrap_or_default());
        }
    }
    Ok(())
}

/// The name of a tag.
fn name(names: &[String], tag: usize) -> &str {
    names.get(tag).map_or("O", String::as_str)
}

/// Prints the sentences of a file.
fn show(names: &[String], sentences: &[Vec<Tagged>]) {
    for sentence in sentences {
        for (word, tag, _) in sentence {
            line(&format!("{} {}", shown(word), shown(name(names, *tag))));
        }
        line("");
    }
}

/// Prints an object for each sentence of a file.
fn show_json<B: Backend>(saved: &Saved<B>, path: &Path, names: &[String], sentences: &[Vec<Tagged>]) {
    for (number, sentence) in sentences.iter().enumerate() {
        let words: Vec<_> = sentence
            .iter()
            .map(|(word, tag, share)| json!({"word": word, "tag": name(names, *tag), "probability": share}))
            .collect();
        let tags: Vec<&str> = sentence.iter().map(|(_, tag, _)| name(names, *tag)).collect();
        let whole: Vec<_> = entities(&tags)
            .into_iter()
            .map(|entity| {
                let words: Vec<&str> = sentence[entity.words.clone()].iter().map(|(word, ..)| &word[..]).collect();
                json!({"kind": entity.kind, "from": entity.words.start, "to": entity.words.end, "text": words.join(" ")})
            })
            .collect();
        output::json(&json!({
            "file": path.display().to_string(),
            "sentence": number + 1,
            "model": saved.model.name(),
            "words": words,
            "entities": whole,
        }));
    }
}
