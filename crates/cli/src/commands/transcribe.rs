//! `kiln transcribe`: what is said in files, by the network of a run.

use crate::args::TranscribeArgs;
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::finite;
use crate::output::{self, line, passed_over};
use crate::weights::{self, Saved};
use kiln_audio::{BeamSearch, LanguageModel, NGram, ctc_greedy};
use kiln_core::Backend;
use kiln_data::{Alphabet, Compose, Draw, Facts, FileOptions, ReadFile, SAMPLE_RATE, Transform};
use kiln_files::shown_path;
use kiln_nn::{Tensor, no_grad};
use kiln_profile::Profiled;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The class of the blank.
const BLANK: usize = 0;
/// The word of a language model that stands for the space, as wav2letter has it.
const SPACE: &str = "|";

/// The way from log-probabilities to letters: the likeliest class of each step, or a search.
#[derive(Default)]
pub(super) struct Decoder {
    search: Option<BeamSearch>,
    model: Option<NGram>,
}

impl Decoder {
    /// That of the options. A language model without a width has that of [`BeamSearch::default`].
    fn of(args: &TranscribeArgs, alphabet: &Alphabet) -> Result<Self> {
        if args.beam.is_none() && args.lm.is_none() {
            return match args.lm_weight.is_some() || args.letter_bonus.is_some() {
                true => Err(Error::usage("--lm-weight and --letter-bonus are for a search")
                    .help("add --beam N or --lm FILE.arpa, or leave them out")),
                false => Ok(Decoder::default()),
            };
        }
        let blank = "<blank>".to_string();
        let words = alphabet.letters().iter().map(|&letter| match letter {
            ' ' => SPACE.to_string(),
            letter => letter.to_string(),
        });
        let words: Vec<String> = std::iter::once(blank).chain(words).collect();
        let model = args.lm.as_ref().map(|path| NGram::read_arpa(path, &words)).transpose();
        let default = BeamSearch::default();
        Ok(Decoder {
            search: Some(BeamSearch {
                width: args.beam.map_or(default.width, |n| n as usize),
                blank: BLANK,
                lm_weight: args.lm_weight.map_or(default.lm_weight, |weight| weight.get()),
                label_bonus: args.letter_bonus.unwrap_or(default.label_bonus),
            }),
            model: model.map_err(|e| Error::failure(e.to_string()))?,
        })
    }

    /// The letters, and their score of a search.
    fn letters(&self, log_probs: &[f32], classes: usize) -> Result<(Vec<usize>, Option<f64>)> {
        let failed = |e: kiln_audio::AudioError| Error::failure(e.to_string());
        let Some(search) = &self.search else {
            return Ok((ctc_greedy(log_probs, classes, BLANK).map_err(failed)?, None));
        };
        let model = self.model.as_ref().map(|model| model as &dyn LanguageModel);
        let found = search.decode(log_probs, classes, model).map_err(failed)?;
        Ok(found
            .into_iter()
            .next()
            .map_or((Vec::new(), None), |best| (best.labels, Some(best.score))))
    }
}

/// The text of a recording, and how long it is.
struct Transcript {
    text: String,
    seconds: f64,
    score: Option<f64>,
}

/// A network that is asked about files.
struct Asked<'a, B: Backend> {
    backend: &'a B,
    saved: &'a Saved<B>,
    alphabet: &'a Alphabet,
    decoder: &'a Decoder,
    read: ReadFile,
    transform: Compose,
}

impl<B: Backend> Asked<'_, B> {
    fn transcript(&self, path: &Path) -> Result<Transcript> {
        let options = FileOptions {
            shape: self.saved.model.input().shape,
            own_size: false,
            facts: &self.saved.facts,
            tokenizer: None,
            invert: None,
        };
        let mut samples = (self.read)(path, &options)?;
        let Some(sample) = samples.first_mut() else {
            return Err(Error::failure(format!("{}: there is no sound in it", shown_path(path))));
        };
        let seconds = sample.input.len() as f64 / f64::from(SAMPLE_RATE);
        let heard = self.transform.apply(sample, &Draw::new(0, 0, 0));
        heard.map_err(|e| Error::from(e).context(shown_path(path)))?;
        let spectrogram = Tensor::from_slice(self.backend, &sample.input, sample.shape.dims())?;
        let log_probs = || {
            let made = self.saved.net.transcribe(&spectrogram);
            made.unwrap_or_else(|| Ok(spectrogram.clone()))
        };
        let found = no_grad(log_probs)?;
        let values: Vec<f32> = found.to_f64()?.into_iter().map(|p| p as f32).collect();
        if values.iter().any(|p| p.is_nan()) {
            let what = format!("{}: the probabilities of letters", shown_path(path));
            return Err(finite::overflow(log_probs, &what)?);
        }
        let classes = found.shape().last().copied().unwrap_or(1);
        let (labels, score) = self.decoder.letters(&values, classes)?;
        // Spaces at the ends are what the network hears in silence.
        let text = self
            .alphabet
            .text(&labels)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        Ok(Transcript { text, seconds, score })
    }
}

/// Prints what is said in each file; a file that cannot be read is passed over, and the exit code says so.
pub(super) fn all<B: Backend>(
    backend: &B,
    saved: &Saved<B>,
    files: &[PathBuf],
    decoder: impl FnOnce(&Alphabet) -> Result<Decoder>,
    json: bool,
) -> Result<u8> {
    let model = saved.model;
    let heard = (saved.facts.text(Facts::ALPHABET), saved.data.card().file);
    let (Some(letters), Some(read)) = heard else {
        return Err(
            Error::usage(format!("{}: {model} writes down no speech", shown_path(&saved.path)))
                .help("name the run of a deepspeech2; `kiln predict` asks other networks about files"),
        );
    };
    let alphabet = Alphabet::of(letters);
    let decoder = decoder(&alphabet)?;
    let asked = Asked {
        backend,
        saved,
        alphabet: &alphabet,
        decoder: &decoder,
        read,
        transform: model.transform(None)?,
    };
    let mut exit = 0;
    for path in files {
        match asked.transcript(path) {
            Ok(transcript) if json => output::json(&entry(path, model.name(), &transcript)),
            Ok(transcript) => line(&format!("{}: {}", shown_path(path), transcript.text)),
            Err(error) => exit = passed_over(&error),
        }
    }
    Ok(exit)
}

fn entry(path: &Path, model: &str, transcript: &Transcript) -> Value {
    json!({
        "file": path.display().to_string(),
        "model": model,
        "text": transcript.text,
        "seconds": transcript.seconds,
        "score": transcript.score,
    })
}

struct Transcribe<'a>(&'a TranscribeArgs);

impl Task for Transcribe<'_> {
    /// The exit code.
    type Output = u8;

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<u8> {
        let args = self.0;
        let saved = weights::load(&args.weights(), backend)?;
        let decoder = |alphabet: &Alphabet| Decoder::of(args, alphabet);
        all(backend, &saved, &args.files, decoder, args.json)
    }
}

pub(crate) fn run(args: TranscribeArgs) -> Result<u8> {
    with_device(&args.device.options(), Transcribe(&args))
}
