//! Sound for neural networks, on the CPU.
//!
//! | here | PyTorch's |
//! |---|---|
//! | [`read`], [`decode`] | `torchaudio.load` |
//! | [`Waveform::resample`] | `torchaudio.functional.resample` |
//! | [`Waveform::speed`], [`SpeedPerturbation`] | `torchaudio.functional.speed`, `torchaudio.transforms.SpeedPerturbation` |
//! | [`Stft`] | `torch.stft` |
//! | [`MelScale`], [`MelSpectrogram`] | `torchaudio.functional.melscale_fbanks`, `torchaudio.transforms.MelSpectrogram` |
//! | [`Spectrogram::decibels`] | `torchaudio.functional.amplitude_to_DB` |
//! | [`SpecAugment`] | `torchaudio.transforms.SpecAugment` |
//! | [`ctc_greedy`], [`BeamSearch`] with an [`NGram`] | `torchaudio.models.decoder.ctc_decoder` |
//! | [`ErrorRate`], [`edit_distance`] | `torchaudio.functional.edit_distance` |
//! | [`read_manifest`], [`read_common_voice`], [`read_librispeech`] | `torchaudio.datasets` |
//!
//! A spectrogram is `[frames, bins]`, row by row, which networks read as a sequence; PyTorch's is its transpose.

mod augment;
mod ctc;
mod error;
mod error_rate;
mod mel;
mod ngram;
mod read;
mod resample;
mod spectrogram;
mod stft;
mod utterances;
mod wave;

pub use augment::{SpecAugment, SpeedPerturbation};
pub use ctc::{BeamSearch, Hypothesis, ctc_greedy};
pub use error::{AudioError, Result};
pub use error_rate::{ErrorRate, character_error_rate, edit_distance, word_error_rate};
pub use mel::{MelNorm, MelScale, MelSpectrogram, mel_filterbank};
pub use ngram::{LanguageModel, NGram};
pub use read::{decode, read};
pub use spectrogram::Spectrogram;
pub use stft::Stft;
pub use utterances::{Utterance, read_common_voice, read_librispeech, read_manifest};
pub use wave::{MAX_RATE, Waveform};

/// Compiles and runs the README's example as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
