//! `kiln train --nan` and `kiln replay`.

use crate::common::{run, succeeds};
use std::path::Path;

const EXPLODES: [&str; 10] = [
    "train",
    "lenet",
    "--synthetic",
    "40",
    "--batch",
    "10",
    "--lr",
    "1e30",
    "--out",
    "run",
];

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap()
}

#[test]
fn a_run_that_overflows_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), &EXPLODES).fails(1, &["`kiln replay run/capsule-"]);
    let capsules = std::fs::read_dir(dir.path().join("run")).unwrap();
    let names = capsules.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let capsule = names
        .into_iter()
        .find(|n| n.starts_with("capsule-") && n.ends_with(".json"))
        .unwrap();
    let capsule = format!("run/{capsule}");
    // Weights of 1e29 overflow f32, and not f64.
    let text = succeeds(dir.path(), &["replay", &capsule]).stdout;
    for part in ["lenet, run/capsule-", "> ", "f64 max", "f64 stays finite, f32 does not"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let all = json(&succeeds(dir.path(), &["replay", &capsule, "--json"]).stdout);
    assert_eq!(
        (&all["verdict"], &all["f64"]["finite"]),
        (&"precision".into(), &true.into())
    );
    assert!(all["run"]["ops"].as_array().unwrap().len() > 20 && all["samples"].as_array().unwrap().len() == 10);
    assert_eq!(all["run"]["first"]["layer"], all["cause"]["place"]["op"]["layer"]);
    run(dir.path(), &["replay", &capsule, "--device", "cpu"]).fails(2, &["--device", "twin check"]);

    // The same step as one that a twin check has found: the CPU agrees with itself.
    let path = dir.path().join(&capsule);
    let mut found: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let deviation = "the forward pass of op `conv2d`: element 0 of [1] is 2, expected 1 to within 1e-5";
    let place = serde_json::json!({ "layer": "conv1", "op": "conv2d", "backward": false, "found": deviation });
    found["cause"]["place"] = serde_json::json!({ "twin": place });
    std::fs::write(path.with_file_name("found.json"), found.to_string()).unwrap();
    let text = succeeds(dir.path(), &["replay", "run/found.json"]).stdout;
    for part in [deviation, "cpu agrees with the CPU this time, in "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let all = json(&succeeds(dir.path(), &["replay", "run/found", "--device", "cpu", "--json"]).stdout);
    assert_eq!(
        (&all["verdict"], &all["deviation"]),
        (&"agrees".into(), &serde_json::Value::Null)
    );
    assert!(all["ops"].as_u64().unwrap() > 20, "{all}");
}

#[test]
fn what_is_no_capsule_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.json"), "{}").unwrap();
    run(dir.path(), &["replay", "a.json"]).fails(1, &["a.json", "capsule", "help: "]);
    run(dir.path(), &["replay", "none"]).fails(1, &["none.json", "help: "]);
}

fn epochs(dir: &Path, name: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(dir.join(name).join("history.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// With a rate that is too large for its first updates, steps are left out until the run has to end; both ways leave out the same.
#[test]
fn policies_are_flags_and_settings() {
    let dir = tempfile::tempdir().unwrap();
    let fine = ["train", "lenet", "--synthetic", "20", "--batch", "10", "--epochs", "1"];
    let weights = |name: &str, more: &[&str]| {
        succeeds(dir.path(), &[&fine[..], &["--out", name], more].concat());
        assert_eq!(epochs(dir.path(), name)[0]["skipped"], 0);
        std::fs::read(dir.path().join(name).join("last.safetensors")).unwrap()
    };
    let stop = weights("a", &["--nan", "stop"]);
    assert!(weights("b", &["--nan", "rollback", "--skip-nan", "2"]) == stop);
    assert!(weights("c", &["--set", "nan=\"skip\""]) == stop);
    run(dir.path(), &[&fine[..], &["--nan", "ignore"]].concat()).fails(2, &["--nan", "stop"]);
    let nan = ["--nan", "rollback", "--skip-nan", "2"];
    let ran = run(dir.path(), &[&EXPLODES[..], &nan].concat());
    // Warnings come before the error.
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for part in [
        "the run went back, and has left the step out",
        "error: step 4",
        "3 steps in a row",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}

/// Each time that a run goes back, its learning rate falls.
#[test]
fn going_back_lowers_the_learning_rate() {
    let dir = tempfile::tempdir().unwrap();
    let nan = [
        "--nan",
        "rollback",
        "--nan-lr",
        "1e-32",
        "--json",
        "--schedule",
        "constant",
        "--epochs",
        "1",
    ];
    let ran = run(dir.path(), &[&EXPLODES[..], &nan].concat());
    let epoch = ran
        .json()
        .into_iter()
        .find(|line| line["event"] == "epoch")
        .unwrap_or_else(|| panic!("{}", ran.stderr));
    let lr = epoch["lr"].as_f64().unwrap();
    assert!((lr / 1e-2 - 1.0).abs() < 1e-9 || lr < 1e-2, "{epoch}");
    assert!(
        ran.stderr.contains("the run went back") || epoch["skipped"] != 0,
        "{}",
        ran.stderr
    );
    for wrong in [
        &["--nan-lr", "0.5"][..],
        &["--nan", "skip", "--nan-lr", "0.5"],
        &["--nan", "rollback", "--nan-lr", "2"],
    ] {
        run(dir.path(), &[&EXPLODES[..], wrong].concat()).fails(2, &["--nan"]);
    }
}

/// The CPU agrees with itself, in every precision, and the check changes nothing.
#[test]
fn a_run_is_compared_with_its_twin() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "train",
        "mnist-cnn",
        "--synthetic",
        "40",
        "--batch",
        "10",
        "--epochs",
        "1",
    ];
    let weights = |name: &str, more: &[&str]| {
        let ran = succeeds(dir.path(), &[&args[..], &["--out", name], more].concat());
        let text = std::fs::read(dir.path().join(name).join("last.safetensors")).unwrap();
        (ran.stdout, text)
    };
    let (text, checked) = weights("a", &["--twin", "every=2"]);
    assert!(text.contains("twin: 2 steps compared with the CPU, "), "{text}");
    assert!(checked == weights("b", &[]).1);
    let (text, _) = weights("c", &["--set", "twin=every=3", "--precision", "bf16"]);
    assert!(text.contains("twin: 2 steps"), "{text}");
    run(dir.path(), &[&args[..], &["--twin", "500"]].concat()).fails(2, &["--twin", "every=N"]);
    let (text, warned) = weights("d", &["--twin", "every=2,warn"]);
    assert!(text.contains("within their bounds") && warned == checked, "{text}");
}

/// A run that has stopped for a NaN goes on from its last checkpoint with another policy.
#[test]
fn a_run_that_met_a_nan_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    // The first update makes weights that are finite, and too large for the second step.
    let ran = run(dir.path(), &[&EXPLODES[..], &["--checkpoint-steps", "1"]].concat());
    ran.fails(1, &["the loss is", "kiln train --resume run --nan rollback"]);
    let nan = ["--nan", "rollback", "--skip-nan", "1"];
    let ran = run(dir.path(), &[&["train", "--resume", "run"][..], &nan].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for part in ["step 2 (epoch 1, batch 2): ", "error: step 3", "2 steps in a row"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}
