//! Speech that is made up: a tone for each letter.

use super::alphabet::Alphabet;
use super::sound::{SAMPLE_RATE, frames};
use crate::dataset::check_index;
use crate::datasets::kinds::MadeUp;
use crate::{DataError, Dataset, Result, Sample, streams};
use kiln_core::Shape;
use kiln_core::philox::{Key, uniform};
use std::f32::consts::TAU;

/// Samples of a frame.
const HOP: usize = SAMPLE_RATE as usize / 100;
/// Frames of a letter, and of the silence behind it.
const LETTER: usize = 8;
const GAP: usize = 2;
/// Frames of silence before the first letter, and behind the last.
const MARGIN: usize = 4;
/// The most letters of a made-up alphabet, without the space.
const LETTERS: usize = 8;
/// Draws that belong to one utterance.
const DRAWS: u64 = 1 << 32;

/// Utterances of random letters, each a tone of its own pitch, with a little noise; the space is silence. Utterance `i` is a pure function
/// of (seed, part, i).
#[derive(Clone, Debug)]
pub(super) struct Tones {
    count: usize,
    /// The most letters of an utterance.
    most: usize,
    letters: u32,
    key: Key,
}

impl Tones {
    /// `count` utterances that fit in as many frames as the network's input has.
    pub(super) fn new(made: &MadeUp<'_>, part: u32, count: usize) -> Result<Self> {
        let frames = frames(made.shape)?;
        Ok(Tones {
            count,
            most: (frames.saturating_sub(2 * MARGIN) / (LETTER + GAP)).clamp(1, 10),
            letters: made.outputs.saturating_sub(2).clamp(1, LETTERS) as u32,
            key: Key::new(made.seed, streams::SPEECH, part),
        })
    }

    /// The alphabet: the space and as many letters as the network has classes for, at most eight.
    pub(super) fn alphabet(&self) -> Alphabet {
        let letters: String = (b'a'..=b'z').take(self.letters as usize).map(char::from).collect();
        Alphabet::of(&format!(" {letters}"))
    }

    /// The classes of an utterance. A space stands between letters alone.
    fn labels(&self, index: usize) -> Vec<u32> {
        let base = index as u64 * DRAWS;
        let count = 1 + self.key.below(base, self.most as u32) as usize;
        let mut labels: Vec<u32> = Vec::with_capacity(count);
        for at in 0..count {
            let drawn = 1 + self.key.below(base + 1 + at as u64, self.letters + 1);
            let edge = at == 0 || at + 1 == count || labels.last() == Some(&1);
            labels.push(if drawn == 1 && edge { 2 } else { drawn });
        }
        labels
    }
}

/// The samples of one tone or silence, of so many frames, with soft ends.
fn tone(label: u32, pitch: f32) -> impl Iterator<Item = f32> {
    let (length, edge) = (LETTER * HOP, HOP / 2);
    let hz = pitch * 280.0 * 1.4f32.powi(label as i32 - 2);
    (0..length).map(move |i| {
        let loud = (i.min(length - 1 - i) as f32 / edge as f32).min(1.0);
        let phase = (hz * i as f32 / SAMPLE_RATE as f32).fract();
        if label == 1 {
            0.0
        } else {
            0.3 * loud * (TAU * phase).sin()
        }
    })
}

impl Dataset for Tones {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.count
    }

    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.count)?;
        let (base, labels) = (index as u64 * DRAWS, self.labels(index));
        let pitch = 0.97 + 0.06 * uniform(self.key.word(4 * (base + 100)));
        let silence = |frames: usize| std::iter::repeat_n(0.0, frames * HOP);
        let mut sound: Vec<f32> = silence(MARGIN).collect();
        for &label in &labels {
            sound.extend(tone(label, pitch).chain(silence(GAP)));
        }
        sound.extend(silence(MARGIN));
        for (i, x) in sound.iter_mut().enumerate() {
            *x += 0.01 * (uniform(self.key.word(4 * (base + 200) + i as u64)) - 0.5);
        }
        sample.fill(Shape::new(&[sound.len()])?, sound.into_iter())?;
        sample.label = 0;
        sample.targets.clear();
        sample.targets.extend(labels.iter().map(|&label| label as f32));
        Ok(())
    }

    fn length(&self, index: usize) -> Option<u32> {
        u32::try_from(self.labels(index).len()).ok()
    }
}

/// Noise of the length of the network's input with random labels: nothing to learn, and every sample of one shape.
#[derive(Clone, Debug)]
pub(super) struct Noise {
    count: usize,
    frames: usize,
    classes: u32,
    key: Key,
}

impl Noise {
    pub(super) fn new(made: &MadeUp<'_>) -> Result<Self> {
        if made.outputs < 2 {
            return Err(DataError::invalid(
                "speech",
                "outputs",
                made.outputs,
                "a blank and a letter",
            ));
        }
        Ok(Noise {
            count: made.count,
            frames: frames(made.shape)?,
            classes: u32::try_from(made.outputs).unwrap_or(u32::MAX),
            key: Key::new(made.seed, streams::SPEECH, 2),
        })
    }
}

impl Dataset for Noise {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.count
    }

    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.count)?;
        let base = index as u64 * DRAWS;
        // As many samples as make so many frames.
        let length = (self.frames.saturating_sub(1).max(2)).saturating_mul(HOP);
        let values = (0..length).map(|i| uniform(self.key.word(4 * (base + 200) + i as u64)) - 0.5);
        sample.fill(Shape::new(&[length])?, values)?;
        sample.label = 0;
        sample.targets.clear();
        // A letter for each tenth of a second or so.
        let labels = (self.frames / 12).max(1) as u64;
        let label = |i: u64| (1 + self.key.below(base + i, self.classes - 1)) as f32;
        sample.targets.extend((0..labels).map(label));
        Ok(())
    }
}
