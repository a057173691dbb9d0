//! Tests of the commands about settings and several runs: learning rates, sweeps, differences, averages.

use crate::common::{names, run, succeeds};
use std::path::Path;

const SHORT: [&str; 10] = [
    "mnist-cnn",
    "--synthetic",
    "40",
    "--batch",
    "8",
    "--epochs",
    "2",
    "--device",
    "cpu",
    "--json",
];

fn train(dir: &Path, more: &[&str]) {
    succeeds(dir, &[&["train"], &SHORT[..], more].concat());
}

#[test]
fn a_sweep_runs_every_combination_and_ranks_them() {
    let dir = tempfile::tempdir().unwrap();
    let over = ["--over", "optimizer.lr=1e-3,1e-6", "--over", "seed=0,1", "--out", "all"];
    let sweep = [&["sweep"], &SHORT[..], &over].concat();
    let lines = succeeds(dir.path(), &sweep).json();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        lines[3]["settings"],
        serde_json::json!({ "optimizer.lr": "1e-6", "seed": "1" })
    );
    let folder = dir.path().join("all");
    assert_eq!(names(&folder), ["1", "2", "3", "4", "sweep.csv"]);
    let table = std::fs::read_to_string(folder.join("sweep.csv")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["run", "optimizer.lr", "seed", "accuracy", "epoch", "seconds"]);
    let accuracies: Vec<f64> = rows[1..].iter().map(|row| row[3].parse().unwrap()).collect();
    assert!(accuracies.is_sorted_by(|a, b| a >= b), "{accuracies:?}");
    // The same run on its own, and a sweep that goes on where it was stopped.
    train(dir.path(), &["--lr", "1e-6", "--seed", "1", "--out", "lone"]);
    let weights = |run: &str| std::fs::read(dir.path().join(run).join("last.safetensors")).unwrap();
    assert!(weights("lone") == weights("all/4"));
    std::fs::remove_dir_all(folder.join("2")).unwrap();
    std::fs::remove_dir_all(folder.join("3")).unwrap();
    let mut again = succeeds(dir.path(), &[&sweep[..], &["--jobs", "2"]].concat()).json();
    again.sort_by(|a, b| a["run"].as_str().cmp(&b["run"].as_str()));
    assert!(
        again.iter().zip(&lines).all(|(a, b)| a["best"] == b["best"]),
        "{again:?}"
    );
    let other = [&["sweep"], &SHORT[..], &["--over", "optimizer.lr=0.5", "--out", "all"]].concat();
    let refused = run(dir.path(), &other);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.json()[0]["error"]
            .as_str()
            .unwrap()
            .contains("another `optimizer.lr`"),
        "{}",
        refused.stdout
    );

    let draws = [
        &["sweep"],
        &SHORT[..],
        &["--over", "optimizer.lr=1e-4..1e-2", "--random", "2", "--out", "drawn"],
    ]
    .concat();
    assert_eq!(succeeds(dir.path(), &draws).json().len(), 2);
    let endless = [&["sweep"], &SHORT[..], &["--over", "optimizer.lr=1e-4..1e-2"]].concat();
    run(dir.path(), &endless).fails(2, &["a range has no end", "help: ", "--random"]);
}

#[test]
fn a_difference_shows_settings_epochs_and_weights() {
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), &["--out", "a"]);
    train(dir.path(), &["--out", "same"]);
    train(dir.path(), &["--out", "b", "--lr", "0.01", "--max-steps", "3"]);
    let same = succeeds(dir.path(), &["diff", "a", "same"]).stdout;
    for part in ["settings: all equal", "weights: all 10 tensors are equal"] {
        assert!(same.contains(part), "no `{part}` in: {same}");
    }
    let told = succeeds(dir.path(), &["diff", "a", "b"]).stdout;
    for part in [
        "optimizer.lr  0.001  0.01",
        "max_steps         -     3",
        "loss a",
        "accuracy b",
        "weights: 10 of 10 tensors differ",
    ] {
        assert!(told.contains(part), "no `{part}` in: {told}");
    }
    let json = succeeds(dir.path(), &["diff", "a", "b", "--json"]).json().remove(0);
    assert_eq!(
        json["settings"],
        serde_json::json!({ "optimizer.lr": [0.001, 0.01], "max_steps": [null, 3] })
    );
    assert_eq!(
        (&json["weights"]["differing"], &json["weights"]["tensors"]),
        (&10.into(), &10.into())
    );
    run(dir.path(), &["diff", "a", "nowhere"]).fails(1, &["nowhere/config.json", "help: "]);
}

#[test]
fn an_average_is_the_mean_of_weights() {
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), &["--out", "a"]);
    train(dir.path(), &["--out", "b", "--seed", "1"]);
    let told = succeeds(
        dir.path(),
        &["average", "a", "b/last.safetensors", "-o", "mean.safetensors"],
    )
    .stdout;
    assert!(
        told.contains("mean.safetensors: the mean of 2 files, 10 tensors"),
        "{told}"
    );
    let read = |path: &str| floats(&std::fs::read(dir.path().join(path)).unwrap());
    let (a, b, mean) = (
        read("a/best.safetensors"),
        read("b/last.safetensors"),
        read("mean.safetensors"),
    );
    assert_eq!(mean.len(), a.len());
    for ((a, b), mean) in a.iter().zip(&b).zip(&mean) {
        assert!(((f64::from(*a) + f64::from(*b)) / 2.0 - f64::from(*mean)).abs() < 1e-7);
    }
    succeeds(dir.path(), &["eval", "-w", "mean.safetensors", "--synthetic", "8"]);
    succeeds(
        dir.path(),
        &["train", "lenet", "--synthetic", "8", "--epochs", "1", "--out", "c"],
    );
    run(dir.path(), &["average", "a", "c", "-o", "x"]).fails(1, &["is not in the first file", "one model"]);
}

/// The floats of a safetensors file, in the order of the file.
fn floats(bytes: &[u8]) -> Vec<f32> {
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let floats = bytes[8 + header..].chunks_exact(4);
    floats
        .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
        .collect()
}

#[test]
fn a_learning_rate_is_found_and_plotted() {
    let dir = tempfile::tempdir().unwrap();
    let find = [
        "find-lr",
        "mnist-cnn",
        "--synthetic",
        "200",
        "--batch",
        "8",
        "--steps",
        "60",
        "--device",
        "cpu",
    ];
    let told = succeeds(dir.path(), &[&find[..], &["--plot", "lr.svg"]].concat()).stdout;
    for part in ["smoothed loss", "learning rate", "suggested: --lr ", "saved: lr.svg"] {
        assert!(told.contains(part), "no `{part}` in: {told}");
    }
    assert!(
        std::fs::read_to_string(dir.path().join("lr.svg"))
            .unwrap()
            .contains("<polyline")
    );
    assert_eq!(names(dir.path()), ["lr.svg"]);
    let json = succeeds(dir.path(), &[&find[..], &["--json"]].concat())
        .json()
        .remove(0);
    let lr = json["suggestion"].as_f64().unwrap();
    assert!((1e-6..=1.0).contains(&lr), "{lr}");
    run(dir.path(), &[&find[..], &["--min", "1", "--max", "0.1"]].concat())
        .fails(2, &["range.max", "above the smallest"]);
}
