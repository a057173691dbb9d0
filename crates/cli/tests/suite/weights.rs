//! Tests of the weights and models that `kiln eval` and `predict` use, and of their errors.

use crate::common::{Ran, run, succeeds, write_png};
use kiln_cpu::Cpu;
use kiln_data::Sizes;
use kiln_models::Model;
use kiln_nn::module::StateDict;
use kiln_nn::{Module, weights};
use serde_json::{Value, json};
use std::path::Path;

/// A folder with a run of lenet in `run`, with its best and last weights.
fn trained() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let train = [
        "train",
        "lenet",
        "--synthetic",
        "8",
        "--epochs",
        "1",
        "--batch",
        "8",
        "--out",
        "run",
    ];
    succeeds(dir.path(), &train);
    dir
}

/// Copies a weights file with a changed header and changed floats of one tensor.
fn rewrite(path: &Path, to: &Path, header: impl FnOnce(&mut Value), tensor: &str, set: impl Fn(usize, f32) -> f32) {
    let bytes = std::fs::read(path).unwrap();
    let length = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut info: Value = serde_json::from_slice(&bytes[8..length]).unwrap();
    let mut data = bytes[length..].to_vec();
    let place = |i: usize| info[tensor]["data_offsets"][i].as_u64().unwrap() as usize;
    let values = data[place(0)..place(1)].chunks_exact_mut(4);
    for (i, value) in values.enumerate() {
        let old = f32::from_le_bytes((&*value).try_into().unwrap());
        value.copy_from_slice(&set(i, old).to_le_bytes());
    }
    header(&mut info);
    let text = info.to_string();
    let file = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat();
    std::fs::write(to, file).unwrap();
}

fn eval(dir: &Path, weights: &str) -> Ran {
    run(dir, &["eval", "-w", weights, "--synthetic", "20"])
}

#[test]
fn the_folder_of_a_run_means_its_best_weights() {
    let dir = trained();
    let eval_json = |weights| {
        let lines = succeeds(dir.path(), &["eval", "-w", weights, "--synthetic", "20", "--json"]).json();
        (lines[0]["loss"].clone(), lines[0]["weights"].clone())
    };
    let at = |name: &str| dir.path().join("run").join(name);
    // The last weights are made different from the best ones.
    let halved = |_, w| w / 2.0;
    rewrite(
        &at("best.safetensors"),
        &at("last.safetensors"),
        |_| {},
        "fc3.weight",
        halved,
    );
    let best = eval_json("run/best.safetensors");
    assert_eq!(eval_json("run"), best);
    assert_ne!(eval_json("run/last.safetensors").0, best.0);
    let text = succeeds(dir.path(), &["eval", "-w", "run", "--synthetic", "20"]).stdout;
    assert!(text.contains("weights: run/best.safetensors"), "{text}");
    // A run that was stopped in its first epoch has no best weights.
    std::fs::remove_file(at("best.safetensors")).unwrap();
    assert_eq!(eval_json("run").1, "run/last.safetensors");
    std::fs::remove_file(at("last.safetensors")).unwrap();
    eval(dir.path(), "run").fails(
        1,
        &["run: a folder without best.safetensors", "help: name a weights file"],
    );
    run(dir.path(), &["predict", "-w", "run", "a.png"]).fails(1, &["best.safetensors"]);
}

#[test]
fn the_model_is_read_from_the_configuration() {
    let dir = trained();
    let (best, plain) = (
        dir.path().join("run/best.safetensors"),
        dir.path().join("run/plain.safetensors"),
    );
    let without = |info: &mut Value| drop(info.as_object_mut().unwrap().remove("__metadata__"));
    rewrite(&best, &plain, without, "fc3.bias", |_, w| w);
    let config = dir.path().join("run/config.json");
    let asked = |weights: &str, more: &[&str]| {
        run(
            dir.path(),
            &[&["eval", "-w", weights, "--synthetic", "20"], more].concat(),
        )
    };
    let plain = "run/plain.safetensors";
    assert_eq!(asked(plain, &[]).code, Some(0));
    for (text, parts) in [
        (
            json!({ "model": "gpt-\u{1b}[31m" }).to_string(),
            &["belong to `gpt-\\u{1b}[31m`", "--model"][..],
        ),
        (
            "{ no json".to_string(),
            &["do not say which model", "config.json cannot be read"],
        ),
        (
            json!({ "batch": 3 }).to_string(),
            &["do not say which model", "--model"],
        ),
        (" ".repeat(2 << 20), &["config.json cannot be read", "bytes"]),
    ] {
        std::fs::write(&config, text).unwrap();
        let ran = asked(plain, &[]);
        ran.fails(2, parts);
        assert!(!ran.stderr.contains('\x1b'), "{}", ran.stderr);
        assert_eq!(asked(plain, &["--model", "lenet"]).code, Some(0));
    }
    // The model in the file's metadata is used without config.json, and a contradiction between the two is an error.
    assert_eq!(asked("run/best.safetensors", &[]).code, Some(0));
    std::fs::write(&config, json!({ "model": "mnist-cnn" }).to_string()).unwrap();
    asked("run/best.safetensors", &[]).fails(2, &["belong to `lenet`", "config.json beside them to `mnist-cnn`"]);
    asked("run/best.safetensors", &["--model", "mnist-cnn"]).fails(1, &["do not fit", "--model"]);
    std::fs::remove_file(&config).unwrap();
    asked(plain, &[]).fails(2, &["do not say which model they belong to", "--model"]);
}

#[test]
fn weights_that_are_not_finite_are_named() {
    let dir = trained();
    let (best, bad) = (
        dir.path().join("run/best.safetensors"),
        dir.path().join("run/bad.safetensors"),
    );
    std::fs::write(dir.path().join("a.png"), b"").unwrap();
    for (value, named) in [(f32::NAN, "holds NaN at [7]"), (f32::INFINITY, "holds inf at [7]")] {
        rewrite(&best, &bad, |_| {}, "conv2.bias", |i, w| if i == 7 { value } else { w });
        for args in [
            &["eval", "-w", "run/bad.safetensors", "--synthetic"][..],
            &["predict", "-w", "run/bad.safetensors", "a.png"],
        ] {
            run(dir.path(), args).fails(1, &["bad.safetensors", "`conv2.bias`", named]);
        }
    }
    // The weights are finite, but the layer's output overflows.
    rewrite(&best, &bad, |_| {}, "conv2.weight", |_, w| w.signum() * 3e38);
    eval(dir.path(), "run/bad.safetensors").fails(1, &["batch 1", "`conv2`", "Conv2d"]);
    let mut encoder = png::Encoder::new(std::fs::File::create(dir.path().join("a.png")).unwrap(), 4, 4);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&[200; 48]).unwrap();
    let ran = run(dir.path(), &["predict", "-w", "run/bad.safetensors", "a.png"]);
    ran.fails(1, &["a.png", "`conv2`", "Conv2d"]);
    assert_eq!(ran.stdout, "");
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for file in ["pipe", "/dev/zero"] {
        eval(dir.path(), file).fails(1, &[file, "expected a regular file"]);
    }
}

/// File names and text from files are escaped in terminal output, as text and as JSON.
#[cfg(unix)]
#[test]
fn names_cannot_steer_a_terminal() {
    let dir = trained();
    let name = "x\u{1b}[2J\u{9b}\n.safetensors";
    std::fs::copy(
        dir.path().join("run/best.safetensors"),
        dir.path().join("run").join(name),
    )
    .unwrap();
    let path = format!("run/{name}");
    let ran = succeeds(dir.path(), &["eval", "-w", &path, "--synthetic", "20", "--json"]);
    assert_eq!(ran.json()[0]["weights"], path);
    assert!(!ran.stdout.contains(['\u{1b}', '\u{9b}']), "{}", ran.stdout);
    let absent = format!("run/absent{name}");
    let long = "y".repeat(300);
    for args in [
        &["eval", "-w", &absent][..],
        &["predict", "-w", &path, &absent, &format!("{long}.png")],
        &["summary", &absent],
        &["train", "lenet", "--data", &absent],
        &["train", "mnist-cnn", "--out", &format!("{path}/x")],
        &["profile", "lenet", "--trace", &format!("none{path}/x")],
    ] {
        let ran = run(dir.path(), args);
        assert_ne!(ran.code, Some(0), "{args:?}");
        assert!(
            !ran.stderr.contains(['\u{1b}', '\u{9b}']) && ran.stderr.contains("\\u{"),
            "{}",
            ran.stderr
        );
    }
}

/// Kernels lie in another order there, and the file names no model.
#[test]
fn files_of_pytorchs_are_read_as_they_are() {
    let (dir, cpu) = (tempfile::tempdir().unwrap(), Cpu::new());
    let net = Model::Lenet.build_for(&cpu, 3, Sizes::default()).unwrap();
    let write = |name: &str, weights: &StateDict<Cpu>, metadata: &[(String, String)]| {
        let metadata = metadata.iter().cloned().collect();
        weights::write(dir.path().join(name), weights, &metadata).unwrap();
    };
    let named = [("model".to_string(), "lenet".to_string())];
    write("own", &net.state_dict(), &named);
    write("torch", &net.torch_state_dict().unwrap(), &[]);
    write("wrong", &net.torch_state_dict().unwrap(), &named);
    let words = |weights| ["eval", "-w", weights, "--model", "lenet", "--synthetic", "20", "--json"];
    let loss = |weights| succeeds(dir.path(), &words(weights)).json()[0]["loss"].clone();
    assert_eq!(loss("torch"), loss("own"));
    run(dir.path(), &words("wrong")).fails(1, &["conv1.weight", "do not fit"]);
    let sizes = Sizes {
        outputs: Some(7),
        ..Sizes::default()
    };
    let other = Model::Lenet.build_for(&cpu, 3, sizes).unwrap();
    write("other", &other.torch_state_dict().unwrap(), &[]);
    let ran = run(dir.path(), &words("other"));
    ran.fails(1, &["fc3.weight", "do not fit"]);
    assert!(
        !ran.stderr.contains("conv1"),
        "only what PyTorch's layout does not explain: {}",
        ran.stderr
    );
}

/// A network for folders of images, whose names of classes are beside the weights of a run alone.
#[test]
fn classes_without_names_are_told_by_their_numbers() {
    let (dir, cpu) = (tempfile::tempdir().unwrap(), Cpu::new());
    let net = Model::ResNet18Large.build(&cpu, 0).unwrap();
    let weights = net.torch_state_dict().unwrap();
    weights::write(dir.path().join("torch"), &weights, &weights::Metadata::new()).unwrap();
    write_png(&dir.path().join("a.png"), 30, 40, |x, y| (x * y % 256) as u8);
    let words = "predict -w torch --model resnet18-224 --top 3 --json a.png";
    let answer = &succeeds(dir.path(), &words.split(' ').collect::<Vec<_>>()).json()[0];
    let top = answer["top"].as_array().unwrap();
    let number = |class: &Value| class["class"].as_str().unwrap().parse::<usize>().unwrap();
    assert!(
        top.len() == 3 && top.iter().all(|class| number(class) < 1000),
        "{answer}"
    );
}
