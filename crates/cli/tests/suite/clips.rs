//! Networks of clips: trained on folders of frames, GIF and Y4M files, measured, and asked.

use crate::common::{png_size, run, succeeds};
use std::path::Path;

/// A Y4M file of eight grey frames of 16×16 of these shades.
fn film(shade: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut file = b"YUV4MPEG2 W16 H16 F25:1 Cmono\n".to_vec();
    for frame in 0..8 {
        file.extend(b"FRAME\n");
        file.extend([shade(frame); 256]);
    }
    file
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// A folder of as many grey frames.
fn frames(dir: &Path, name: &str, count: u8) {
    for number in 0..count {
        let path = dir.join(format!("{name}/{number}.png"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), 1, 1);
        encoder.set_color(png::ColorType::Grayscale);
        encoder
            .write_header()
            .unwrap()
            .write_image_data(&[20 * number])
            .unwrap();
    }
}

#[test]
fn clips_are_learned_measured_and_classified() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for part in ["train", "test"] {
        for number in 0..4u8 {
            write(
                dir,
                &format!("films/{part}/brighter/{number}.y4m"),
                &film(|frame| 20 * frame + 5 * number),
            );
            write(
                dir,
                &format!("films/{part}/darker/{number}.y4m"),
                &film(|frame| 200 - 20 * frame - 5 * number),
            );
        }
        frames(dir, &format!("films/{part}/brighter/frames"), 8);
    }
    let train = [
        "train",
        "conv-lstm",
        "--data",
        "films",
        "--epochs",
        "6",
        "--batch",
        "3",
        "--out",
        "run",
        "--report",
    ];
    let told = succeeds(dir, &train).stdout;
    assert!(
        told.contains("the clips of films: ") && told.contains("9 clips to train, 9 held back"),
        "{told}"
    );
    assert!(told.contains("clips/s"), "{told}");
    let measured = succeeds(dir, &["eval", "-w", "run", "--data", "films", "--json"])
        .json()
        .remove(0);
    assert!(
        measured["accuracy"].is_number() && measured["balanced_accuracy"].is_number(),
        "{measured}"
    );

    frames(dir, "short", 7);
    let predict = [
        "predict",
        "-w",
        "run",
        "--out",
        "sheet.png",
        "--json",
        "films/test/darker/0.y4m",
        "short",
        "films/test/brighter/frames",
    ];
    let ran = run(dir, &predict);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("short: number of frames") && ran.stderr.contains("8 or more"),
        "{}",
        ran.stderr
    );
    let answers = ran.json();
    let clips: Vec<&str> = answers.iter().map(|answer| answer["clip"].as_str().unwrap()).collect();
    assert_eq!(clips, ["films/test/darker/0.y4m", "films/test/brighter/frames"]);
    for answer in &answers {
        assert!(
            ["brighter", "darker"].contains(&answer["class"].as_str().unwrap()),
            "{answer}"
        );
    }
    let (width, height) = png_size(&dir.join("sheet.png"));
    assert!(width > 256 && height > 64, "two strips of frames: {width}x{height}");
    run(dir, &["predict", "-w", "run"]).fails(2, &["<FILE> is missing", "GIF or Y4M files, or folders of frames"]);
    // A network of another number of classes, and what is too short in the data.
    write(dir, "films/test/still/0.y4m", &film(|_| 99));
    run(dir, &["eval", "-w", "run", "--data", "films"]).fails(1, &["films/test", "brighter, darker, still"]);
    frames(dir, "films/train/darker/short", 3);
    std::fs::remove_dir_all(dir.join("films/test/still")).unwrap();
    let again = |out| ["train", "conv-lstm", "--data", "films", "--epochs", "1", "--out", out];
    run(dir, &again("refused")).fails(1, &["films/train/darker/short", "found 3, expected 8 or more"]);
    let told = succeeds(dir, &[&again("skipped")[..], &["--skip-bad"]].concat()).stdout;
    assert!(told.contains("9 clips to train"), "{told}");
}

#[test]
fn moving_digits_need_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let train = [
        "train",
        "r3d-small",
        "--max-steps",
        "1",
        "--batch",
        "4",
        "--valid-batch",
        "200",
        "--out",
        "run",
    ];
    let told = succeeds(dir, &train).stdout;
    assert!(told.contains("1,600 clips to train, 400 held back"), "{told}");
    run(dir, &["train", "r3d-18"]).fails(2, &["needs a folder of clips", "--data videos"]);
    let synthetic = succeeds(
        dir,
        &[
            "train",
            "conv-lstm",
            "--synthetic",
            "8",
            "--epochs",
            "1",
            "--out",
            "other",
        ],
    )
    .stdout;
    assert!(synthetic.contains("made-up clips"), "{synthetic}");
}
