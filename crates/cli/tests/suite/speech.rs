//! Tests of `kiln train`, `eval`, `predict` and `transcribe` on speech.

use crate::common::{run, succeeds};
use serde_json::Value;
use std::path::Path;

/// Writes a WAV file of 16 bits: a tone of so many Hz for each letter of a text, silence for a space.
fn wav(path: &Path, text: &str, rate: u32) {
    let mut samples: Vec<i16> = Vec::new();
    let ms = rate as usize / 1000;
    let silence = |samples: &mut Vec<i16>, count: usize| samples.resize(samples.len() + count * ms, 0);
    silence(&mut samples, 40);
    for letter in text.chars() {
        match letter {
            ' ' => silence(&mut samples, 80),
            letter => {
                let hz = 280.0 * 1.4f64.powi(letter as i32 - 'a' as i32);
                let of = |i: usize| (2.0 * std::f64::consts::PI * hz * i as f64 / f64::from(rate)).sin();
                samples.extend((0..80 * ms).map(|i| (9000.0 * of(i)) as i16));
            }
        }
        silence(&mut samples, 20);
    }
    silence(&mut samples, 40);
    let size = 2 * samples.len() as u32;
    let mut bytes = Vec::new();
    bytes.extend_from_slice(b"RIFF");
    bytes.extend_from_slice(&(36 + size).to_le_bytes());
    bytes.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    bytes.extend_from_slice(&rate.to_le_bytes());
    bytes.extend_from_slice(&(2 * rate).to_le_bytes());
    bytes.extend_from_slice(b"\x02\0\x10\0data");
    bytes.extend_from_slice(&size.to_le_bytes());
    samples.iter().for_each(|s| bytes.extend_from_slice(&s.to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}

/// A folder of speech: texts of the letters a, b and c with tones, every fifth held back.
fn speech(dir: &Path, count: usize) {
    std::fs::create_dir_all(dir.join("speech")).unwrap();
    let mut table = "path\tsplit\ttext\n".to_string();
    for i in 0..count {
        let letter = |at: usize| ["a", "b", "c"][(i * (at + 3) + i / 7 + at) % 3];
        let text: String = (0..2 + i % 4).map(letter).collect();
        let split = if i % 5 == 4 { "test" } else { "train" };
        wav(&dir.join(format!("speech/{i}.wav")), &text, [16000, 8000][i % 2]);
        table.push_str(&format!("{i}.wav\t{split}\t{}!\n", text.to_uppercase()));
    }
    std::fs::write(dir.join("speech/manifest.tsv"), table).unwrap();
}

const ARPA: &str = "\\data\\\nngram 1=5\n\n\\1-grams:\n-0.6\t</s>\n-99\t<s>\n-0.6\ta\n-0.6\tb\n-0.6\tc\n\n\\end\\\n";

#[test]
fn speech_is_learned_and_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    speech(dir, 80);
    let args = [
        "train",
        "deepspeech2",
        "--data",
        "speech",
        "--batch",
        "8",
        "--epochs",
        "12",
        "--lr",
        "0.002",
        "--out",
        "run",
    ];
    let told = succeeds(dir, &args).stdout;
    for part in [
        "the speech of speech: 4 letters, 64 utterances to train, 16 held back",
        "nats/letter",
        "CER ",
        "WER ",
    ] {
        assert!(told.contains(part), "no `{part}` in {told}");
    }
    let config: Value = serde_json::from_slice(&std::fs::read(dir.join("run/config.json")).unwrap()).unwrap();
    assert_eq!(config["facts"]["alphabet"], " abc");
    assert_eq!(config["facts"]["sample_rate"], serde_json::json!([16000.0]));
    let history = std::fs::read_to_string(dir.join("run/history.jsonl")).unwrap();
    let epochs: Vec<Value> = history
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let best = epochs.iter().rfind(|epoch| epoch["best"] == true).unwrap();
    let cer = best["valid"]["cer"].as_f64().unwrap();
    assert!(cer < 0.3, "{history}");

    // What the run has measured is measured again, whatever the size of a batch.
    for batch in ["16", "3"] {
        let eval = ["eval", "-w", "run", "--data", "speech", "--json", "--batch", batch];
        let again = succeeds(dir, &eval).json().remove(0);
        assert_eq!(again["cer"].as_f64().unwrap(), cer, "{again}");
        let (a, b) = (again["loss"].as_f64().unwrap(), best["valid"]["loss"].as_f64().unwrap());
        assert!((a - b).abs() < 1e-5 * b.abs().max(1.0), "{a} and {b}");
    }

    // A line for each file; a file of another rate is resampled.
    wav(&dir.join("x.wav"), "abcba", 16000);
    wav(&dir.join("y.wav"), "abcba", 44000);
    let told = succeeds(dir, &["transcribe", "run", "x.wav", "y.wav"]).stdout;
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("x.wav: ") && lines[1].starts_with("y.wav: "),
        "{told}"
    );
    assert_eq!(succeeds(dir, &["predict", "-w", "run", "x.wav", "y.wav"]).stdout, told);
    let json = succeeds(dir, &["transcribe", "run", "--json", "x.wav"])
        .json()
        .remove(0);
    assert_eq!(json["text"], lines[0]["x.wav: ".len()..]);
    assert!(
        (json["seconds"].as_f64().unwrap() - 0.58).abs() < 1e-9 && json["score"].is_null(),
        "{json}"
    );
    assert!(
        json["text"].as_str().unwrap().chars().all(|c| " abc".contains(c)),
        "{json}"
    );

    // A search, with and without a language model.
    std::fs::write(dir.join("abc.arpa"), ARPA).unwrap();
    for more in [
        &["--beam", "8"][..],
        &["--lm", "abc.arpa", "--lm-weight", "0.3", "--letter-bonus", "-0.1"],
    ] {
        let args = [&["transcribe", "run", "--json", "x.wav"], more].concat();
        let json = succeeds(dir, &args).json().remove(0);
        assert!(json["score"].as_f64().unwrap() < 0.0, "{json}");
    }

    // A file that cannot be read does not keep the others from being written down.
    std::fs::write(dir.join("text.wav"), "no sound").unwrap();
    std::fs::write(dir.join("empty.wav"), "").unwrap();
    let whole = std::fs::read(dir.join("x.wav")).unwrap();
    std::fs::write(dir.join("cut.wav"), &whole[..whole.len() / 2]).unwrap();
    for (file, part) in [
        ("text.wav", "not a WAV, FLAC or Ogg Vorbis file"),
        ("empty.wav", "empty.wav: "),
        ("cut.wav", "cut.wav: broken at "),
        ("none.wav", "none.wav: cannot open"),
        ("run", "run: "),
    ] {
        let ran = run(dir, &["transcribe", "run", file, "x.wav"]);
        assert_eq!(
            (ran.code, ran.stdout.lines().count()),
            (Some(1), 1),
            "{file}: {}",
            ran.stderr
        );
        assert!(ran.stderr.contains(part), "{file}: {}", ran.stderr);
    }
    for (args, code, part) in [
        (&["transcribe", "run"][..], 2, "<FILE>"),
        (&["transcribe", "run", "--beam", "0", "x.wav"], 2, "--beam"),
        (&["transcribe", "run", "--lm-weight", "1", "x.wav"], 2, "--lm"),
        (
            &["transcribe", "run", "--letter-bonus", "1", "x.wav"],
            2,
            "add --beam N",
        ),
        (&["transcribe", "run", "--lm", "x.wav", "x.wav"], 1, "x.wav"),
        (&["transcribe", "nowhere", "x.wav"], 1, "nowhere"),
        (&["generate", "run"], 2, "is no language model"),
    ] {
        run(dir, args).fails(code, &[part]);
    }
}

#[test]
fn made_up_speech_is_trained_on_and_transcribed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let train = |out: &str, threads: &str| {
        let args = [
            "train",
            "deepspeech2",
            "--synthetic",
            "24",
            "--batch",
            "8",
            "--epochs",
            "2",
            "--out",
            out,
            "--threads",
            threads,
        ];
        succeeds(dir, &args);
        std::fs::read(dir.join(out).join("last.safetensors")).unwrap()
    };
    assert!(train("one", "1") == train("two", "2"), "bits depend on threads");
    let eval = succeeds(dir, &["eval", "-w", "one", "--synthetic", "24"]).stdout;
    assert!(eval.contains("5 utterances") && eval.contains("CER"), "{eval}");
    wav(&dir.join("a.wav"), "a b", 16000);
    let told = succeeds(dir, &["transcribe", "one", "a.wav"]).stdout;
    assert!(told.starts_with("a.wav: ") && told.lines().count() == 1, "{told}");
    let resumed = [
        "verify-resume",
        "deepspeech2",
        "--synthetic",
        "60",
        "--batch",
        "4",
        "--steps",
        "20",
    ];
    assert!(succeeds(dir, &resumed).stdout.contains("1 of 1 runs"));
    // The run of another network is told apart.
    succeeds(
        dir,
        &["train", "mlp", "--synthetic", "20", "--epochs", "1", "--out", "mlp"],
    );
    run(dir, &["transcribe", "mlp", "a.wav"]).fails(2, &["writes down no speech", "deepspeech2"]);
}

#[test]
fn broken_sound_names_the_line_of_the_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    speech(dir, 20);
    let args = [
        "train",
        "deepspeech2",
        "--data",
        "speech",
        "--batch",
        "4",
        "--max-steps",
        "4",
        "--out",
        "run",
    ];
    std::fs::write(dir.join("speech/2.wav"), "no sound").unwrap();
    run(dir, &args).fails(1, &["manifest.tsv: line 4: ", "2.wav: not a WAV"]);
    std::fs::remove_file(dir.join("speech/5.wav")).unwrap();
    let missing = [
        "train",
        "deepspeech2",
        "--data",
        "speech",
        "--batch",
        "4",
        "--max-steps",
        "4",
        "--out",
        "other",
    ];
    run(dir, &missing).fails(1, &["manifest.tsv: line 7: ", "5.wav: cannot open"]);
    let told = succeeds(dir, &[&missing[..], &["--skip-bad"]].concat());
    assert!(
        told.stdout.contains("14 utterances to train"),
        "{}{}",
        told.stdout,
        told.stderr
    );
    run(dir, &["train", "deepspeech2"]).fails(2, &["deepspeech2 needs speech", "--data manifest.tsv"]);
}
