//! Event files that TensorBoard's own reader has read: `golden/run`, and in `golden/events.json` what it saw.

use super::reader::{events, files};
use kiln_tensorboard::SummaryWriter;
use serde_json::Value;
use std::path::Path;

const SCALARS: [(&str, f64, u64); 6] = [
    ("loss/train", 0.5, 0),
    ("loss/train", 0.0, 10),
    ("loss/train", f64::INFINITY, 20),
    ("loss/train", 0.125, 300),
    ("loss/valid", -2.5, 10),
    ("Überschrift, \"quoted\"", 1e-3, 1 << 40),
];
const VALUES: [f32; 7] = [0.0, -1.5, 2.0, 2.0, 0.25, -16.0, 3.0];
const TEXT: &str = "| setting | value |\n|---|---|\n| lr | 0.001 |\n";

/// Writes the events of two files, the second of which hides the steps from 20 on.
fn write(folder: &Path) {
    let mut first = SummaryWriter::builder(folder).wall_time(1.5).create().unwrap();
    for (tag, value, step) in SCALARS {
        first.add_scalar(tag, value, step).unwrap();
    }
    first.add_text("config", TEXT, 0).unwrap();
    first.add_histogram("weight", &VALUES, 3).unwrap();
    first.add_histogram("zero", &[0.0], 3).unwrap();
    first
        .add_image("grey", &[0.0_f32, 0.5, 2.0, -1.0, 1.0, f32::NAN], [2, 3, 1], 4)
        .unwrap();
    let bytes: Vec<u8> = (0..12).map(|i| 20 * i).collect();
    first.add_image("colours", &bytes, [2, 2, 3], 4).unwrap();
    first.flush().unwrap();
    let mut second = SummaryWriter::builder(folder)
        .wall_time(1.5)
        .purge_step(20)
        .filename_suffix(".resumed")
        .create()
        .unwrap();
    second.add_scalar("loss/train", 0.25, 20).unwrap();
}

#[test]
fn files_are_those_that_tensorboard_has_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/run");
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("a/run");
    write(&run);
    let written = files(&run);
    assert_eq!(written.len(), 2);
    for (number, path) in (1..).zip(&written) {
        let name = format!("events.out.tfevents.{number:010}");
        let actual = path.file_name().unwrap().to_str().unwrap();
        assert!(actual.starts_with(&format!("{name}.")), "{actual}");
        if std::env::var_os("KILN_WRITE_GOLDEN").is_some() {
            std::fs::copy(path, golden.join(&name)).unwrap();
        }
        assert!(
            std::fs::read(path).unwrap() == std::fs::read(golden.join(&name)).unwrap(),
            "{name}"
        );
    }
    assert!(written[1].to_str().unwrap().ends_with(".resumed"));
    let second = events(&written[1]);
    assert_eq!(second.iter().map(|e| e.step).collect::<Vec<_>>(), [0, 20, 20, 20]);
    assert!(second[2].purges);
}

#[test]
fn tensorboard_saw_what_was_written() {
    let seen: Value = serde_json::from_str(include_str!("../golden/events.json")).unwrap();
    // Steps 20 and 300 of the first file are hidden by the second.
    assert_eq!(
        seen["scalars"]["loss/train"],
        serde_json::json!([[0, 0.5], [10, 0.0], [20, 0.25]])
    );
    assert_eq!(seen["scalars"]["loss/valid"], serde_json::json!([[10, -2.5]]));
    assert_eq!(seen["texts"]["config"], serde_json::json!([[0, TEXT]]));
    let histogram = &seen["histograms"]["weight"][0];
    assert_eq!(histogram["step"], 3);
    assert_eq!((&histogram["min"], &histogram["max"]), (&(-16.0).into(), &3.0.into()));
    assert_eq!(histogram["num"], 7.0);
    assert_eq!(histogram["sum"], VALUES.map(f64::from).iter().sum::<f64>());
    assert_eq!(
        seen["images"]["grey"],
        serde_json::json!([[4, 2, 3, [[0, 127, 255], [0, 255, 0]]]])
    );
    let colours = serde_json::json!([[[0, 20, 40], [60, 80, 100]], [[120, 140, 160], [180, 200, 220]]]);
    assert_eq!(seen["images"]["colours"], serde_json::json!([[4, 2, 2, colours]]));
    // PyTorch's own writer gives the same bytes for scalars, texts and histograms.
    assert_eq!(seen["equal_to_pytorch"], true);
}

#[test]
fn wrong_values_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = SummaryWriter::new(dir.path()).unwrap();
    let wrong = [
        writer.add_histogram("w", &[], 0).unwrap_err(),
        writer.add_histogram("w", &[f32::NAN, 1.0], 0).unwrap_err(),
        writer.add_image("w", &[0u8; 4], [2, 1, 2], 0).unwrap_err(),
        writer.add_image("w", &[0u8; 4], [2, 2, 3], 0).unwrap_err(),
        writer.add_image("w", &[0u8; 0], [0, 2, 3], 0).unwrap_err(),
        writer.add_image("w", &[0u8; 4], [usize::MAX, 2, 1], 0).unwrap_err(),
    ];
    for error in wrong {
        assert!(error.to_string().contains("`w`"), "{error}");
    }
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = SummaryWriter::new(&file).unwrap_err().to_string();
    assert!(error.contains("cannot create the folder"), "{error}");
}
