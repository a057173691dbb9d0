//! SQuAD in the table of datasets: questions about texts, whose answers are parts of these.

use super::card::{DatasetCard, Request};
use super::facts::Facts;
use super::opened::{Opened, Shared};
use super::questions::{Files, Parts, QUESTIONS, every_tenth};
use crate::formats::read_squad;
use crate::{DataError, Result, Skipped};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "SQuAD",
    description: "questions about texts in the JSON of SQuAD 1.1 or 2.0: a folder with train*.json and dev*.json, or a .json, of whose texts \
                  every tenth is held back",
    files: "the questions of",
    ships: None,
    obtain: "download train-v1.1.json and dev-v1.1.json, or v2.0",
    example: "squad",
    samples: &QUESTIONS,
    shape: None,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[Facts::VOCABULARY],
    recognises: |path| match path.is_dir() {
        true => find(path, &TEST).is_some(),
        false => path.extension().is_some_and(|extension| extension == "json"),
    },
    open: |request| {
        let parts = Parts::new(request, files(request)?)?;
        let facts = parts.facts();
        let Some(train) = parts.train else {
            return Err(DataError::Missing {
                path: request.path.unwrap_or(Path::new("")).to_path_buf(),
                expected: "a file train*.json",
                advice: "a folder has a file to train on and one that is held back; or name one file",
            });
        };
        Ok(Opened {
            train: Arc::new(train),
            test: Arc::new(parts.test),
            facts,
        })
    },
    held_back: |request| Ok(Arc::new(Parts::new(request, files(request)?)?.test) as Shared),
    file: None,
};

/// The names of the parts, as they begin.
const TRAIN: [&str; 1] = ["train"];
const TEST: [&str; 3] = ["dev", "test", "val"];

/// The first file of a folder whose name begins so.
fn find(folder: &Path, parts: &[&str]) -> Option<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".json"))
        .collect();
    names.sort();
    let of = |part: &&str| names.iter().find(|name| name.starts_with(*part));
    parts.iter().find_map(of).map(|name| folder.join(name))
}

fn files(request: &Request<'_>) -> Result<Files> {
    let missing = || DataError::invalid("squad", "path", "none", "a file or a folder");
    let path = request.path.ok_or_else(missing)?;
    let read = |path: PathBuf| {
        let mut skipped = Skipped::default();
        let paragraphs = read_squad(&path, request.bad, &mut skipped)?;
        Ok::<_, DataError>(((path, paragraphs), skipped))
    };
    if !path.is_dir() {
        let ((_, paragraphs), skipped) = read(path.to_path_buf())?;
        return Ok(Files {
            skipped: [skipped, Skipped::default()],
            ..every_tenth(path, paragraphs)?
        });
    }
    let Some(test) = find(path, &TEST) else {
        return Err(DataError::Missing {
            path: path.to_path_buf(),
            expected: "a file dev*.json, test*.json or val*.json",
            advice: "a folder has a file to train on and one that is held back; or name one file",
        });
    };
    let train = find(path, &TRAIN).map(read).transpose()?;
    let (test, of_test) = read(test)?;
    let (train, of_train) = train.unzip();
    Ok(Files {
        train,
        test,
        skipped: [of_train.unwrap_or_default(), of_test],
    })
}
