//! Recordings of speech in files.

use super::alphabet::Alphabet;
use super::sound::SAMPLE_RATE;
use crate::dataset::check_index;
use crate::error::reserve;
use crate::{BadRecords, DataError, Dataset, Place, Result, Sample, Skipped};
use kiln_audio::{AudioError, Utterance, Waveform};
use kiln_core::Shape;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The seconds of an utterance: a frame, and what the padded batches of a usual network have room for.
const SECONDS: (f64, f64) = (0.025, 60.0);
/// The letters of a second of the fastest speech, twice: a text with more is another's, and CTC could not fit it into the steps of a
/// network.
const LETTERS: f64 = 50.0;
/// The most samples of decoded sound that a dataset keeps in memory: a gigabyte, four and a half hours.
const KEPT: usize = 1 << 28;

/// Utterances in files, decoded when they are first read, and then kept as long as there is room.
pub(super) struct Recordings {
    source: PathBuf,
    utterances: Vec<Utterance>,
    /// The classes of each text.
    labels: Vec<Vec<f32>>,
    /// Sound that has been decoded.
    sound: Vec<OnceLock<Box<[f32]>>>,
    room: AtomicUsize,
    skipped: Arc<Skipped>,
}

/// Sound as a network takes it: one channel at [`SAMPLE_RATE`].
pub(super) fn at_rate(sound: Waveform) -> Result<Vec<f32>, AudioError> {
    let mut sound = sound.mono();
    if sound.sample_rate != SAMPLE_RATE {
        sound = sound.resample(SAMPLE_RATE)?;
    }
    Ok(sound.channels.into_iter().next().unwrap_or_default())
}

impl Recordings {
    /// Utterances of a list or folder. Under [`BadRecords::Skip`] every file is decoded now, else when it is read.
    ///
    /// # Errors
    /// A file that does not exist; no utterances, or none that can be read.
    pub(super) fn new(source: &Path, utterances: Vec<Utterance>, alphabet: &Alphabet, bad: BadRecords) -> Result<Self> {
        let (mut kept, mut skipped) = (Vec::new(), Skipped::default());
        for utterance in utterances {
            match utterance.path.is_file() {
                true => kept.push(utterance),
                false => {
                    let source = std::io::Error::from(std::io::ErrorKind::NotFound);
                    let error = AudioError::Io {
                        path: utterance.path.clone(),
                        action: "open",
                        source,
                    };
                    skipped.note(bad, of_line(&utterance, error))?;
                }
            }
        }
        let mut all = Recordings {
            source: source.to_path_buf(),
            labels: Vec::new(),
            sound: Vec::new(),
            utterances: kept,
            room: AtomicUsize::new(KEPT),
            skipped: Arc::default(),
        };
        if bad == BadRecords::Skip {
            let verdicts = all.decode_all();
            let mut kept = Vec::new();
            for (utterance, verdict) in std::mem::take(&mut all.utterances).into_iter().zip(verdicts) {
                match verdict {
                    Ok(()) => kept.push(utterance),
                    Err(error) => skipped.note(bad, error)?,
                }
            }
            all.utterances = kept;
        }
        if all.utterances.is_empty() {
            return Err(skipped.nothing_left(source, "at least one utterance whose sound can be read"));
        }
        let labels = |u: &Utterance| alphabet.labels(&u.text).into_iter().map(|l| l as f32).collect();
        all.labels = all.utterances.iter().map(labels).collect();
        all.sound.resize_with(all.utterances.len(), OnceLock::new);
        all.skipped = Arc::new(skipped);
        Ok(all)
    }

    /// Tries to decode every file, on all processors; the results are in the order of the list.
    fn decode_all(&self) -> Vec<Result<()>> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let chunk = self.utterances.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let check = |part: &[Utterance]| part.iter().map(|u| decode(u).map(drop)).collect::<Vec<_>>();
            let handles: Vec<_> = self
                .utterances
                .chunks(chunk)
                .map(|part| (part, scope.spawn(move || check(part))))
                .collect();
            let panicked = |u: &Utterance| {
                Err(DataError::Panicked {
                    message: format!("while decoding sound near {}", kiln_files::shown_path(&u.path)),
                })
            };
            let joined = handles.into_iter();
            joined
                .flat_map(|(part, handle)| handle.join().unwrap_or_else(|_| part.iter().map(panicked).collect()))
                .collect()
        })
    }
}

/// The error of an utterance, with the line of the list that names it.
fn of_line(utterance: &Utterance, source: AudioError) -> DataError {
    DataError::Utterance {
        list: utterance.list.clone(),
        line: utterance.line,
        source: Box::new(source),
    }
}

/// The sound of an utterance.
fn decode(utterance: &Utterance) -> Result<Vec<f32>> {
    let failed = |error| of_line(utterance, error);
    let sound = at_rate(kiln_audio::read(&utterance.path).map_err(failed)?).map_err(failed)?;
    let seconds = sound.len() as f64 / f64::from(SAMPLE_RATE);
    let wrong = |what: &'static str, found: String, expected: String| {
        let place = Place::Line {
            line: utterance.line as u64,
            column: None,
        };
        Err(DataError::Value {
            path: utterance.list.clone(),
            place,
            what,
            found: format!("{found} in {}", utterance.path.display()),
            expected: expected.into(),
        })
    };
    if !(SECONDS.0..=SECONDS.1).contains(&seconds) {
        let expected = format!("{} to {}", SECONDS.0, SECONDS.1);
        return wrong("seconds of sound", format!("{seconds:.3}"), expected);
    }
    let (letters, most) = (Alphabet::normalise(&utterance.text).chars().count(), LETTERS * seconds);
    if letters as f64 > most {
        let found = format!("{letters} letters for {seconds:.2} s");
        return wrong(
            "text",
            found,
            format!("at most {most:.0}, as nobody speaks {LETTERS} letters a second"),
        );
    }
    Ok(sound)
}

impl Dataset for Recordings {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.utterances.len()
    }

    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        match self.sound[index].get() {
            Some(sound) => sample.fill(Shape::new(&[sound.len()])?, sound.iter().copied())?,
            None => {
                let sound = decode(&self.utterances[index])?;
                sample.fill(Shape::new(&[sound.len()])?, sound.iter().copied())?;
                let taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| {
                    room.checked_sub(sound.len())
                });
                if taken.is_ok() {
                    // Another thread may have been faster; the sound is the same.
                    let _ = self.sound[index].set(sound.into_boxed_slice());
                }
            }
        }
        let labels = &self.labels[index];
        sample.label = 0;
        sample.targets.clear();
        reserve(&mut sample.targets, labels.len(), "targets")?;
        sample.targets.extend_from_slice(labels);
        Ok(())
    }

    /// Hundredths of a second, of all utterances or of none: where the list has no seconds, the letters of the text.
    fn length(&self, index: usize) -> Option<u32> {
        let utterance = self.utterances.get(index)?;
        Some(match utterance.seconds {
            Some(seconds) => (100.0 * seconds) as u32,
            // About as fast as people read.
            None => 7 * self.labels[index].len() as u32,
        })
    }

    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }

    fn source(&self) -> Option<&Path> {
        Some(&self.source)
    }
}
