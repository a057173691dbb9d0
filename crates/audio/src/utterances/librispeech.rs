//! The folders of LibriSpeech.

use super::utterance::{Utterance, text_of};
use crate::{AudioError, Result};
use std::path::{Path, PathBuf};

/// Reads a folder of LibriSpeech (Panayotov et al., ICASSP 2015), or one above several: `SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt` has a
/// line `ID TEXT` for each file `ID.flac` beside it, and the split is the folder above the speaker. Utterances are in the order of names.
///
/// # Errors
/// [`AudioError::Io`], [`AudioError::Line`] for a line without an ID, [`AudioError::NoUtterances`].
pub fn read_librispeech(folder: impl AsRef<Path>) -> Result<Vec<Utterance>> {
    let folder = folder.as_ref();
    let mut lists = Vec::new();
    find_lists(folder, &mut lists, 0)?;
    let mut all = Vec::new();
    for list in &lists {
        read_list(list, &mut all)?;
    }
    match all.is_empty() {
        false => Ok(all),
        true => Err(AudioError::NoUtterances {
            path: folder.to_path_buf(),
            expected: "folders SPEAKER/CHAPTER with a .trans.txt file",
        }),
    }
}

/// How many folders lie in one another at most: `LibriSpeech/train-clean-100/SPEAKER/CHAPTER`, and some to spare.
const DEEPEST: usize = 8;

fn find_lists(folder: &Path, lists: &mut Vec<PathBuf>, depth: usize) -> Result<()> {
    let list = || AudioError::io(folder, "list");
    let entries = std::fs::read_dir(folder).map_err(list())?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(list())?.path());
    }
    paths.sort_unstable();
    for path in paths {
        if path.is_dir() {
            if depth < DEEPEST {
                find_lists(&path, lists, depth + 1)?;
            }
        } else if path.to_string_lossy().ends_with(".trans.txt") {
            lists.push(path);
        }
    }
    Ok(())
}

fn read_list(list: &Path, all: &mut Vec<Utterance>) -> Result<()> {
    let chapter = list.parent().unwrap_or(Path::new(""));
    let name = |folder: Option<&Path>| Some(folder?.file_name()?.to_string_lossy().into_owned());
    let speaker = chapter.parent();
    let split = name(speaker.and_then(Path::parent));
    for (i, line) in text_of(list)?.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let (id, text) = line.split_once(' ').unwrap_or((line, ""));
        if id.is_empty() || id.contains('/') {
            return Err(AudioError::Line {
                path: list.to_path_buf(),
                line: i + 1,
                reason: "no ID, expected `ID TEXT`".into(),
            });
        }
        all.push(Utterance {
            path: chapter.join(format!("{id}.flac")),
            text: text.to_string(),
            split: split.clone(),
            speaker: name(speaker),
            seconds: None,
            list: list.to_path_buf(),
            line: i + 1,
        });
    }
    Ok(())
}
