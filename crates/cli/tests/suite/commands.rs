//! Tests of `kiln eval`, `predict` and `summary`, and of output that is lost.

use crate::common::{Ran, kiln, png_size, run, succeeds, write_png};
use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::Stdio;

fn train(dir: &Path, model: &str) {
    succeeds(
        dir,
        &[
            "train",
            model,
            "--synthetic",
            "40",
            "--epochs",
            "1",
            "--batch",
            "8",
            "--out",
            model,
        ],
    );
}

#[test]
fn saved_weights_are_measured_and_predict() {
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), "mnist-cnn");
    let weights = "mnist-cnn/last.safetensors";
    let eval = ["eval", "-w", weights, "--synthetic", "40"];
    let lines = succeeds(dir.path(), &[&eval[..], &["--json"]].concat()).json();
    assert_eq!(
        (lines.len(), &lines[0]["samples"], &lines[0]["model"]),
        (1, &8.into(), &"mnist-cnn".into())
    );
    let confusion = lines[0]["confusion"].as_array().unwrap();
    let counts = confusion.iter().flat_map(|row| row.as_array().unwrap());
    assert_eq!(counts.map(|c| c.as_u64().unwrap()).sum::<u64>(), 8);
    let right: u64 = (0..10).map(|c| confusion[c][c].as_u64().unwrap()).sum();
    assert_eq!(lines[0]["accuracy"], right as f64 / 8.0);
    // The validation of the run had the same weights and the same images.
    let history = std::fs::read_to_string(dir.path().join("mnist-cnn/history.jsonl")).unwrap();
    let history: serde_json::Value = serde_json::from_str(history.lines().last().unwrap()).unwrap();
    assert_eq!(lines[0]["loss"], history["valid"]["loss"]);
    let text = succeeds(dir.path(), &eval).stdout;
    assert!(text.contains("accuracy") && text.contains("is \\ taken for"), "{text}");

    // The same stroke, white on black at MNIST's size, and black on white at twice that size.
    let stroke = |x: u32, y: u32| (12..16).contains(&x) && (4..24).contains(&y);
    write_png(
        &dir.path().join("a.png"),
        28,
        28,
        |x, y| if stroke(x, y) { 255 } else { 0 },
    );
    write_png(&dir.path().join("b.png"), 56, 56, |x, y| {
        if stroke(x / 2, y / 2) { 0 } else { 255 }
    });
    let predict = ["predict", "-w", weights, "--top", "10", "--json", "a.png", "b.png"];
    let lines = succeeds(dir.path(), &predict).json();
    assert_eq!(lines.len(), 2);
    let total: f64 = lines[0]["top"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["probability"].as_f64().unwrap())
        .sum();
    assert!((total - 1.0).abs() < 1e-5, "{total}");
    assert_eq!(lines[0]["top"], lines[1]["top"], "one stroke, two files");

    run(dir.path(), &["predict", "-w", weights, "missing.png"]).fails(1, &["missing.png"]);
    let some = run(dir.path(), &["predict", "-w", weights, "a.png", "missing.png", "b.png"]);
    some.fails(1, &["missing.png"]);
    let shown: Vec<&str> = some.stdout.lines().map(|l| &l[..7]).collect();
    assert_eq!(shown, ["a.png: ", "b.png: "]);
    // A sheet has those that can be read.
    let sheet = [
        "predict",
        "-w",
        weights,
        "--top",
        "2",
        "--out",
        "sheet.png",
        "a.png",
        "missing.png",
        "b.png",
    ];
    let drawn = run(dir.path(), &sheet);
    drawn.fails(1, &["missing.png"]);
    assert!(drawn.stdout.ends_with("saved: sheet.png\n"), "{}", drawn.stdout);
    let (width, height) = png_size(&dir.path().join("sheet.png"));
    assert!(width > 2 * 112 && (130..200).contains(&height), "{width}x{height}");
    std::fs::write(dir.path().join("c.png"), b"no image").unwrap();
    run(dir.path(), &["predict", "-w", weights, "c.png"]).fails(1, &["c.png", "PNG", "JPEG"]);
    run(dir.path(), &["predict", "-w", weights]).fails(2, &["<FILE>"]);
    run(dir.path(), &["eval", "-w", weights, "--model", "lenet", "--synthetic"]).fails(1, &["do not fit", "--model"]);
}

#[test]
fn broken_weights_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), "lenet");
    let eval = |file: &str| run(dir.path(), &["eval", "-w", file, "--synthetic", "20"]);
    eval("missing.safetensors").fails(1, &["missing.safetensors"]);
    let whole = std::fs::read(dir.path().join("lenet/best.safetensors")).unwrap();
    for (name, bytes) in [
        ("cut", &whole[..whole.len() / 2]),
        ("empty", &[][..]),
        ("text", b"weights"),
    ] {
        std::fs::write(dir.path().join(name), bytes).unwrap();
        eval(name).fails(1, &[name, "not a valid safetensors file"]);
    }
    let predicted = succeeds(
        dir.path(),
        &["eval", "-w", "lenet/best.safetensors", "--synthetic", "20"],
    );
    assert!(
        predicted.stdout.contains("lenet on made-up images"),
        "{}",
        predicted.stdout
    );
}

#[test]
fn summaries_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let lines = succeeds(dir.path(), &["summary", "mnist-cnn", "--json"]).json();
    assert_eq!(lines[0]["parameters"], 93_322);
    assert_eq!(lines[0]["parameter_bytes"], 4 * 93_322);
    // Multiply-adds of the three convolutions and the two dense layers, counted as two.
    let products: u64 = 26 * 26 * 32 * 9 + 11 * 11 * 64 * 288 + 3 * 3 * 64 * 576 + 576 * 64 + 640;
    assert_eq!(lines[0]["forward_flops"], 2 * products);
    let layers = lines[0]["layers"].as_array().unwrap();
    let paths: Vec<&str> = layers.iter().map(|l| l["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths,
        [
            "conv1", "pool1", "conv2", "pool2", "conv3", "flatten", "dense1", "dense2"
        ]
    );
    assert_eq!(layers[0]["output"], serde_json::json!([1, 26, 26, 32]));
    let parameters: u64 = layers.iter().map(|l| l["parameters"].as_u64().unwrap()).sum();
    assert_eq!(parameters, 93_322);
    let values = 26 * 26 * 32 + 13 * 13 * 32 + 11 * 11 * 64 + 5 * 5 * 64 + 3 * 3 * 64 + 576 + 64 + 10;
    assert_eq!(lines[0]["layer_output_bytes"], 4 * values);
    let text = succeeds(dir.path(), &["summary", "lenet", "--batch", "4"]).stdout;
    assert!(
        text.contains("outputs of all layers: ") && !text.contains("backward"),
        "{text}"
    );
    assert!(
        text.contains("conv1 (Conv2d)") && text.contains("[4, 28, 28, 6]") && text.contains("62,006"),
        "{text}"
    );
}

/// Every model has a summary.
#[test]
fn every_model_has_a_summary() {
    let dir = tempfile::tempdir().unwrap();
    let of = |model| succeeds(dir.path(), &["summary", model, "--json"]).json().remove(0);
    // Multiply-adds of the stem, sixteen convolutions, three shortcuts and the dense layer, counted as two.
    let stage = |side: u64, c: u64| side * side * c * (c / 2 * 9 + 3 * c * 9 + c / 2);
    let stem = 32 * 32 * 64 * 27 + 4 * 32 * 32 * 64 * 64 * 9;
    let products = stem + stage(16, 128) + stage(8, 256) + stage(4, 512) + 5120;
    let resnet = of("resnet18");
    assert_eq!(
        (&resnet["parameters"], &resnet["forward_flops"]),
        (&11_173_962.into(), &(2 * products).into())
    );
    let gpt = of("gpt-mini");
    assert_eq!(
        (&gpt["parameters"], &gpt["input_bytes"]),
        (&10_795_776.into(), &(4 * 256).into())
    );
    let unknown = run(dir.path(), &["summary", "resnet"]);
    unknown.fails(2, &["mnist-cnn, lenet, resnet18, vgg11, gpt-mini"]);
}

/// An output to `/dev/full`, which refuses every byte as a full disk does.
#[cfg(target_os = "linux")]
fn full() -> Stdio {
    Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_is_lost_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let train = ["train", "lenet", "--synthetic", "8", "--epochs", "1", "--out", "run"];
    for args in [
        &["devices"][..],
        &["summary", "lenet", "--json"],
        &["--help"],
        &[&train[..], &["--json"]].concat()[..],
    ] {
        let output = kiln(dir.path(), args).stdout(full()).output().unwrap();
        Ran::of(output).fails(1, &["cannot write to standard output"]);
    }
    // The run itself has saved its weights.
    assert!(dir.path().join("run/last.safetensors").is_file());
    for (args, code) in [(&["eval", "-w", "missing"][..], 1), (&["eval"], 2)] {
        let status = kiln(dir.path(), args).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_went_away_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = kiln(dir.path(), &["devices"]).stdout(writer).output().unwrap();
    let ran = Ran::of(output);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}
