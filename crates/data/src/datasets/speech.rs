//! Speech in the table of datasets: recordings with what is said in them.

mod alphabet;
mod made_up;
mod recordings;
mod sound;

pub use alphabet::Alphabet;
pub use sound::SAMPLE_RATE;

use super::card::{DatasetCard, FileOptions, Request};
use super::facts::{Fact, Facts};
use super::kinds::SampleKind;
use super::opened::{Opened, Shared};
use crate::{DataError, Result, Sample, streams};
use kiln_audio::{AudioError, Utterance};
use kiln_core::Shape;
use kiln_core::philox::Key;
use made_up::{Noise, Tones};
use recordings::{Recordings, at_rate};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Utterances: sound `[L]` at [`SAMPLE_RATE`], and as targets the classes of the letters that are said. The network's input is `[T, F]`:
/// mel spectrograms of `F` bins, 100 frames a second; `T` frames are those of made-up utterances, real ones have as many as they last.
pub static UTTERANCES: SampleKind = SampleKind {
    name: "speech",
    noun: "utterance",
    describe: |shape| {
        let bins = shape.last().copied().unwrap_or_default();
        format!("speech as {bins} mel bins, 100 frames a second")
    },
    batch: 8,
    samples: |made| Ok(Arc::new(Noise::new(made)?)),
    synthetic: |made| {
        let train = Tones::new(made, 0, made.count)?;
        Ok(Opened {
            facts: facts(&train.alphabet()),
            train: Arc::new(train),
            test: Arc::new(Tones::new(made, 1, made.held_back())?),
        })
    },
};

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "speech",
    description: "recordings (WAV, FLAC, Ogg Vorbis) with their texts: a table with columns path and text, LibriSpeech or Common Voice",
    files: "the speech of",
    ships: None,
    obtain: "write a table of tab-separated columns path and text (and split: train or test, and seconds)",
    example: "manifest.tsv",
    samples: &UTTERANCES,
    shape: None,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[Facts::ALPHABET],
    recognises: |path| {
        let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        path.is_dir() || extension.is_some_and(|e| e == "tsv" || e == "csv")
    },
    open: |request| {
        let source = source(request)?;
        let (train, test) = parts(source)?;
        let alphabet = alphabet(request, source, &train)?;
        let shared = |part| -> Result<Shared> { Ok(Arc::new(Recordings::new(source, part, &alphabet, request.bad)?)) };
        Ok(Opened {
            train: shared(train)?,
            test: shared(test)?,
            facts: facts(&alphabet),
        })
    },
    held_back: |request| {
        let source = source(request)?;
        let (train, test) = parts(source)?;
        let alphabet = alphabet(request, source, &train)?;
        Ok(Arc::new(Recordings::new(source, test, &alphabet, request.bad)?))
    },
    file: Some(file),
};

fn facts(alphabet: &Alphabet) -> Facts {
    Facts::default()
        .with(Facts::ALPHABET, Fact::Text(alphabet.to_string()))
        .with(Facts::SAMPLE_RATE, Fact::Numbers(vec![f64::from(SAMPLE_RATE)]))
}

/// The letters of the trained network, or of the texts to train on.
fn alphabet(request: &Request<'_>, source: &Path, train: &[Utterance]) -> Result<Alphabet> {
    if let Some(known) = request.facts.and_then(|facts| facts.text(Facts::ALPHABET)) {
        return Ok(Alphabet::of(known));
    }
    let alphabet = Alphabet::of_texts(train.iter().map(|u| u.text.as_str()));
    // The space is always one, and the blank a class.
    match alphabet.classes() > 2 {
        true => Ok(alphabet),
        false => Err(DataError::Empty {
            path: source.to_path_buf(),
            expected: "letters in the texts to train on",
        }),
    }
}

fn source<'a>(request: &Request<'a>) -> Result<&'a Path> {
    let missing = || DataError::invalid("speech", "path", "none", "a table or a folder");
    request.path.ok_or_else(missing)
}

/// One file with sound for a trained network.
fn file(path: &Path, _: &FileOptions<'_>) -> Result<Vec<Sample>> {
    let sound = at_rate(kiln_audio::read(path)?)?;
    let mut sample = Sample::default();
    sample.fill(Shape::new(&[sound.len()])?, sound.into_iter())?;
    Ok(vec![sample])
}

/// The names of the part that is held back, in the order in which they are looked for.
const HELD_BACK: [&str; 4] = ["dev", "val", "test", "eval"];

/// The utterances to train on, and those that are held back.
///
/// Parts are told by the names of the splits: `train`, `train-clean-100`; held back are those of `dev…` or `val…`, else of `test…`. Without
/// splits a tenth is held back, which does not depend on the run's seed, so that runs can be compared.
fn parts(source: &Path) -> Result<(Vec<Utterance>, Vec<Utterance>)> {
    let all = utterances(source)?;
    let begins = |u: &Utterance, name: &str| u.split.as_deref().is_some_and(|split| split.starts_with(name));
    let held_back = HELD_BACK.into_iter().find(|name| all.iter().any(|u| begins(u, name)));
    if let Some(name) = held_back
        && all.iter().any(|u| begins(u, "train"))
    {
        let (test, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|u| begins(u, name));
        return Ok((rest.into_iter().filter(|u| begins(u, "train")).collect(), test));
    }
    let held_back = all.len().div_ceil(10);
    let mut order: Vec<usize> = (0..all.len()).collect();
    Key::new(0, streams::SPLIT, 0).shuffle(&mut order);
    let mut of_test = vec![false; all.len()];
    order.iter().take(held_back).for_each(|&at| of_test[at] = true);
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (utterance, of_test) in all.into_iter().zip(of_test) {
        if of_test { &mut test } else { &mut train }.push(utterance);
    }
    Ok((train, test))
}

/// All utterances of a table, of the folder of one, of Common Voice's lists or of LibriSpeech's folders.
fn utterances(source: &Path) -> Result<Vec<Utterance>> {
    if !source.is_dir() {
        return listed(source);
    }
    for name in ["manifest.tsv", "manifest.csv"] {
        let manifest = source.join(name);
        if manifest.is_file() {
            return listed(&manifest);
        }
    }
    let lists: Vec<PathBuf> = ["train.tsv", "dev.tsv", "test.tsv"]
        .map(|name| source.join(name))
        .into();
    if lists[0].is_file() {
        let mut all = Vec::new();
        for list in lists.iter().filter(|list| list.is_file()) {
            all.extend(listed(list)?);
        }
        return Ok(all);
    }
    Ok(kiln_audio::read_librispeech(source)?)
}

/// The utterances of a table: Common Voice's if it has their column of sentences.
fn listed(table: &Path) -> Result<Vec<Utterance>> {
    let manifest = match kiln_audio::read_manifest(table) {
        Err(AudioError::Column { found, .. }) if found.split(", ").any(|c| c == "sentence") => {
            kiln_audio::read_common_voice(table)
        }
        other => other,
    };
    Ok(manifest?)
}
