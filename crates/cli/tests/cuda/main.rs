//! Tests of the program on the emulated CUDA driver, or on the one that `KILN_CUDA_DRIVER` names.

#[cfg(target_os = "linux")]
mod energy;
#[cfg(target_os = "linux")]
mod nvtx;
#[cfg(target_os = "linux")]
#[path = "../suite/profiler.rs"]
mod profiler;
#[path = "../suite/program.rs"]
mod program;

mod forecast;
mod memory;
mod tasks;
mod twin;

use kiln_cpu::Cpu;
use kiln_nn::module::Value;
use kiln_nn::weights;
use program::{Ran, kiln};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The program with a GPU, to be run in `dir`.
fn with_gpu(dir: &Path, args: &[&str]) -> Command {
    let driver = std::env::var_os("KILN_CUDA_DRIVER").filter(|d| !d.is_empty());
    let emulator = || kiln_device::emulator::beside().expect("cargo builds the emulator beside its tests");
    let mut command = kiln(dir, args);
    command.env("KILN_CUDA_DRIVER", driver.unwrap_or_else(|| emulator().into()));
    command
}

/// Runs the program with a GPU.
fn run(dir: &Path, args: &[&str]) -> Ran {
    Ran::of(with_gpu(dir, args).output().unwrap())
}

fn run_with(dir: &Path, args: &[&str], driver: OsString) -> Ran {
    Ran::of(kiln(dir, args).env("KILN_CUDA_DRIVER", driver).output().unwrap())
}

fn succeeds(dir: &Path, args: &[&str]) -> Ran {
    let ran = run(dir, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.stdout, ran.stderr);
    ran
}

/// The values of a weights file by name.
fn read(path: &Path) -> Vec<(String, Vec<f64>)> {
    let (dict, _) = weights::read(path, &Cpu::new()).unwrap();
    let values = dict.iter().map(|(name, value)| match value {
        Value::Float(t) => (name.to_string(), t.to_f64().unwrap()),
        Value::Int(_) => (name.to_string(), Vec::new()),
    });
    values.collect()
}

#[test]
fn training_on_a_gpu_is_training_on_the_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let train = |model: &str, device: &str, more: &[&str]| {
        let out = format!("{model}-{device}{}", more.concat());
        let args = [
            "train",
            model,
            "--synthetic",
            "10",
            "--batch",
            "2",
            "--max-steps",
            "4",
            "--optimizer",
            "sgd",
            "--lr",
            "0.02",
            "--momentum",
            "0.9",
            "--clip-norm",
            "1",
            "--seed",
            "5",
            "--json",
            "--device",
            device,
            "--out",
            &out,
        ];
        let lines = succeeds(dir.path(), &[&args[..], more].concat()).json();
        let last = dir.path().join(&out).join("last.safetensors");
        (lines, std::fs::read(&last).unwrap(), read(&last))
    };
    for model in ["mnist-cnn", "lenet"] {
        let (lines, bytes, weights) = train(model, "cuda", &[]);
        assert_eq!(lines[0]["config"]["device"]["name"], "cuda:0");
        let end = lines.last().unwrap();
        let made = &end["execution"];
        assert_eq!(
            (&made["eager"], &made["recorded"], &made["replayed"]),
            (&1.into(), &1.into(), &2.into())
        );
        assert_eq!(
            (&made["allocations"], &end["not_captured"]),
            (&0.into(), &serde_json::Value::Null)
        );
        assert!(made["launches"].as_u64().unwrap() > 12, "{made}");

        let (lines, plain, _) = train(model, "cuda", &["--no-capture"]);
        assert!(plain == bytes, "{model}: recorded steps are the steps");
        assert_eq!(lines.last().unwrap()["execution"]["eager"], 4);

        // Initial weights, order and batches are the same, so only rounding differs.
        let (_, _, on_cpu) = train(model, "cpu", &[]);
        for ((name, a), (_, b)) in weights.iter().zip(&on_cpu) {
            for (a, b) in a.iter().zip(b) {
                assert!(
                    (a - b).abs() <= 1e-5 + 1e-4 * b.abs(),
                    "{model} {name}: {a}, on the CPU {b}"
                );
            }
        }
    }
}

#[test]
fn twenty_recorded_steps_are_twenty_steps() {
    let dir = tempfile::tempdir().unwrap();
    for model in ["mnist-cnn", "lenet"] {
        let train = |out: &str, more: &[&str]| {
            let out = format!("{model}-{out}");
            // Each network is trained with the optimizer of its recipe.
            let args = [
                "train",
                model,
                "--synthetic",
                "40",
                "--batch",
                "2",
                "--max-steps",
                "20",
                "--json",
                "--device",
                "cuda",
                "--out",
                &out,
            ];
            let lines = succeeds(dir.path(), &[&args[..], more].concat()).json();
            let made = lines.last().unwrap()["execution"].clone();
            (
                made,
                std::fs::read(dir.path().join(&out).join("last.safetensors")).unwrap(),
            )
        };
        let (made, recorded) = train("recorded", &[]);
        assert_eq!(
            (&made["replayed"], &made["allocations"]),
            (&18.into(), &0.into()),
            "{made}"
        );
        let (made, plain) = train("plain", &["--no-capture"]);
        assert_eq!(made["eager"], 20, "{made}");
        assert!(
            recorded == plain,
            "{model}: 20 recorded steps give other bits than 20 steps"
        );
    }
}

#[test]
fn saved_weights_are_measured_on_a_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let train = [
        "train",
        "lenet",
        "--synthetic",
        "40",
        "--epochs",
        "1",
        "--device",
        "cpu",
        "--out",
        "run",
    ];
    succeeds(dir.path(), &train);
    let eval = |device: &str| {
        let args = [
            "eval",
            "-w",
            "run/last.safetensors",
            "--synthetic",
            "40",
            "--json",
            "--device",
            device,
        ];
        succeeds(dir.path(), &args).json().remove(0)
    };
    let (gpu, cpu) = (eval("cuda:0"), eval("cpu"));
    assert_eq!(
        (&gpu["accuracy"], &gpu["confusion"]),
        (&cpu["accuracy"], &cpu["confusion"])
    );
    let loss = |v: &serde_json::Value| v["loss"].as_f64().unwrap();
    assert!((loss(&gpu) - loss(&cpu)).abs() < 1e-5, "{gpu} {cpu}");
}

#[test]
fn a_step_is_profiled_by_the_same_rows_as_on_the_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["profile", "lenet", "--batch", "4", "--steps", "2", "--device"];
    let report = |device: &str| {
        succeeds(dir.path(), &[&args[..], &[device, "--json"]].concat())
            .json()
            .remove(0)
    };
    let (gpu, cpu) = (report("cuda"), report("cpu"));
    assert_eq!(
        (&gpu["device"], &gpu["batch"], &gpu["steps"]),
        (&"cuda:0".into(), &4.into(), &2.into())
    );
    for same in ["parameters", "flops"] {
        assert_eq!(gpu[same], cpu[same], "{same}");
    }
    // The least cost of an op does not depend on the device, but its time and so the order of rows do. A convolution with
    // its pooling is one op on the CPU and two here, which write and read the convolution's result.
    let rows = |report: &serde_json::Value| {
        let counted = |row: &serde_json::Value| {
            let pooled = row["kind"].as_str().is_some_and(|kind| kind.contains("MaxPool"));
            let way = |way: &str| {
                let count = |n: &str| row[way][n].as_u64().unwrap();
                (count("flops"), (!pooled).then(|| ["ops", "bytes"].map(count)))
            };
            let place = ["name", "kind", "input", "output", "calls"].map(|n| row[n].to_string());
            (place, way("forward"), way("backward"))
        };
        let mut rows: Vec<_> = report["rows"].as_array().unwrap().iter().map(counted).collect();
        rows.sort();
        rows
    };
    assert_eq!(rows(&gpu), rows(&cpu));
    let number = |v: &serde_json::Value| v.as_f64().unwrap_or_else(|| panic!("no number: {v}"));
    for row in gpu["rows"].as_array().unwrap() {
        let parts = number(&row["forward"]["seconds"]) + number(&row["backward"]["seconds"]);
        assert!((number(&row["seconds"]) - parts).abs() < 1e-9, "{row}");
        if row["layer"] == true {
            assert!(
                number(&row["forward"]["seconds"]) > 0.0 && number(&row["floor_seconds"]) >= 0.0,
                "{row}"
            );
        }
    }
    // The rates of the device are measured by its own products and copies.
    let machine = &gpu["machine"];
    assert!(number(&machine["flops_per_second"]) > 0.0, "{machine}");
    assert!(
        machine["flops_measured_by"].as_str().unwrap().contains("product"),
        "{machine}"
    );
    assert_eq!(machine["bytes_measured_by"], "copying");
    let rates = machine["memory"].as_array().unwrap();
    assert!(
        !rates.is_empty() && rates.iter().all(|r| number(&r["bytes_per_second"]) > 0.0),
        "{machine}"
    );

    let table = succeeds(dir.path(), &[&args[..], &["cuda:0", "--trace", "t.json"]].concat()).stdout;
    assert!(
        table.starts_with("lenet, batch 4, training with sgd, cuda:0 ("),
        "{table}"
    );
    for row in [
        "conv1+pool (Conv2d+MaxPool2d)",
        "(optimizer)",
        "sum of all rows",
        "trace: t.json",
    ] {
        assert!(table.contains(row), "no `{row}` in: {table}");
    }
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.path().join("t.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(
        events
            .iter()
            .filter(|e| e["ph"] == "X" && e["name"] == "conv1+pool")
            .count(),
        2
    );
}

#[test]
fn devices_are_listed_and_chosen_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let listed = succeeds(dir.path(), &["devices", "--json"]).json().remove(0);
    let gpu = &listed["devices"][1];
    assert_eq!((&gpu["name"], &gpu["usable"]), (&"cuda:0".into(), &true.into()));
    for number in ["memory", "multiprocessors", "clock_khz", "memory_clock_khz"] {
        assert!(gpu[number].as_u64().unwrap() > 0, "{number} of {gpu}");
    }
    let text = succeeds(dir.path(), &["devices"]).stdout;
    for part in ["cuda:0", "compute capability", "GiB", "multiprocessor", "MHz"] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    let missing = ["train", "lenet", "--synthetic", "4", "--device", "cuda:77"];
    run(dir.path(), &missing).fails(1, &["cuda:77", "no such device", "kiln devices"]);
}

#[test]
fn without_a_driver_the_cpu_is_taken_or_the_reason_told() {
    let dir = tempfile::tempdir().unwrap();
    let run = |device: &str| {
        let args = [
            "train",
            "lenet",
            "--synthetic",
            "8",
            "--epochs",
            "1",
            "--device",
            device,
            "--out",
            "run",
        ];
        run_with(dir.path(), &args, "no/such/driver.so".into())
    };
    run("cuda").fails(1, &["no/such/driver.so", "--device cpu"]);
    let ran = run("auto");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let first = ran.stdout.lines().next().unwrap();
    assert!(
        first.starts_with("device: cpu, ") && first.contains("no/such/driver.so"),
        "{first}"
    );
    let listed = run_with(dir.path(), &["devices"], "no/such/driver.so".into());
    assert!(listed.stdout.contains("no/such/driver.so"), "{}", listed.stdout);
}

#[test]
fn a_run_and_its_report_name_the_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "train",
        "lenet",
        "--synthetic",
        "10",
        "--batch",
        "2",
        "--epochs",
        "1",
        "--device",
        "cuda",
        "--tensorboard",
        "--report",
        "--out",
        "run",
    ];
    let ran = succeeds(dir.path(), &args);
    // The run has given the device back, and the report takes it again.
    assert!(ran.stderr.is_empty(), "{}", ran.stderr);
    let summary = std::fs::read(dir.path().join("run/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&summary).unwrap();
    assert_eq!(summary["environment"]["device"], "cuda:0");
    let page = std::fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    for part in ["id=\"confusion\"", "id=\"layers\"", "<td>cuda:0</td>"] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(
        std::fs::read_dir(dir.path().join("run/tensorboard")).unwrap().count(),
        1
    );
}
