//! Targets that read datasets of texts: pairs, tagged words, questions.

use super::files::bad;
use super::scratch::Scratch;
use crate::Bytes;
use kiln_data::{DataKind, Request, TokenizerChoice};

/// Opens a file of this name as a dataset, by options that the first two bytes choose, and reads all samples of both parts.
fn open(kind: DataKind, name: &str, input: &[u8], tokenizers: &[TokenizerChoice]) {
    let mut choices = Bytes::new(input);
    let bad = bad(&mut choices);
    let most = choices.below(40);
    let Some(scratch) = Scratch::new() else { return };
    let Some(path) = scratch.file(name, input.get(2..).unwrap_or_default()) else {
        return;
    };
    for tokenizer in tokenizers {
        let request = Request {
            path: Some(&path),
            shape: &[most],
            sides: &[],
            own_size: false,
            target: None,
            tokenizer: Some(tokenizer),
            bad,
            facts: None,
        };
        let Ok(opened) = (kind.card().open)(&request) else {
            continue;
        };
        for part in [opened.train, opened.test] {
            for i in 0..=part.len() {
                let _ = part.get(i);
            }
        }
    }
}

/// Seeds with the bytes of options before them.
fn seeds(texts: &[&str]) -> Vec<Vec<u8>> {
    let of = |text: &&str| [&[0, 24], text.as_bytes()].concat();
    texts.iter().map(of).collect()
}

pub(super) fn pairs(input: &[u8]) {
    let tokenizers = [TokenizerChoice::Characters, TokenizerChoice::WordPiece(30)];
    open(DataKind::Pairs, "a.tsv", input, &tokenizers);
}

pub(super) fn pair_seeds() -> Vec<Vec<u8>> {
    seeds(&[
        "source\ttarget\tsplit\nab\tba\ttrain\nnaïve\tevïan\ttest\n",
        "target\tsource\r\n1\tone\r\n2\ttwo\r\n3\t3\r\n4\t4\r\n5\t5\r\n6\t6\r\n7\t7\r\n8\t8\r\n9\t9\r\n10\tten\r\n",
        "source\ttarget\n\n\t\nx\n",
    ])
}

pub(super) fn conll(input: &[u8]) {
    open(DataKind::Conll, "a.conll", input, &[TokenizerChoice::WordPiece(30)]);
}

pub(super) fn conll_seeds() -> Vec<Vec<u8>> {
    seeds(&[
        &"Ada NNP B-PER\nsleeps VBZ O\n\n".repeat(10),
        &format!("-DOCSTART- -X- O\n\n{}", "naïve\tB-X\n\u{7}\tI-X\n\n".repeat(11)),
        "word\n\n",
    ])
}

pub(super) fn squad(input: &[u8]) {
    open(DataKind::Squad, "a.json", input, &[TokenizerChoice::WordPiece(30)]);
}

pub(super) fn squad_seeds() -> Vec<Vec<u8>> {
    let paragraph = r#"{"context":"naïve Ada ran. Bo slept.","qas":[{"id":"1","question":"Who?","answers":[{"text":"Ada","answer_start":6}]},{"id":"2","question":"Why?","is_impossible":true,"answers":[]}]}"#;
    seeds(&[
        &format!(r#"{{"data":[{{"paragraphs":[{}]}}]}}"#, [paragraph; 10].join(",")),
        r#"{"data":[]}"#,
    ])
}
