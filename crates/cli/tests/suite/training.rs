//! Tests of `kiln train`: its files, its output and its errors.

use crate::common::{names, run, succeeds};

const RUN: [&str; 6] = [
    "best.safetensors",
    "config.json",
    "history.csv",
    "history.jsonl",
    "last.safetensors",
    "summary.json",
];

#[test]
fn a_run_keeps_to_its_folder_and_never_takes_another() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "train",
        "lenet",
        "--synthetic",
        "40",
        "--epochs",
        "1",
        "--seed",
        "7",
        "--log-every",
        "3",
    ];
    let first = succeeds(dir.path(), &args);
    assert!(first.stderr.is_empty(), "{}", first.stderr);
    for part in [
        "lenet: 62,006 parameters, sgd 0.001, batch 4, 1 epoch, seed 7",
        "made-up images: 40 images to train, 8 held back",
        "batch 3/10",
        "epoch 1/1  loss",
        "images/s",
        "validation loss",
        "saved: best.safetensors and last.safetensors in runs/lenet-7",
    ] {
        assert!(first.stdout.contains(part), "no `{part}` in: {}", first.stdout);
    }
    assert_eq!(names(dir.path()), ["runs"]);
    assert_eq!(names(&dir.path().join("runs/lenet-7")), RUN);

    succeeds(dir.path(), &args);
    assert_eq!(names(&dir.path().join("runs")), ["lenet-7", "lenet-7-2"]);
    let occupied = run(dir.path(), &[&args[..], &["--out", "runs/lenet-7"]].concat());
    occupied.fails(1, &["runs/lenet-7", "already holds", "help: ", "--out"]);
}

#[test]
fn json_lines_tell_the_whole_run() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "train",
        "mnist-cnn",
        "--synthetic",
        "32",
        "--epochs",
        "2",
        "--batch",
        "16",
        "--json",
        "--out",
        "run",
    ];
    let lines = succeeds(dir.path(), &args).json();
    let events: Vec<&str> = lines.iter().map(|l| l["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["start", "epoch", "epoch", "end"]);
    assert_eq!(lines[0]["parameters"], 93_322);
    assert_eq!(lines[0]["config"]["optimizer"]["name"], "adam");
    assert_eq!(lines[3]["steps"], 4);
    assert_eq!(lines[3]["folder"], "run");
    let history = std::fs::read_to_string(dir.path().join("run/history.jsonl")).unwrap();
    let history: Vec<serde_json::Value> = history.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(history.len(), 2);
    assert_eq!(history[1]["valid"]["loss"], lines[2]["valid"]["loss"]);
    let object = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(dir.path().join("run").join(name)).unwrap()).unwrap()
    };
    let summary = object("summary.json");
    assert_eq!((&summary["reason"], &summary["steps"]), (&"finished".into(), &4.into()));
    assert_eq!(summary["environment"]["device"], "cpu");
    let config = object("config.json");
    assert_eq!(
        (&config["model"], &config["optimizer"]["lr"]),
        (&"mnist-cnn".into(), &1e-3.into())
    );
}

#[test]
fn weights_do_not_depend_on_threads_or_workers() {
    let dir = tempfile::tempdir().unwrap();
    let train = |out: &str, more: &[&str]| {
        let args = [
            "train",
            "mnist-cnn",
            "--synthetic",
            "48",
            "--epochs",
            "1",
            "--batch",
            "8",
            "--out",
            out,
        ];
        succeeds(dir.path(), &[&args[..], more].concat());
        std::fs::read(dir.path().join(out).join("last.safetensors")).unwrap()
    };
    let one = train("a", &["--threads", "1", "--workers", "0"]);
    assert!(train("b", &["--threads", "2"]) == one);
    assert!(train("c", &["--threads", "4", "--workers", "3"]) == one);
    assert!(train("d", &["--seed", "1"]) != one);
}

/// Images on the device have the bits of images on the host, in a run that goes on from the other kind too.
#[test]
fn weights_do_not_depend_on_where_the_images_lie() {
    let dir = tempfile::tempdir().unwrap();
    let train = |out: &str, more: &[&str]| {
        let args = [
            "train",
            "lenet",
            "--synthetic",
            "30",
            "--epochs",
            "2",
            "--json",
            "--out",
            out,
        ];
        succeeds(dir.path(), &[&args[..], more].concat()).json()
    };
    let weights = |out: &str| std::fs::read(dir.path().join(out).join("last.safetensors")).unwrap();
    let host = train("host", &["--data-on-device", "off"]);
    let device = train("device", &["--data-on-device", "on"]);
    // 30 images to train on and 6 held back, of 32×32×3 bytes.
    assert_eq!(
        (&host[0]["bytes_on_device"], &device[0]["bytes_on_device"]),
        (&().into(), &110_592.into())
    );
    assert_eq!(device[0]["config"]["data_on_device"], "on");
    assert!(weights("host") == weights("device"));

    train("stopped", &["--data-on-device", "off", "--max-steps", "11"]);
    let resumed = [
        "train",
        "--resume",
        "stopped",
        "--max-steps",
        "1000",
        "--data-on-device",
        "on",
    ];
    succeeds(dir.path(), &resumed);
    assert!(weights("host") == weights("stopped"));

    let text = dir.path().join("text.txt");
    std::fs::write(&text, "kiln ".repeat(2000)).unwrap();
    let args = ["train", "gpt-mini", "--data", "text.txt", "--data-on-device", "on"];
    run(dir.path(), &args).fails(2, &["gpt-mini", "labelled images", "help: ", "--data-on-device"]);
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["train", "lenet", "--synthetic", "40", "--lr", "1e30", "--out", "run"];
    let ran = run(dir.path(), &args);
    ran.fails(
        1,
        &[
            "step ",
            "the loss is",
            "the first ",
            "in layer `",
            "kiln replay run/capsule-",
            "help: ",
            "--lr",
            "--nan rollback",
        ],
    );
    assert_eq!(
        names(&dir.path().join("run")),
        [
            "capsule-000000002.json",
            "capsule-000000002.safetensors",
            "config.json",
            "history.csv",
            "history.jsonl",
            "summary.json"
        ]
    );
    let summary = std::fs::read_to_string(dir.path().join("run/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["reason"], "failed");
    assert!(summary["error"].as_str().unwrap().contains("the loss is"), "{summary}");
}

#[test]
fn optimizers_and_their_options_work() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["train", "lenet", "--synthetic", "12", "--epochs", "1"];
    for more in [
        &["--optimizer", "sgd", "--momentum", "0.5", "--weight-decay", "0.1"][..],
        &["--optimizer", "adam", "--clip-norm", "1", "--accumulate", "2"],
        &["--optimizer", "adamw", "--patience", "1", "--skip-nan"],
        &["--optimizer", "rmsprop", "--momentum", "0.5"],
        &["--optimizer", "adagrad", "--workers", "0"],
    ] {
        succeeds(dir.path(), &[&args[..], more].concat());
    }
    run(
        dir.path(),
        &[&args[..], &["--optimizer", "adam", "--momentum", "0.5"]].concat(),
    )
    .fails(2, &["adam takes no --momentum", "sgd"]);
}

#[test]
fn wrong_command_lines_say_what_would_be_right() {
    let dir = tempfile::tempdir().unwrap();
    for (args, parts) in [
        (&["train", "mnist-cn"][..], &["mnist-cnn", "lenet", "similar value"][..]),
        (
            &["train", "resnet"],
            &[
                "[possible values: mnist-cnn, lenet, resnet18, vgg11, gpt-mini, vae, wgan-gp, wgan-gp-conv, dcgan, stylegan2, mlp, resnet50, gpt2, bert-base, bert-mini, bert-classifier, bert-tagger, bert-reader, deepspeech2, transformer, resnet18-224, resnet34, resnet101, resnet152, vgg11-224, vgg13, vgg16, vgg19, vgg11-bn, vgg13-bn, vgg16-bn, vgg19-bn, wide-resnet-28-10, mobilenet-v2, mobilenet-v2-32, yolo-n, yolo-s, yolo-n-640, yolo-s-640, faster-rcnn-small, faster-rcnn, r3d-small, r2plus1d-small, conv-lstm, r3d-18, r2plus1d-18, stylegan2-256]",
            ],
        ),
        (&["train"], &["<MODEL>"]),
        (&["train", "lenet", "--epochs", "0"], &["--epochs", "0"]),
        (&["train", "lenet", "--batch", "0"], &["--batch"]),
        (&["train", "lenet", "--lr", "-1"], &["--lr"]),
        (&["train", "lenet", "--lr", "nan"], &["finite"]),
        (
            &["train", "lenet", "--synthetic", "8", "--clip-norm", "0"],
            &["--clip-norm", "above 0"],
        ),
        (&["train", "lenet", "--optimizer", "adm"], &["adam"]),
        (&["train", "lenet", "--schedule", "linear"], &["constant, cosine"]),
        (&["train", "lenet", "--threads", "0"], &["--threads"]),
        (&["train", "lenet", "--device", "tpu"], &["auto, cpu, cuda"]),
        (
            &["train", "lenet", "--data", "x", "--synthetic"],
            &["cannot be used with"],
        ),
        (
            &["train", "lenet"],
            &["CIFAR-10", "--data", "--synthetic", "cifar-10-binary"],
        ),
        (&["train", "vgg11"], &["vgg11 needs CIFAR-10", "--synthetic"]),
        (&["train", "gpt-mini"], &["gpt-mini needs a text", "--data FILE.txt"]),
        (&["evaluate"], &["eval"]),
    ] {
        run(dir.path(), args).fails(2, parts);
    }
    assert_eq!(names(dir.path()), [""; 0], "a run that cannot start leaves nothing");
    let help = succeeds(dir.path(), &["train", "--help"]);
    assert!(
        help.stdout.contains("Examples:") && help.stdout.contains("--synthetic"),
        "{}",
        help.stdout
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_found_out_first() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), b"").unwrap();
    let ran = run(dir.path(), &["train", "lenet", "--synthetic", "8", "--out", "file/run"]);
    ran.fails(1, &["file/run", "cannot create the folder", "--out"]);
    assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    assert_eq!(names(dir.path()), ["file"]);
    if cfg!(target_os = "linux") {
        run(
            dir.path(),
            &["train", "lenet", "--synthetic", "8", "--out", "/proc/kiln-run"],
        )
        .fails(1, &["/proc/kiln-run", "cannot create the folder"]);
    }
}

/// Every recipe for images trains from dataset files; the large networks make two steps on a few images.
#[test]
fn models_of_images_train_by_their_recipes() {
    let dir = tempfile::tempdir().unwrap();
    let record = |label: u8, i: usize| {
        let pixels = (0..3072).map(move |p| (p * 7 + i * 31 + usize::from(label) * 20) as u8);
        std::iter::once(label).chain(pixels)
    };
    let batch = |n: usize| (0..n).flat_map(|i| record((i % 10) as u8, i)).collect::<Vec<u8>>();
    for (name, n) in [
        ("data_batch_1.bin", 4),
        ("data_batch_2.bin", 1),
        ("data_batch_3.bin", 1),
        ("data_batch_4.bin", 1),
        ("data_batch_5.bin", 1),
        ("test_batch.bin", 2),
    ] {
        std::fs::write(dir.path().join(name), batch(n)).unwrap();
    }
    for (model, lr) in [("resnet18", 0.1), ("vgg11", 0.05)] {
        let args = [
            "train",
            model,
            "--data",
            ".",
            "--batch",
            "4",
            "--max-steps",
            "2",
            "--json",
        ];
        let lines = succeeds(dir.path(), &[&args[..], &["--out", model]].concat()).json();
        let config = &lines[0]["config"]["optimizer"];
        assert_eq!(
            (&config["name"], &config["momentum"], &config["weight_decay"]),
            (&"sgd".into(), &0.9.into(), &5e-4.into())
        );
        assert_eq!((&config["schedule"], &config["lr"]), (&"cosine".into(), &lr.into()));
        let end = lines.last().unwrap();
        assert_eq!((&end["steps"], &end["reason"]), (&2.into(), &"finished".into()));
        // The learning rate of the second of two steps is in the middle of the cosine.
        assert_eq!(lines[1]["lr"], lr / 2.0);
        let mut run = names(&dir.path().join(model));
        run.retain(|name| name != "best.safetensors");
        assert_eq!(run, RUN[1..]);
    }
    let args = [
        "train",
        "resnet18",
        "--synthetic",
        "4",
        "--max-steps",
        "1",
        "--optimizer",
        "adam",
        "--json",
    ];
    let lines = succeeds(dir.path(), &args).json();
    assert_eq!(
        (
            &lines[0]["config"]["optimizer"]["lr"],
            &lines[0]["config"]["optimizer"]["weight_decay"]
        ),
        (&1e-3.into(), &0.0.into())
    );
}

#[test]
fn a_fast_run_leaves_nothing_and_one_batch_is_learned_by_heart() {
    let dir = tempfile::tempdir().unwrap();
    let fast = [
        "train",
        "resnet18",
        "--synthetic",
        "20",
        "--batch",
        "2",
        "--fast-dev-run",
        "--json",
    ];
    let lines = succeeds(dir.path(), &fast).json();
    assert_eq!((&lines[2]["steps"], &lines[0]["train_samples"]), (&1.into(), &2.into()));
    assert_eq!(names(dir.path()), [""; 0]);
    assert!(!std::path::Path::new(lines[0]["folder"].as_str().unwrap()).exists());
    run(dir.path(), &[&fast[..], &["--out", "x"]].concat()).fails(2, &["cannot be used with"]);

    let args = [
        "train",
        "mnist-cnn",
        "--synthetic",
        "64",
        "--batch",
        "8",
        "--overfit-batches",
        "--epochs",
        "60",
        "--json",
    ];
    let lines = succeeds(dir.path(), &[&args[..], &["--device", "cpu"]].concat()).json();
    assert_eq!(
        (&lines[0]["train_samples"], &lines[0]["valid_samples"]),
        (&8.into(), &8.into())
    );
    assert_eq!(lines.last().unwrap()["best_accuracy"], 1.0);
}

#[test]
fn a_run_computes_in_the_precision_that_it_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "train",
        "lenet",
        "--synthetic",
        "40",
        "--epochs",
        "1",
        "--device",
        "cpu",
        "--precision",
    ];
    let mut weights = Vec::new();
    for (precision, words) in [
        ("f32", "cpu with"),
        ("bf16", ", mixed precision with bf16"),
        ("f16", ", mixed precision with f16"),
    ] {
        let out = succeeds(dir.path(), &[&args[..], &[precision, "--out", precision]].concat());
        assert!(out.stdout.contains(words), "{}", out.stdout);
        let config = std::fs::read_to_string(dir.path().join(precision).join("config.json")).unwrap();
        assert!(config.contains(&format!("\"precision\": \"{precision}\"")), "{config}");
        weights.push(std::fs::read(dir.path().join(precision).join("last.safetensors")).unwrap());
    }
    assert!(weights[0] != weights[1] && weights[1] != weights[2]);
    // Weights are f32 in each.
    assert!(weights.iter().all(|w| w.len() == weights[0].len()));

    let refused = run(dir.path(), &[&args[..], &["tf32", "--out", "tf32"]].concat());
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--precision f32 or bf16 on the CPU"),
        "{}",
        refused.stderr
    );
    assert!(!dir.path().join("tf32").exists());
}
