//! Results of torchaudio and librosa, which `golden/audio.py` wrote.

use kiln_audio::{MelNorm, MelScale, MelSpectrogram, Stft, Waveform, mel_filterbank, read};
use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
/// Of values of up to some hundreds: theirs are of f64 or f32, ours of f64 rounded once.
const TOLERANCE: f64 = 1e-4;

fn golden() -> Value {
    let text = std::fs::read_to_string(format!("{FOLDER}/audio.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn noise(len: &Value) -> Vec<f32> {
    let n = len.as_u64().unwrap();
    let integer = |i: u64| ((i * i * 7919 + i * 104_729) % 2001) as f32 - 1000.0;
    (0..n).map(|i| integer(i) / 1024.0).collect()
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

#[track_caller]
fn close(found: &[f32], want: &Value, name: &str) {
    let want: Vec<f64> = want.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    assert_eq!(found.len(), want.len(), "{name}: length");
    for (i, (x, w)) in found.iter().zip(&want).enumerate() {
        let bound = TOLERANCE * w.abs().max(1.0);
        assert!(
            (f64::from(*x) - w).abs() <= bound,
            "{name}, element {i}: {x}, expected {w}"
        );
    }
}

#[test]
fn resampling() {
    let golden = golden();
    for case in golden["resample"].as_array().unwrap() {
        let x = Waveform::new(vec![noise(&case["len"])], number(&case["from"]) as u32).unwrap();
        let y = x.resample(number(&case["to"]) as u32).unwrap();
        close(
            &y.channels[0],
            &case["y"],
            &format!("{} to {}", case["from"], case["to"]),
        );
    }
    for case in golden["speed"].as_array().unwrap() {
        let x = Waveform::new(vec![noise(&case["len"])], number(&case["rate"]) as u32).unwrap();
        let y = x.speed(case["factor"].as_f64().unwrap()).unwrap();
        close(&y.channels[0], &case["y"], &format!("speed {}", case["factor"]));
    }
}

#[test]
fn short_time_fourier_transforms() {
    for case in golden()["stft"].as_array().unwrap() {
        let [n_fft, hop, win] = ["n_fft", "hop", "win"].map(|name| number(&case[name]));
        let stft = Stft::new(n_fft, hop, win, case["center"].as_bool().unwrap()).unwrap();
        let x = noise(&case["len"]);
        let y = stft.complex(&x).unwrap();
        let shape = [stft.frames(x.len()).unwrap(), stft.bins(), 2];
        assert_eq!(shape.map(Value::from).to_vec(), *case["shape"].as_array().unwrap());
        close(y.as_flattened(), &case["y"], &format!("{stft:?}"));
        let power = stft.power(&x).unwrap();
        for (p, [re, im]) in power.data.iter().zip(y) {
            assert!((p - (re * re + im * im)).abs() <= 1e-5 * p.max(1e-6));
        }
    }
}

#[test]
fn mel_filters() {
    for case in golden()["filters"].as_array().unwrap() {
        let scale = if case["scale"] == "htk" {
            MelScale::Htk
        } else {
            MelScale::Slaney
        };
        let norm = if case["norm"].is_null() {
            MelNorm::None
        } else {
            MelNorm::Slaney
        };
        let [freqs, mels, rate] = ["freqs", "mels", "rate"].map(|name| number(&case[name]));
        let [low, high] = ["low", "high"].map(|name| case[name].as_f64().unwrap());
        let found = mel_filterbank(freqs, low, high, mels, rate as u32, norm, scale).unwrap();
        close(&found, &case["y"], &format!("{scale:?}, {norm:?}"));
    }
}

#[test]
fn mel_spectrograms() {
    let golden = golden();
    let stft = || Stft::new(400, 160, 400, true).unwrap();
    let case = &golden["mel"];
    let mel = MelSpectrogram::with(stft(), 0.0, 8000.0, 40, 16_000, MelNorm::None, MelScale::Htk).unwrap();
    let y = mel.compute(&noise(&case["len"])).unwrap();
    assert_eq!((y.frames, y.bins), (11, 40));
    close(&y.data, &case["y"], "mel");
    close(&y.clone().ln(1e-6).data, &case["ln"], "ln");
    close(&y.decibels(10.0, 1e-10, 1.0, Some(20.0)).data, &case["db"], "dB");
    let case = &golden["librosa"];
    let mel = MelSpectrogram::with(stft(), 0.0, 8000.0, 40, 16_000, MelNorm::Slaney, MelScale::Slaney).unwrap();
    close(&mel.compute(&noise(&case["len"])).unwrap().data, &case["y"], "librosa");
}

#[test]
fn compressed_files() {
    let golden = golden();
    for name in ["sweep.flac", "sweep.ogg"] {
        let sound = read(format!("{FOLDER}/{name}")).unwrap();
        assert_eq!(
            (sound.channels.len(), sound.sample_rate, sound.len()),
            (2, 8000, 800),
            "{name}"
        );
        let interleaved: Vec<f32> = (0..800)
            .flat_map(|i| [sound.channels[0][i], sound.channels[1][i]])
            .collect();
        close(&interleaved, &golden["files"][name], name);
    }
}
