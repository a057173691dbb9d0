//! Tests of `kiln profile`. Its times differ from run to run; its rows, counts, operations and bytes do not.

use crate::common::{run, succeeds};
use serde_json::Value;
use std::path::Path;

/// The JSON object of `kiln profile … --json`.
fn profile(dir: &Path, args: &[&str]) -> Value {
    let fixed = ["--device", "cpu", "--threads", "2", "--json"];
    let mut lines = succeeds(dir, &[&["profile"], args, &fixed].concat()).json();
    assert_eq!(lines.len(), 1);
    lines.remove(0)
}

fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().unwrap()
}

fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = rows(report).iter().find(|r| r["name"] == name);
    found.unwrap_or_else(|| panic!("no row {name}: {report}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Multiply-adds of mnist-cnn's layers for one image, counted as two.
const MNIST: [(&str, u64); 5] = [
    ("conv1+pool1", 2 * 26 * 26 * 32 * 9),
    ("conv2+pool2", 2 * 11 * 11 * 64 * 288),
    ("conv3", 2 * 3 * 3 * 64 * 576),
    ("dense1", 2 * 576 * 64),
    ("dense2", 2 * 640),
];

#[test]
fn a_training_step_of_the_digits_is_counted_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let report = profile(dir.path(), &["mnist-cnn", "--batch", "3", "--steps", "2"]);
    for (name, flops) in MNIST {
        let row = row(&report, name);
        assert_eq!(row["forward"]["flops"], 3 * flops, "{name}");
        // The backward pass of a layer has two products for each of the forward pass, but the first layer's input needs
        // no gradient.
        let twice = if name == MNIST[0].0 { 1 } else { 2 };
        assert_eq!(row["backward"]["flops"], 3 * twice * flops, "{name}");
        for way in ["forward", "backward"] {
            assert!(
                number(&row[way]["seconds"]) > 0.0 && number(&row[way]["bytes"]) > 0.0,
                "{name}"
            );
            assert!(
                number(&row[way]["seconds_in_ops"]) <= number(&row[way]["seconds"]),
                "{name}"
            );
        }
        assert_eq!(row["calls"], 1, "{name}");
    }
    let forward: u64 = MNIST.iter().map(|(_, flops)| flops).sum();
    assert_eq!(forward, 5_588_480);
    assert_eq!(report["flops"], 3 * (3 * forward - MNIST[0].1));
    assert_eq!(row(&report, MNIST[0].0)["output"], serde_json::json!([3, 13, 13, 32]));
    assert_eq!(report["batch"], 3);
    assert_eq!(report["parameters"], 93_322);

    for part in ["input", "model", "loss", "backward", "optimizer", "step"] {
        assert_eq!(row(&report, part)["layer"], false);
    }
    // Adam: a gradient is read, a parameter and two moments are read and written.
    assert_eq!(
        row(&report, "optimizer")["forward"]["ops"].as_u64().map(|n| n >= 1),
        Some(true)
    );
    assert!(row(&report, "optimizer")["forward"]["bytes"].as_u64().unwrap() >= 28 * 93_322);

    let gaps: Vec<f64> = rows(&report).iter().map(|r| number(&r["gap_seconds"])).collect();
    assert!(gaps.is_sorted_by(|a, b| a >= b), "{gaps:?}");
    let sum: f64 = rows(&report).iter().map(|r| number(&r["seconds"])).sum();
    assert!((sum - number(&report["sum_seconds"])).abs() < 1e-9);
    assert!(number(&report["machine"]["flops_per_second"]) > 0.0);
    assert!(report["machine"]["memory"].as_array().unwrap().len() > 4);
}

#[test]
fn inference_is_the_forward_pass_alone() {
    let dir = tempfile::tempdir().unwrap();
    let report = profile(
        dir.path(),
        &["mnist-cnn", "--batch", "2", "--steps", "1", "--inference"],
    );
    assert_eq!(report["flops"], 2 * 5_588_480);
    assert!(
        rows(&report)
            .iter()
            .all(|r| r["backward"]["ops"] == 0 && r["name"] != "loss")
    );
}

#[test]
fn a_convolution_and_its_pooling_are_one_row() {
    let dir = tempfile::tempdir().unwrap();
    let report = profile(
        dir.path(),
        &["lenet", "--batch", "1", "--steps", "1", "--optimizer", "adam"],
    );
    for (name, output) in [("conv1+pool", [1, 14, 14, 6]), ("conv2+pool", [1, 5, 5, 16])] {
        let row = row(&report, name);
        assert_eq!(row["kind"], "Conv2d+MaxPool2d");
        assert_eq!(row["output"], serde_json::json!(output));
    }
    assert_eq!(report["work"], "training with adam");
}

#[test]
fn deep_nets_and_tokens_are_profiled_too() {
    let dir = tempfile::tempdir().unwrap();
    for (model, names) in [
        ("resnet18", &["conv1", "layer1.0.conv1", "layer4.1.bn2", "fc"][..]),
        ("gpt-mini", &["wte", "h.0.attn.c_attn", "h.5.mlp.c_proj", "lm_head"]),
    ] {
        let report = profile(dir.path(), &[model, "--batch", "1", "--steps", "1"]);
        for name in names {
            let row = row(&report, name);
            assert!(number(&row["forward"]["seconds"]) > 0.0, "{model}: {name}");
            assert!(number(&row["backward"]["ops"]) > 0.0, "{model}: {name}");
        }
        if model == "resnet18" {
            let chosen = row(&report, "layer1.0.conv1")["algorithms"].as_object().unwrap();
            for op in ["conv_moments", "conv_norm_grad", "conv_weight_grad"] {
                assert!(
                    chosen[op].as_str().is_some_and(|a| a.starts_with("Winograd")),
                    "{chosen:?}"
                );
            }
        }
    }
}

#[test]
fn a_trace_holds_every_layer_nested_in_its_step() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(
        dir.path(),
        &[
            "profile",
            "mnist-cnn",
            "--device",
            "cpu",
            "--batch",
            "1",
            "--steps",
            "2",
            "--trace",
            "t.json",
        ],
    );
    assert!(
        text.stdout.contains("t.json") && text.stdout.contains("sum of all rows"),
        "{}",
        text.stdout
    );
    let trace: Value = serde_json::from_slice(&std::fs::read(dir.path().join("t.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let spans: Vec<_> = events.iter().filter(|e| e["ph"] == "X").collect();
    let named = |name: &str| spans.iter().filter(|e| e["name"] == name).count();
    assert_eq!((named("step 0"), named("step 1"), named("step 2")), (1, 1, 0));
    for (layer, _) in MNIST {
        assert_eq!(named(layer), 2, "{layer}");
        assert!(named(&format!("{layer} (backward)")) >= 2, "{layer}");
    }
    for (name, count) in [
        ("conv", 2),
        ("conv_max_pool", 4),
        ("conv_weight_grad", 2),
        ("conv_data_grad", 2),
        ("conv_max_pool_grad", 4),
        ("adam", 2),
    ] {
        assert_eq!(named(name), count, "{name}");
    }
    // Microseconds with three decimals are whole nanoseconds.
    let nanos = |v: &Value| (number(v) * 1000.0).round() as u64;
    let ranges: Vec<(u64, u64)> = spans
        .iter()
        .map(|e| (nanos(&e["ts"]), nanos(&e["ts"]) + nanos(&e["dur"])))
        .collect();
    for a in &ranges {
        for b in &ranges {
            let apart = a.1 <= b.0 || b.1 <= a.0;
            let inside = (a.0 <= b.0 && b.1 <= a.1) || (b.0 <= a.0 && a.1 <= b.1);
            assert!(apart || inside, "{a:?} and {b:?} overlap");
        }
    }
    let conv = spans.iter().find(|e| e["name"] == MNIST[0].0).unwrap();
    assert_eq!(conv["args"]["input"], serde_json::json!([1, 28, 28, 1]));
    assert_eq!(conv["args"]["flops"], MNIST[0].1);
    assert!(events.iter().any(|e| e["ph"] == "M" && e["name"] == "process_name"));
}

#[test]
fn a_table_for_a_document_is_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "profile",
        "lenet",
        "--device",
        "cpu",
        "--batch",
        "1",
        "--steps",
        "1",
        "--markdown",
    ];
    let text = succeeds(dir.path(), &args).stdout;
    let cells: Vec<usize> = text
        .lines()
        .filter(|l| l.starts_with('|'))
        .map(|l| l.matches('|').count())
        .collect();
    assert!(cells.len() > 10 && cells.iter().all(|&n| n == 13), "{text}");
    assert!(
        text.starts_with("**lenet, batch 1, training with sgd, cpu with"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_profiled_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], code, parts: &[&str]| {
        let ran = run(dir.path(), &[&["profile"], args].concat());
        ran.fails(code, parts);
        assert_eq!(ran.stdout, "", "{args:?}");
    };
    refused(
        &["vgg17"],
        2,
        &["vgg17", "mnist-cnn", "lenet", "resnet18", "vgg11", "gpt-mini"],
    );
    refused(&[], 2, &["<MODEL>"]);
    refused(&["lenet", "--batch", "0"], 2, &["--batch", "0"]);
    refused(&["lenet", "--steps", "0"], 2, &["--steps", "0"]);
    refused(&["lenet", "--threads", "0"], 2, &["--threads"]);
    refused(&["lenet", "--json", "--markdown"], 2, &["--json", "--markdown"]);
    refused(&["lenet", "--inference", "--optimizer", "sgd"], 2, &["--optimizer"]);
    refused(&["lenet", "--device", "cuda:7"], 1, &["cuda:7"]);
    refused(
        &["lenet", "--trace", "no/such/folder/t.json"],
        1,
        &["no/such/folder/t.json", "folder"],
    );
    refused(&["lenet", "--trace", "."], 1, &["cannot write the trace"]);
}
