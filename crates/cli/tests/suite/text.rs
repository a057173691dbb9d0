//! Tests of `kiln train`, `eval` and `generate` on text, and of `kiln models`.

use crate::common::{names, run, succeeds};
use std::path::Path;

/// Writes a text of 2,400 characters that repeats one line.
fn write_text(dir: &Path, name: &str) {
    let line = "the quick brown fox jumps over the lazy dog.\r\n";
    std::fs::write(dir.join(name), &line.repeat(60).as_bytes()[..2400]).unwrap();
}

#[test]
fn a_text_is_learned_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    write_text(dir.path(), "fox.txt");
    let args = [
        "train",
        "gpt-mini",
        "--data",
        "fox.txt",
        "--batch",
        "2",
        "--max-steps",
        "3",
    ];
    let trained = succeeds(dir.path(), &[&args[..], &["--out", "run"]].concat()).stdout;
    for part in [
        "gpt-mini: ",
        "adamw 0.001",
        "the text fox.txt: 29 different characters, 8 windows to train, 1 held back",
        "nats/character  perplexity ",
        "windows/s",
        "best: epoch 1, validation loss ",
        "saved: best.safetensors and last.safetensors in run",
    ] {
        assert!(trained.contains(part), "no `{part}` in: {trained}");
    }
    assert_eq!(
        names(&dir.path().join("run")),
        [
            "best.safetensors",
            "config.json",
            "history.csv",
            "history.jsonl",
            "last.safetensors",
            "summary.json"
        ]
    );
    let config = std::fs::read(dir.path().join("run/config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["facts"]["vocabulary"], "\n .abcdefghijklmnopqrstuvwxyz");

    // The loss on the end of the text that is held back, which the run itself has measured.
    let eval = ["eval", "-w", "run", "--data", "fox.txt", "--batch", "2"];
    let line = succeeds(dir.path(), &[&eval[..], &["--json"]].concat())
        .json()
        .remove(0);
    let history = std::fs::read_to_string(dir.path().join("run/history.jsonl")).unwrap();
    let history: serde_json::Value = serde_json::from_str(history.lines().last().unwrap()).unwrap();
    assert_eq!(line["loss"], history["valid"]["loss"]);

    // Its report has no classes.
    succeeds(dir.path(), &["report", "run", "--brief"]);
    let page = std::fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    assert!(page.contains("<strong>perplexity</strong>") && !page.contains("Confusion"));
    let value = |name: &str| line[name].as_f64().unwrap();
    assert!((value("perplexity").ln() - value("loss")).abs() < 1e-12, "{line}");
    assert!(succeeds(dir.path(), &eval).stdout.contains("1 window  loss "));

    let generate = |more: &[&str]| {
        let args = ["generate", "run", "--tokens", "12", "--prompt", "the q"];
        succeeds(dir.path(), &[&args[..], more].concat()).stdout
    };
    let text = generate(&[]);
    assert!(text.starts_with("the q") && text.ends_with('\n'), "{text:?}");
    assert_eq!(text.chars().count(), 5 + 12 + 1, "{text:?}");
    assert_eq!(text, generate(&["--seed", "0", "--threads", "1"]));
    assert_ne!(text, generate(&["--seed", "1"]));
    assert_eq!(
        generate(&["--temperature", "0"]),
        generate(&["--top-k", "1", "--seed", "5"])
    );
    assert_eq!(
        generate(&["--temperature", "0"]),
        generate(&["--top-p", "0", "--seed", "5"])
    );
    assert_ne!(text, generate(&["--repetition-penalty", "10"]));
    for dtype in ["bf16", "f16"] {
        assert_eq!(generate(&["--dtype", dtype]).chars().count(), 5 + 12 + 1);
    }
    assert_eq!(
        succeeds(dir.path(), &["generate", "run/last.safetensors", "--tokens", "3"])
            .stdout
            .chars()
            .count(),
        4
    );
    for (args, code, parts) in [
        (
            &["generate", "run", "--prompt", "the fox!"][..],
            2,
            &["`!`", "abcdef"][..],
        ),
        (&["generate", "run", "--prompt", ""], 2, &["the prompt is empty"]),
        (&["generate", "run", "--temperature", "-1"], 2, &["--temperature"]),
        (&["generate", "run", "--top-k", "0"], 2, &["--top-k"]),
        (&["generate", "run", "--dtype", "int8"], 2, &["--dtype", "bf16"]),
        (&["generate", "run", "--top-p", "1.5"], 2, &["--top-p", "from 0 to 1"]),
        (
            &["generate", "run", "--repetition-penalty", "0"],
            2,
            &["--repetition-penalty"],
        ),
        (&["generate", "nothing"], 1, &["nothing"]),
        (
            &["predict", "-w", "run", "a.png"],
            2,
            &["gpt-mini reads a text", "kiln generate"],
        ),
        (&["eval", "-w", "run"], 2, &["gpt-mini needs a text"]),
    ] {
        run(dir.path(), args).fails(code, parts);
    }
    // A text with characters outside of the vocabulary, and weights without their vocabulary.
    std::fs::write(dir.path().join("other.txt"), "THE QUICK\n".repeat(60)).unwrap();
    run(dir.path(), &["eval", "-w", "run", "--data", "other.txt"]).fails(1, &["other.txt", "line 1", "`T`"]);
    std::fs::copy(
        dir.path().join("run/best.safetensors"),
        dir.path().join("alone.safetensors"),
    )
    .unwrap();
    run(dir.path(), &["generate", "alone.safetensors"]).fails(1, &["alone.safetensors", "config.json", "help: "]);
}

#[test]
fn what_is_no_text_trains_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("short.txt"), "short").unwrap();
    std::fs::write(dir.path().join("empty.txt"), "").unwrap();
    std::fs::write(dir.path().join("bytes.txt"), b"abc\xff".repeat(400)).unwrap();
    for (file, parts) in [
        ("short.txt", &["short.txt", "5 characters", "at least 514"][..]),
        ("empty.txt", &["empty.txt", "no records"]),
        ("bytes.txt", &["bytes.txt", "byte 3", "UTF-8"]),
        ("missing.txt", &["missing.txt"]),
        (".", &["cannot open"]),
    ] {
        run(dir.path(), &["train", "gpt-mini", "--data", file]).fails(1, parts);
    }
    assert_eq!(names(dir.path()), ["bytes.txt", "empty.txt", "short.txt"]);
    let lenet = ["train", "lenet", "--synthetic", "8", "--epochs", "1", "--out", "lenet"];
    succeeds(dir.path(), &lenet);
    run(dir.path(), &["generate", "lenet"]).fails(2, &["lenet is no language model", "gpt-mini"]);
}

#[test]
fn models_are_listed_with_their_recipes() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(dir.path(), &["models"]).stdout;
    for part in [
        "mnist-cnn: the convolutional net of the Keras tutorials, for 28x28 digits",
        "images 28x28x1, 93,322 parameters, 10 classes",
        "CIFAR-10, 200 epochs, batch 128, sgd 0.1 (cosine), momentum 0.9, weight decay 0.0005, crop 4, flip, accuracy",
        "gpt-mini: ",
        "perplexity",
    ] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    let all = succeeds(dir.path(), &["models", "--json"]).json().remove(0);
    let all = all["models"].as_array().unwrap();
    let names: Vec<&str> = all.iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "mnist-cnn",
            "lenet",
            "resnet18",
            "vgg11",
            "gpt-mini",
            "vae",
            "wgan-gp",
            "wgan-gp-conv",
            "dcgan",
            "stylegan2",
            "mlp",
            "resnet50",
            "gpt2",
            "bert-base",
            "bert-mini",
            "bert-classifier",
            "bert-tagger",
            "bert-reader",
            "deepspeech2",
            "transformer",
            "resnet18-224",
            "resnet34",
            "resnet101",
            "resnet152",
            "vgg11-224",
            "vgg13",
            "vgg16",
            "vgg19",
            "vgg11-bn",
            "vgg13-bn",
            "vgg16-bn",
            "vgg19-bn",
            "wide-resnet-28-10",
            "mobilenet-v2",
            "mobilenet-v2-32",
            "yolo-n",
            "yolo-s",
            "yolo-n-640",
            "yolo-s-640",
            "faster-rcnn-small",
            "faster-rcnn",
            "r3d-small",
            "r2plus1d-small",
            "conv-lstm",
            "r3d-18",
            "r2plus1d-18",
            "stylegan2-256"
        ]
    );
    assert_eq!(all[2]["recipe"]["augment"], serde_json::json!(["crop 4", "flip"]));
    assert_eq!(
        (&all[4]["input"]["kind"], &all[4]["parameters"]),
        (&"tokens".into(), &10_795_776.into())
    );
}

#[test]
fn a_text_is_learned_by_the_tokens_of_a_tokenizer_which_the_run_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..300)
        .map(|i| format!("Line {i}: the naïve fox jumps over {} dogs.\n", i * 7 % 31))
        .collect();
    std::fs::write(dir.path().join("fox.txt"), &lines).unwrap();
    let data = ["--data", "fox.txt"];
    let train = |more: &[&str]| {
        let args = ["train", "gpt-mini", "--batch", "2"];
        [&args[..], &data, more]
            .concat()
            .iter()
            .map(|arg| arg.to_string())
            .collect::<Vec<_>>()
    };
    let args = train(&["--tokenizer", "bpe:280", "--max-steps", "3", "--out", "run"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let trained = succeeds(dir.path(), &args).stdout;
    for part in [
        "the text fox.txt: 280 tokens, ",
        "tokenizer: 280 tokens learned from what is trained on, ",
        "nats/token  perplexity ",
        "bits/character ",
    ] {
        assert!(trained.contains(part), "no `{part}` in: {trained}");
    }
    let config = std::fs::read(dir.path().join("run/config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["data"]["tokenizer"], "bpe:280");
    assert_eq!(config["facts"]["vocabulary"], serde_json::json!([280.0]));

    let eval = [&["eval", "-w", "run", "--json"][..], &data].concat();
    let line = succeeds(dir.path(), &eval).json().remove(0);
    let history = std::fs::read_to_string(dir.path().join("run/history.jsonl")).unwrap();
    let history: serde_json::Value = serde_json::from_str(history.lines().last().unwrap()).unwrap();
    for name in ["loss", "bits_per_character"] {
        let (found, kept) = (line[name].as_f64().unwrap(), history["valid"][name].as_f64().unwrap());
        assert!((found - kept).abs() < 1e-5, "{name}: {found} is not {kept}");
    }
    // The same tokens by the file, which is another's too.
    let args = train(&[
        "--tokenizer",
        "run/tokenizer.json",
        "--max-steps",
        "3",
        "--out",
        "again",
    ]);
    succeeds(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        std::fs::read(dir.path().join("run/best.safetensors")).unwrap(),
        std::fs::read(dir.path().join("again/best.safetensors")).unwrap()
    );
    // What is stopped goes on by the tokenizer of the run.
    succeeds(dir.path(), &["train", "--resume", "run", "--max-steps", "4"]);

    let generate = |more: &[&str]| {
        let args = ["generate", "run", "--tokens", "12", "--prompt", "The naïve"];
        succeeds(dir.path(), &[&args[..], more].concat()).stdout
    };
    let text = generate(&[]);
    assert!(text.starts_with("The naïve") && text.ends_with('\n'), "{text:?}");
    assert_eq!(text, generate(&["--threads", "1"]));
    succeeds(dir.path(), &["generate", "run", "--tokens", "3"]);
    run(dir.path(), &["predict", "-w", "run", "a.txt"]).fails(2, &["kiln generate"]);
    for other in ["characters", "bpe:280"] {
        let told = format!("--tokenizer {other}");
        run(dir.path(), &[&eval[..], &["--tokenizer", other]].concat())
            .fails(2, &[told.as_str(), "its tokenizer", "leave it out"]);
    }
    std::fs::write(dir.path().join("broken.json"), "{}").unwrap();
    for (more, parts) in [
        (
            &["--tokenizer", "broken.json"][..],
            &["broken.json", "tokenizer.json"][..],
        ),
        (&["--tokenizer", "no.json"], &["no.json"]),
    ] {
        run(dir.path(), &[&eval[..], more].concat()).fails(1, parts);
    }
    let lenet = ["train", "lenet", "--data", "fox.txt", "--tokenizer", "bpe:300"];
    run(dir.path(), &lenet).fails(2, &["no texts", "--tokenizer"]);
    run(dir.path(), &["train", "gpt-mini", "--tokenizer", "bpe:3"]).fails(2, &["bpe:3", "from 257"]);

    // Another tokenizer, and none.
    let args = train(&["--tokenizer", "wordpiece:90", "--max-steps", "1", "--out", "pieces"]);
    succeeds(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>());
    succeeds(
        dir.path(),
        &["generate", "pieces", "--tokens", "3", "--prompt", "the fox"],
    );
    std::fs::copy(
        dir.path().join("pieces/tokenizer.json"),
        dir.path().join("run/tokenizer.json"),
    )
    .unwrap();
    run(dir.path(), &["generate", "run"]).fails(1, &["run/tokenizer.json", "not that of the network", "help: "]);
    std::fs::remove_file(dir.path().join("run/tokenizer.json")).unwrap();
    run(dir.path(), &["generate", "run"]).fails(1, &["run/tokenizer.json", "cannot", "help: "]);
}

/// A text as files of tokens gives the network that the text itself gives.
#[test]
fn a_folder_of_tokens_is_learned_as_its_text_is() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..400)
        .map(|i| format!("the fox number {} went home\n", i * 37 % 101))
        .collect();
    std::fs::write(dir.path().join("fox.txt"), &text).unwrap();
    let tokenize = ["tokenize", "fox.txt", "--tokenizer", "bpe:280", "--out", "fox.tokens"];
    let told = succeeds(dir.path(), &tokenize).stdout;
    assert!(
        told.contains("saved: fox.tokens, ") && told.contains("held back"),
        "{told}"
    );
    let train = |more: &[&str]| {
        let args = [
            "train",
            "gpt-mini",
            "--batch",
            "2",
            "--max-steps",
            "1",
            "--threads",
            "2",
        ];
        succeeds(dir.path(), &[&args[..], more].concat())
    };
    train(&["--data", "fox.tokens", "--out", "folder"]);
    train(&[
        "--data",
        "fox.txt",
        "--tokenizer",
        "fox.tokens/tokenizer.json",
        "--out",
        "text",
    ]);
    let weights = |run: &str| std::fs::read(dir.path().join(run).join("best.safetensors")).unwrap();
    assert!(weights("folder") == weights("text"));
    let eval = |data: &str| {
        succeeds(dir.path(), &["eval", "-w", "folder", "--data", data, "--json"])
            .json()
            .remove(0)
    };
    assert_eq!(eval("fox.tokens")["loss"], eval("fox.txt")["loss"]);
    succeeds(
        dir.path(),
        &["generate", "folder", "--tokens", "3", "--prompt", "the fox"],
    );
    run(
        dir.path(),
        &["tokenize", "fox.txt", "--tokenizer", "characters", "--out", "x"],
    )
    .fails(1, &["bpe:N"]);
    run(
        dir.path(),
        &["tokenize", "none.txt", "--tokenizer", "bpe:300", "--out", "x"],
    )
    .fails(1, &["none.txt"]);
}
