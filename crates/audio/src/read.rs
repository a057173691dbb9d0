//! Files with sound: WAV, FLAC, and Vorbis in Ogg.

use crate::wave::MAX_RATE;
use crate::{AudioError, Result, Waveform};
use std::io::{Cursor, Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use symphonia::core::codecs::audio::AudioDecoderOptions;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};

/// Reads a file with sound, all of it, as `torchaudio.load` does: samples of integers are divided by 2ᵇ⁻¹ for b bits.
///
/// # Errors
/// [`AudioError::Io`] if it cannot be opened (regular files alone are), [`AudioError::Format`], [`AudioError::Broken`],
/// [`AudioError::Empty`], [`AudioError::Rate`], each with the path.
pub fn read(path: impl AsRef<Path>) -> Result<Waveform> {
    let path = path.as_ref();
    let (mut file, _) = kiln_files::open_regular(path).map_err(AudioError::io(path, "open"))?;
    let mut head = Vec::new();
    let four = (&mut file).take(4).read_to_end(&mut head).and_then(|_| file.rewind());
    four.map_err(AudioError::io(path, "read"))?;
    read_source(Box::new(file), &head, path)
}

/// Reads the bytes of a file with sound; `name` is what errors call it.
///
/// # Errors
/// Those of [`read`].
pub fn decode(bytes: Vec<u8>, name: impl AsRef<Path>) -> Result<Waveform> {
    let head = bytes.iter().copied().take(4).collect::<Vec<_>>();
    read_source(Box::new(Cursor::new(bytes)), &head, name.as_ref())
}

/// The first bytes of the formats.
const HEADS: [&[u8]; 3] = [b"RIFF", b"fLaC", b"OggS"];

/// As [`read_all`], with an error where a decoder panics at bytes that it did not expect.
fn read_source(source: Box<dyn MediaSource>, head: &[u8], path: &Path) -> Result<Waveform> {
    let read = catch_unwind(AssertUnwindSafe(|| read_all(source, head, path)));
    read.unwrap_or_else(|_| {
        Err(AudioError::Broken {
            path: path.to_path_buf(),
            seconds: 0.0,
            reason: "its decoder failed".into(),
        })
    })
}

fn read_all(source: Box<dyn MediaSource>, head: &[u8], path: &Path) -> Result<Waveform> {
    let stream = MediaSourceStream::new(source, Default::default());
    let probe = symphonia::default::get_probe();
    let mut format = probe
        .probe(&Hint::new(), stream, Default::default(), Default::default())
        .map_err(|e| not_read(path, HEADS.contains(&head), e))?;
    let mut channels = Vec::new();
    let mut rate = None;
    let result = read_packets(format.as_mut(), path, &mut channels, &mut rate);
    let seconds = |rate: u32| channels.first().map_or(0, Vec::len) as f64 / f64::from(rate.max(1));
    result.map_err(|e| match e {
        Stopped::Decoder(Error::Unsupported(reason)) => AudioError::Format {
            path: path.to_path_buf(),
            reason: reason.into(),
        },
        Stopped::Decoder(e) => AudioError::Broken {
            path: path.to_path_buf(),
            seconds: seconds(rate.unwrap_or(1)),
            reason: e.to_string(),
        },
        Stopped::Changed => AudioError::Broken {
            path: path.to_path_buf(),
            seconds: seconds(rate.unwrap_or(1)),
            reason: "its sample rate or channels change".into(),
        },
        Stopped::Audio(e) => e,
    })?;
    let empty = channels.first().is_none_or(Vec::is_empty);
    match rate {
        Some(sample_rate) if !empty => Ok(Waveform { channels, sample_rate }),
        _ => Err(AudioError::Empty {
            path: path.to_path_buf(),
        }),
    }
}

/// The reasons to stop before the end.
enum Stopped {
    Decoder(Error),
    Changed,
    Audio(AudioError),
}

impl From<Error> for Stopped {
    fn from(e: Error) -> Self {
        Stopped::Decoder(e)
    }
}

fn read_packets(
    format: &mut dyn FormatReader,
    path: &Path,
    channels: &mut Vec<Vec<f32>>,
    rate: &mut Option<u32>,
) -> Result<(), Stopped> {
    let track = format.default_track(TrackType::Audio);
    let track = track.ok_or(Error::Unsupported("no track of sound"))?;
    let (id, frames) = (track.id, track.num_frames);
    let parameters = track.codec_params.as_ref().and_then(|p| p.audio());
    let parameters = parameters.ok_or(Error::Unsupported("an unknown codec"))?;
    if let Some(rate) = parameters.sample_rate {
        check_rate(path, rate)?;
    }
    let mut decoder =
        symphonia::default::get_codecs().make_audio_decoder(parameters, &AudioDecoderOptions::default())?;
    let mut part = Vec::new();
    while let Some(packet) = format.next_packet()? {
        if packet.track_id != id {
            continue;
        }
        let sound = decoder.decode(&packet)?;
        let found = sound.spec().rate();
        if rate.is_none() {
            check_rate(path, found)?;
            *rate = Some(found);
            channels.resize(sound.num_planes(), Vec::new());
        }
        if *rate != Some(found) || channels.len() != sound.num_planes() {
            return Err(Stopped::Changed);
        }
        sound.copy_to_vecs_planar::<f32>(&mut part);
        for (channel, part) in channels.iter_mut().zip(&part) {
            let refused = channel.try_reserve(part.len()).is_err();
            if refused {
                let memory = kiln_core::Error::OutOfMemory {
                    device: "host".into(),
                    requested: (channel.len() + part.len()) * size_of::<f32>(),
                    free: None,
                };
                return Err(Stopped::Audio(memory.into()));
            }
            channel.extend_from_slice(part);
        }
    }
    let found = channels.first().map_or(0, Vec::len) as u64;
    match frames {
        Some(frames) if found < frames => {
            Err(Error::DecodeError("the file ends before the samples that it announces").into())
        }
        _ => Ok(()),
    }
}

fn check_rate(path: &Path, rate: u32) -> Result<(), Stopped> {
    match rate {
        1..=MAX_RATE => Ok(()),
        _ => Err(Stopped::Audio(AudioError::Rate {
            path: path.to_path_buf(),
            rate,
        })),
    }
}

/// The error of a file whose head cannot be read, and begins as one of the formats if it is `known`.
fn not_read(path: &Path, known: bool, e: Error) -> AudioError {
    let path = path.to_path_buf();
    let reason = e.to_string();
    match e {
        Error::IoError(source) if source.kind() != std::io::ErrorKind::UnexpectedEof => AudioError::Io {
            path,
            action: "read",
            source,
        },
        Error::IoError(_) | Error::DecodeError(_) if known => AudioError::Broken {
            path,
            seconds: 0.0,
            reason,
        },
        _ => AudioError::Format { path, reason },
    }
}
