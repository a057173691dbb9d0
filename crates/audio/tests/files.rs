//! Files that are written here, and files that nobody should write.

use kiln_audio::{
    AudioError, MelSpectrogram, SpecAugment, Spectrogram, SpeedPerturbation, Stft, Waveform, decode, read,
};
use kiln_core::Error;
use kiln_core::philox::Key;
use proptest::prelude::*;

/// A WAV file: `format` 1 of integers and 3 of floats, `bits` per sample.
fn wav(format: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    let block = channels * bits / 8;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    file.extend([format, channels].map(u16::to_le_bytes).concat());
    file.extend([rate, rate * u32::from(block)].map(u32::to_le_bytes).concat());
    file.extend([block, bits].map(u16::to_le_bytes).concat());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

fn wav16(channels: u16, rate: u32, samples: &[i16]) -> Vec<u8> {
    wav(
        1,
        channels,
        rate,
        16,
        &samples.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>(),
    )
}

proptest! {
    #[test]
    fn wav_files_are_read(channels in 1u16..4, frames in 1usize..3000, rate in 1u32..200_000) {
        let samples: Vec<i16> = (0..frames * usize::from(channels)).map(|i| (i * 7919 % 65_536) as u16 as i16).collect();
        let sound = decode(wav16(channels, rate, &samples), "x.wav").unwrap();
        prop_assert_eq!(sound.sample_rate, rate);
        prop_assert_eq!(sound.channels.len(), usize::from(channels));
        for (c, channel) in sound.channels.iter().enumerate() {
            let want = samples[c..].iter().step_by(channels.into()).map(|x| f32::from(*x) / 32_768.0);
            prop_assert!(channel.iter().copied().eq(want));
        }
        let mean: f32 = sound.channels.iter().map(|c| c[frames / 2]).sum::<f32>() / f32::from(channels);
        prop_assert!((sound.mono().channels[0][frames / 2] - mean).abs() < 1e-6);
    }

    /// Damage gives an error or other sound, and no panic.
    #[test]
    fn damage_is_survived(
        file in prop::sample::select(vec!["wav", "flac", "ogg"]),
        at in any::<prop::sample::Index>(),
        end in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = match file {
            "wav" => wav16(2, 8000, &[5; 600]),
            name => std::fs::read(format!("{}/tests/golden/sweep.{name}", env!("CARGO_MANIFEST_DIR"))).unwrap(),
        };
        let i = at.index(bytes.len().min(200));
        bytes[i] = byte;
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        match decode(bytes, "damaged") {
            Ok(sound) => prop_assert!(!sound.is_empty()),
            Err(e) => prop_assert!(e.to_string().starts_with("damaged: "), "{}", e),
        }
    }
}

#[test]
fn other_samples_are_scaled() {
    let one = |format, bits, data: &[u8]| decode(wav(format, 1, 8000, bits, data), "x.wav").unwrap().channels;
    assert_eq!(one(1, 8, &[0, 128, 192]), [[-1.0, 0.0, 0.5]]);
    assert_eq!(one(1, 24, &[0, 0, 0x80, 0, 0, 0x40]), [[-1.0, 0.5]]);
    assert_eq!(one(1, 32, &[0, 0, 0, 0x80, 0, 0, 0, 0x40]), [[-1.0, 0.5]]);
    let floats: Vec<u8> = [0.25f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(one(3, 32, &floats), [[0.25, -2.0]]);
}

#[test]
fn what_is_no_sound_is_refused() {
    let refused = |bytes: &[u8]| decode(bytes.to_vec(), "folder/x.wav").unwrap_err();
    let names = |e: &AudioError| e.to_string().starts_with("folder/x.wav: ");
    for bytes in [&b""[..], b"RIFF", b"nothing that anybody knows", &[0; 5000]] {
        let e = refused(bytes);
        assert!(matches!(e, AudioError::Format { .. }) && names(&e), "{e}");
    }
    let e = refused(&wav16(1, 8000, &[]));
    assert!(matches!(e, AudioError::Empty { .. }) && names(&e), "{e}");
    let e = refused(&wav16(1, 0, &[1, 2, 3]));
    assert!(names(&e), "{e}");
    let e = refused(&wav16(1, 2_000_000, &[1, 2, 3]));
    assert!(
        matches!(e, AudioError::Rate { rate: 2_000_000, .. }) && names(&e),
        "{e}"
    );
    for name in ["flac", "ogg"] {
        let file = format!("{}/tests/golden/sweep.{name}", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(file).unwrap();
        let e = refused(&bytes[..bytes.len() - 300]);
        assert!(matches!(e, AudioError::Broken { .. }) && names(&e), "{name}: {e}");
    }
    let e = refused(&wav16(1, 8000, &[1; 500])[..700]);
    assert!(matches!(e, AudioError::Broken { .. }) && names(&e), "{e}");
    let e = read("/nowhere/at all.wav").unwrap_err();
    assert!(matches!(e, AudioError::Io { action: "open", .. }), "{e}");
    assert!(read("/dev/null").is_err());
}

#[test]
fn arguments_are_checked() {
    let sound = Waveform::new(vec![vec![0.5; 10]], 8000).unwrap();
    let invalid = |e: AudioError| match e {
        AudioError::Argument(Error::InvalidArgument { argument, .. }) => argument,
        e => panic!("{e}"),
    };
    assert_eq!(invalid(Waveform::new(vec![], 8000).unwrap_err()), "channels");
    assert_eq!(
        invalid(Waveform::new(vec![vec![0.0], vec![]], 8000).unwrap_err()),
        "channels"
    );
    assert_eq!(invalid(Waveform::new(vec![vec![0.0]], 0).unwrap_err()), "sample_rate");
    assert_eq!(invalid(sound.resample(0).unwrap_err()), "sample_rate");
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
        assert_eq!(invalid(sound.speed(factor).unwrap_err()), "factor");
    }
    assert_eq!(invalid(Stft::new(0, 1, 1, true).unwrap_err()), "n_fft");
    assert_eq!(invalid(Stft::new(4, 0, 4, true).unwrap_err()), "hop");
    assert_eq!(invalid(Stft::new(4, 1, 5, true).unwrap_err()), "win_length");
    assert_eq!(
        invalid(Stft::new(8, 1, 8, true).unwrap().power(&[0.0; 4]).unwrap_err()),
        "samples"
    );
    assert_eq!(
        invalid(Stft::new(8, 1, 8, false).unwrap().power(&[0.0; 7]).unwrap_err()),
        "samples"
    );
    assert_eq!(invalid(MelSpectrogram::new(0).unwrap_err()), "n_fft");
    assert_eq!(invalid(SpeedPerturbation::new(vec![]).unwrap_err()), "factors");
    let empty = Waveform::new(vec![vec![]], 8000).unwrap();
    assert!(empty.resample(16_000).unwrap().is_empty());
}

proptest! {
    /// A tone far below both limits keeps its value at every instant.
    #[test]
    fn resampling_keeps_tones(from in 4000u32..20_000, to in 4000u32..20_000) {
        let tone = |rate: u32, i: usize| (i as f32 / rate as f32 * 200.0 * std::f32::consts::TAU).sin();
        let x: Vec<f32> = (0..from as usize / 10).map(|i| tone(from, i)).collect();
        let y = Waveform::new(vec![x], from).unwrap().resample(to).unwrap();
        let len = y.len();
        prop_assert_eq!(len, (from as usize / 10 * to as usize).div_ceil(from as usize));
        for i in len / 4..len * 3 / 4 {
            prop_assert!((y.channels[0][i] - tone(to, i)).abs() < 0.02, "{} to {}, {}", from, to, i);
        }
    }

    #[test]
    fn masks_are_drawn_from_the_key(seed in any::<u64>(), frames in 0usize..30, bins in 0usize..20) {
        let full = Spectrogram { data: vec![1.0; frames * bins], frames, bins };
        let augment = SpecAugment {
            n_time_masks: 2, time_mask_param: 8, n_freq_masks: 1, freq_mask_param: 5, p: 0.5, zero_masking: true,
        };
        let [mut a, mut b] = [full.clone(), full.clone()];
        augment.apply(&mut a, Key::new(seed, 1, 2)).unwrap();
        augment.apply(&mut b, Key::new(seed, 1, 2)).unwrap();
        prop_assert_eq!(&a, &b);
        let masked = |hidden: bool| hidden as usize;
        let rows = (0..frames).map(|t| masked(bins > 0 && a.data[t * bins..][..bins].iter().all(|x| *x == 0.0))).sum::<usize>();
        let columns = (0..bins).map(|f| masked(frames > 0 && (0..frames).all(|t| a.data[t * bins + f] == 0.0))).sum::<usize>();
        prop_assert!(rows == frames || columns < 5);
        prop_assert!(columns == bins || rows <= 2 * (frames / 2).min(7));
        let kept = (frames - rows) * (bins - columns);
        prop_assert_eq!(a.data.iter().filter(|x| **x == 1.0).count(), kept);
        // The mean of ones is one.
        let mut c = full.clone();
        SpecAugment { zero_masking: false, ..augment }.apply(&mut c, Key::new(seed, 1, 2)).unwrap();
        prop_assert_eq!(c, full);
    }

    #[test]
    fn speeds_are_drawn_from_the_key(seed in any::<u64>()) {
        let x = Waveform::new(vec![vec![0.5; 90]], 1000).unwrap();
        let speeds = SpeedPerturbation::default();
        let factor = speeds.factor(Key::new(seed, 0, 0));
        prop_assert!([0.9, 1.0, 1.1].contains(&factor));
        let y = speeds.apply(&x, Key::new(seed, 0, 0)).unwrap();
        prop_assert_eq!(y.len(), (90.0 / factor).ceil() as usize);
        prop_assert_eq!(y, x.speed(factor).unwrap());
    }
}
