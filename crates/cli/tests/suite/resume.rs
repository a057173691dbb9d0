//! Tests of resumed runs and of files of settings.

use crate::common::{kiln, names, run, succeeds};
use serde_json::Value;
use std::path::Path;

/// A short run with an optimizer that has a state, dropout, accumulation and an incomplete last step in each epoch.
const SHORT: [&str; 12] = [
    "mnist-cnn",
    "--synthetic",
    "44",
    "--batch",
    "4",
    "--accumulate",
    "2",
    "--epochs",
    "3",
    "--device",
    "cpu",
    "--json",
];

fn weights(dir: &Path, run: &str) -> Vec<u8> {
    std::fs::read(dir.join(run).join("last.safetensors")).unwrap()
}

/// The lines of a run's history without times.
fn history(dir: &Path, run: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join(run).join("history.jsonl")).unwrap();
    let timeless = |line| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let times = ["seconds", "waiting", "samples_per_second", "execution", "machine"];
        record
            .as_object_mut()
            .unwrap()
            .retain(|key, _| !times.contains(&key.as_str()));
        record
    };
    text.lines().map(timeless).collect()
}

#[test]
fn killed_runs_go_on_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    for more in [
        &["--steps", "12", "--runs", "2", "--kills", "2", "--ema", "0.9"][..],
        &[
            "--steps",
            "12",
            "--checkpoint-steps",
            "1",
            "--kills",
            "4",
            "--during-save",
            "--swa",
            "2",
            "--out",
            "runs",
        ],
    ] {
        let lines = succeeds(
            dir.path(),
            &[&["verify-resume", "--schedule", "cosine"], &SHORT[..], more].concat(),
        )
        .json();
        let (end, runs) = lines.split_last().unwrap();
        assert_eq!(
            (&end["event"], &end["equal"], &end["steps"]),
            (&"end".into(), &end["runs"], &12.into())
        );
        assert!(runs.iter().all(|run| run["found"] == "equal"), "{runs:?}");
        assert!(end["kills"].as_u64() >= Some(1));
    }
    assert_eq!(history(dir.path(), "runs/whole"), history(dir.path(), "runs/killed-1"));
}

#[test]
fn runs_that_cannot_be_compared_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("runs/whole/theirs")).unwrap();
    let verify = [&["verify-resume"], &SHORT[..], &["--steps", "6", "--out", "runs"]].concat();
    run(dir.path(), &verify).fails(1, &["the run runs/whole failed", "already holds"]);
    let lone = [&["verify-resume"], &SHORT[..], &["--steps", "1"]].concat();
    run(dir.path(), &lone).fails(2, &["ends after 1 step", "help: "]);
}

#[test]
fn a_run_is_resumed_with_more_epochs_and_on_other_threads() {
    let dir = tempfile::tempdir().unwrap();
    let train = |args: &[&str]| succeeds(dir.path(), &[&["train"], args].concat()).json();
    train(&[&SHORT[..], &["--out", "whole"]].concat());
    train(&[&SHORT[..], &["--out", "parts", "--max-steps", "7"]].concat());
    assert_eq!(history(dir.path(), "parts").len(), 2);
    let lines = train(&[
        "--resume",
        "parts",
        "--max-steps",
        "100",
        "--threads",
        "1",
        "--workers",
        "0",
        "--json",
    ]);
    assert_eq!(
        lines[0]["resumed"],
        serde_json::json!({ "epoch": 2, "batch": 2, "step": 7 })
    );
    let again = succeeds(dir.path(), &["train", "--resume", "parts"]).stdout;
    assert!(again.contains("resumed after step 18: epoch 4, batch 0"), "{again}");
    assert!(weights(dir.path(), "parts") == weights(dir.path(), "whole"));
    assert_eq!(history(dir.path(), "parts"), history(dir.path(), "whole"));
}

#[test]
fn runs_that_cannot_go_on_say_why() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(dir.path(), &[&["train"], &SHORT[..], &["--out", "run"]].concat());
    let resume = |more: &[&str]| run(dir.path(), &[&["train", "--resume", "run"], more].concat());
    resume(&["--lr", "0.5"]).fails(
        2,
        &["`optimizer.lr` is a setting of the run", "help: ", "epochs, max_steps"],
    );
    resume(&["--seed", "1"]).fails(2, &["`seed`"]);
    resume(&["lenet"]).fails(2, &["cannot be used with"]);
    resume(&["--out", "other"]).fails(2, &["cannot be used with"]);
    run(dir.path(), &["train", "--resume", "nowhere"]).fails(1, &["nowhere", "help: ", "run folder"]);
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    run(dir.path(), &["train", "--resume", "empty"]).fails(1, &["config.json"]);
    assert_eq!(names(&dir.path().join("empty")), [""; 0]);
    for entry in std::fs::read_dir(dir.path().join("run")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("checkpoint-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    resume(&[]).fails(1, &["holds no checkpoint", "help: ", "--config run/config.json"]);
    // The record of a run is a file of settings.
    succeeds(dir.path(), &["train", "--config", "run/config.json", "--out", "again"]);
    assert!(weights(dir.path(), "run") == weights(dir.path(), "again"));
}

#[test]
fn a_text_that_changed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(dir.path().join("text.txt"), text.repeat(60)).unwrap();
    write("the quick brown fox jumps over the lazy dog ");
    let args = [
        "train",
        "gpt-mini",
        "--data",
        "text.txt",
        "--batch",
        "2",
        "--max-steps",
        "1",
        "--out",
        "run",
    ];
    succeeds(dir.path(), &args);
    write("the quick brown cat jumps over the lazy dog.");
    run(dir.path(), &["train", "--resume", "run", "--max-steps", "2"])
        .fails(1, &["the data is other than when the run began"]);
}

#[test]
fn settings_are_read_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = "
        model = 'mnist-cnn'
        batch = 4
        accumulate = 2
        epochs = 5
        [data]
        synthetic = 44
        [optimizer]
        schedule = 'constant'
        [device]
        name = 'cpu'
    ";
    std::fs::write(dir.path().join("run.toml"), file).unwrap();
    succeeds(
        dir.path(),
        &[&["train", "--schedule", "cosine"], &SHORT[..], &["--out", "flags"]].concat(),
    );
    let set = ["--set", "optimizer.schedule=cosine", "--epochs", "3", "--out", "file"];
    let told = succeeds(dir.path(), &[&["train", "--config", "run.toml"], &set[..]].concat()).stdout;
    assert!(told.contains("3 epochs"), "{told}");
    assert!(weights(dir.path(), "flags") == weights(dir.path(), "file"));
    let config = |run: &str| std::fs::read_to_string(dir.path().join(run).join("config.json")).unwrap();
    assert_eq!(config("flags"), config("file"));

    std::fs::write(dir.path().join("wrong.toml"), "model = 'lenet'\nepoch = 5\n").unwrap();
    let wrong = |args: &[&str], parts: &[&str]| run(dir.path(), &[&["train"], args].concat()).fails(2, parts);
    wrong(
        &["--config", "wrong.toml"],
        &["wrong.toml: there is no setting `epoch`", "did you mean `epochs`?"],
    );
    wrong(
        &["lenet", "--set", "batch=0"],
        &["--set batch=0: expected a whole number from 1"],
    );
    wrong(
        &["lenet", "--set", "ema=0.9", "--swa", "2"],
        &["--ema and --swa", "choose one"],
    );
    wrong(
        &["lenet", "--update-bn"],
        &["--update-bn is for averaged weights", "--swa"],
    );
    let missing = kiln(dir.path(), &["train", "--config", "none.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn a_run_and_what_goes_on_with_it_write_event_files() {
    let dir = tempfile::tempdir().unwrap();
    let start = [
        &["train"],
        &SHORT[..],
        &["--tensorboard", "--max-steps", "3", "--out", "run"],
    ]
    .concat();
    succeeds(dir.path(), &start);
    let board = dir.path().join("run/tensorboard");
    assert_eq!(names(&board).len(), 1);
    // The setting is one of the run, and may be changed.
    succeeds(dir.path(), &["train", "--resume", "run", "--max-steps", "6"]);
    let files = names(&board);
    assert_eq!(files.len(), 2);
    let holds = |file: &str, text: &str| {
        let bytes = std::fs::read(board.join(file)).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    for text in [
        "loss/step",
        "loss/train",
        "accuracy/valid",
        "weights/conv1.weight",
        "\"epochs\": 3",
    ] {
        assert!(files.iter().all(|file| holds(file, text)), "{text}");
    }
    succeeds(
        dir.path(),
        &["train", "--resume", "run", "--max-steps", "9", "--tensorboard=false"],
    );
    assert_eq!(names(&board).len(), 2);
}
