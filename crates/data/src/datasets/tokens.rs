//! Folders of tokens in the table of datasets: texts that are larger than the memory.

use super::card::{DatasetCard, Request};
use super::opened::Opened;
use super::text::{self, WINDOWS};
use crate::{DataError, Facts, Result, Split, TextWindows, TokenizerChoice, Tokens, is_token_folder, open_tokens};
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a folder of tokens",
    description: "texts of any size as tokens, written by kiln tokenize; windows are read from the disk one by one, and the last tenth of the \
                  characters is held back",
    files: "the tokens of",
    ships: None,
    obtain: "run kiln tokenize FILE.txt --tokenizer bpe:8192 --out FOLDER",
    example: "FOLDER",
    shape: None,
    samples: &WINDOWS,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[Facts::VOCABULARY],
    recognises: is_token_folder,
    open: |request| {
        let (tokens, split) = split(request)?;
        Ok(Opened {
            facts: tokens.facts(),
            ..Opened::of(split)
        })
    },
    held_back: |request| Ok(Arc::new(split(request)?.1.test)),
    file: None,
};

/// The parts of the text, whose tokenizer is the one that is asked for or that of the trained network, if there is one.
fn split(request: &Request<'_>) -> Result<(Arc<Tokens>, Split<TextWindows>)> {
    let missing = || DataError::invalid("tokens", "path", "none", "a folder that kiln tokenize has written");
    let path = request.path.ok_or_else(missing)?;
    let (index, tokens) = open_tokens(path)?;
    let asked = match request.tokenizer {
        None => None,
        Some(TokenizerChoice::File(file)) => Tokens::open(file)?.tokenizer().map(|of| of.digest()),
        Some(choice) => {
            let expected = "none, because the folder has its own";
            return Err(DataError::invalid("tokens", "tokenizer", choice, expected));
        }
    };
    let trained = request
        .facts
        .and_then(|facts| facts.text(Facts::TOKENIZER))
        .map(str::to_string);
    let of_characters = request
        .facts
        .is_some_and(|facts| facts.text(Facts::VOCABULARY).is_some());
    if of_characters
        || [asked, trained]
            .into_iter()
            .flatten()
            .any(|digest| digest != index.tokenizer)
    {
        return Err(DataError::OtherTokenizer {
            path: path.join("tokenizer.json"),
            found: tokens.len(),
            expected: request.facts.and_then(Facts::tokens).unwrap_or_default(),
        });
    }
    let tokens = Arc::new(tokens);
    let context = text::context(request.shape)?;
    let part = |part: usize| TextWindows::of_folder(path, (&index, &tokens), part, context);
    let split = Split {
        train: part(0)?,
        test: part(1)?,
    };
    Ok((tokens, split))
}
