//! Settings that name parameters and layers.

use crate::common::{run, succeeds};
use kiln_cpu::Cpu;
use kiln_nn::weights;
use std::path::Path;

/// A run of a few steps.
const SHORT: [&str; 9] = [
    "train",
    "lenet",
    "--synthetic",
    "40",
    "--batch",
    "8",
    "--device",
    "cpu",
    "--json",
];

fn bytes(dir: &Path, out: &str) -> Vec<u8> {
    std::fs::read(dir.join(out).join("last.safetensors")).unwrap()
}

fn tensor(dir: &Path, out: &str, name: &str) -> Vec<f32> {
    let (dict, _) = weights::read(dir.join(out).join("last.safetensors"), &Cpu::new()).unwrap();
    dict.float(name).unwrap().to_vec().unwrap()
}

#[test]
fn parameters_are_frozen_and_have_rates_of_their_own_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let toml = "freeze = [\"conv?\", \"fc1.bias\"]\nlog_grad_norm = \"layers\"\nepochs = 1\n\
        [optimizer]\nname = \"sgd\"\nlr = 0.05\nlr_for = [\"fc1=0\"]\ndecay_for = [\"*.bias=0\"]\n";
    std::fs::write(dir.path().join("run.toml"), toml).unwrap();
    let train = |out: &str, more: &[&str]| {
        let args = [&SHORT[..], &["--out", out], more].concat();
        succeeds(dir.path(), &args).json()
    };
    let lines = train("file", &["--config", "run.toml"]);
    let epoch = &lines[1]["train"];
    assert!(
        epoch["grad_norm"].as_f64() <= epoch["grad_norm_max"].as_f64(),
        "{epoch}"
    );
    assert!(
        epoch["grad_norm/fc2"].as_f64() > Some(0.0) && epoch["grad_norm/conv1"].is_null(),
        "{epoch}"
    );
    let config = std::fs::read_to_string(dir.path().join("file/config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["freeze"], serde_json::json!(["conv?", "fc1.bias"]));
    assert_eq!(config["optimizer"]["lr_for"], serde_json::json!(["fc1=0"]));

    let flags = [
        "--freeze=conv?",
        "--freeze=fc1.bias",
        "--log-grad-norm=layers",
        "--epochs=1",
        "--optimizer=sgd",
        "--lr=0.05",
        "--lr-for=fc1=0",
        "--decay-for=*.bias=0",
    ];
    train("flags", &flags);
    assert!(bytes(dir.path(), "file") == bytes(dir.path(), "flags"));
    // One with a rate of zero and no gradients has the initial weights.
    train("still", &["--optimizer=sgd", "--lr=0", "--epochs=1"]);
    for (name, moves) in [
        ("conv1.weight", false),
        ("fc1.weight", false),
        ("fc1.bias", false),
        ("fc2.weight", true),
    ] {
        let same = tensor(dir.path(), "file", name) == tensor(dir.path(), "still", name);
        assert_eq!(same, !moves, "{name}");
    }
}

#[test]
fn layers_are_computed_again_with_the_same_result_and_a_run_may_go_on_with_others() {
    let dir = tempfile::tempdir().unwrap();
    let train = |args: &[&str]| succeeds(dir.path(), args);
    train(&[&SHORT[..], &["--epochs", "2", "--out", "plain"]].concat());
    train(
        &[
            &SHORT[..],
            &[
                "--epochs",
                "1",
                "--schedule",
                "constant",
                "--out",
                "again",
                "--recompute",
                "fc?",
            ],
        ]
        .concat(),
    );
    let refused = run(dir.path(), &["train", "--resume", "again", "--freeze", "fc1"]);
    refused.fails(2, &["`freeze` is a setting of the run", "recompute"]);
    train(&[&SHORT[..], &["--epochs", "2", "--out", "all", "--recompute", "*"]].concat());
    assert!(bytes(dir.path(), "plain") == bytes(dir.path(), "all"));
    train(&["train", "--resume", "again", "--epochs", "2", "--recompute", "fc1"]);
}

#[test]
fn a_name_that_is_none_leaves_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    for (flag, parts) in [
        (
            "--freeze=cnov1",
            ["no parameter of the model is named `cnov1`", "`conv1`"],
        ),
        (
            "--lr-for=fc4=0.1",
            ["no parameter of the model is named `fc4`", "`fc1`"],
        ),
        (
            "--decay-for=fc9=0.1",
            ["no parameter of the model is named `fc9`", "`fc1`"],
        ),
        (
            "--recompute=fc1.weight",
            ["no layer of the model is named `fc1.weight`", "`fc1`"],
        ),
        ("--freeze=*", ["freeze = all parameters", "leave a parameter"]),
    ] {
        let args = [&SHORT[..], &["--out", "run", flag]].concat();
        run(dir.path(), &args).fails(2, &parts);
        assert!(!dir.path().join("run").exists(), "{flag}");
    }
    for flag in ["--freeze=", "--lr-for=fc1", "--lr-for=fc1=-1", "--log-grad-norm=all"] {
        let args = [&SHORT[..], &["--out", "run", flag]].concat();
        assert_eq!(run(dir.path(), &args).code, Some(2), "{flag}");
    }
}
