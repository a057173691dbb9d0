//! Tests of `kiln-cuda-bench` as a user runs it, on the emulated driver: JSON lines, filters, limits, the report; and of
//! run.sh.

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln-cuda-bench"));
    let emulator = kiln_device::emulator::beside().expect("the emulated driver lies beside this test");
    command.args(words).env("KILN_CUDA_DRIVER", emulator);
    command.output().expect("kiln-cuda-bench runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The ids of the measurements of `kiln-cuda-bench run`, which follow the line on the device.
fn ids(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout).lines();
    let mut lines = lines.map(|l| serde_json::from_str::<Value>(l).expect("a line of JSON"));
    assert!(lines.next().expect("a line on the device")["device"].is_string());
    let id = |line: Value| {
        assert!(line["seconds"].as_f64().is_some_and(|s| s > 0.0), "{line}");
        line["id"].as_str().expect("an id").to_string()
    };
    lines.map(id).collect()
}

#[test]
fn measures_what_was_asked_for_and_reports_it() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-bench");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (lines, results) = (folder.join("kiln.jsonl"), folder.join("results.json"));
    let _ = std::fs::remove_file(&lines);
    let [lines, results] = [&lines, &results].map(|p| p.to_str().expect("UTF-8"));

    // The two larger layers exceed the limit, and `f32` does not match `tf32`.
    let run = bench(&[
        "run",
        "--quick",
        "--max-flops",
        "1000000",
        "--out",
        lines,
        "linear-relu/f32",
        "optim-adam",
    ]);
    assert_eq!(ids(&run), ["linear-relu/f32/128x64x10"]);
    assert_eq!(std::fs::read(lines).expect("--out is written"), run.stdout);

    let peer = folder.join("peer.jsonl");
    let theirs = r#"{"id": "linear-relu/f32/128x64x10", "variant": "cublas", "seconds": 0.5}"#;
    std::fs::write(&peer, theirs).expect("a file");
    let peer = peer.to_str().expect("UTF-8");
    let report = bench(&["report", lines, peer, "--out", results, "--date", "2000-02-29"]);
    assert!(report.status.success(), "{}", text(&report.stderr));
    let table = text(&report.stdout);
    assert!(
        table.starts_with("linear-relu/f32/128x64x10") && table.contains("of cublas"),
        "{table}"
    );
    let json: Value = serde_json::from_slice(&std::fs::read(results).expect("results")).expect("JSON");
    assert_eq!(
        (&json["date"], json["results"].as_array().map(Vec::len)),
        (&"2000-02-29".into(), Some(1))
    );
    let row = &json["results"][0];
    assert!(row["kiln"]["auto"]["gflops"].as_f64().is_some_and(|g| g > 0.0), "{row}");
    assert_eq!(row["peer_seconds"]["cublas"], 0.5);
}

/// Writes an executable shell script to `path`.
fn script(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}

fn json(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// run.sh in a bundle with this bench, a command that prints its arguments, and conformance tests that fail.
#[test]
fn a_bundle_says_what_ran_and_what_did_not() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bundle");
    let _ = std::fs::remove_dir_all(&folder);
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    std::fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/run.sh"),
        folder.join("run.sh"),
    )
    .expect("run.sh");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kiln-cuda-bench"), bin.join("kiln-cuda-bench")).expect("a link");
    script(&bin.join("kiln"), "echo $*");
    script(&bin.join("conformance"), "echo cases: $PROPTEST_CASES; exit 3");
    // A Python without PyTorch, whose message has quotes.
    script(&folder.join("python"), r#"echo noise; echo 'no "torch"'; exit 1"#);
    let run = |words: &[&str]| {
        let mut command = Command::new("bash");
        command.arg(folder.join("run.sh")).args(words).current_dir(&folder);
        let emulator = kiln_device::emulator::beside().expect("the emulated driver lies beside this test");
        command
            .env("KILN_CUDA_DRIVER", emulator)
            .env("PYTHON", folder.join("python"))
            // An H100, for its modelled times.
            .envs([("KILN_EMULATOR_SM", "90"), ("KILN_EMULATOR_MULTIPROCESSORS", "132")])
            .env("KILN_EMULATOR_MEMORY", "80000000000");
        command.output().expect("bash runs")
    };

    let limits = ["--quick", "--max-flops", "20000000", "--filter", "step/f32/lenet"];
    let parts = ["conformance", "sanitizer", "bench", "train"];
    let options = ["--cases", "2", "--train", "--max-steps 3", "--out", "out"];
    let output = run(&[&limits[..], &options, &parts].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let out = folder.join("out");
    let summary = json(&out.join("summary.json"));
    let ended: Vec<_> = summary["parts"].as_array().expect("parts").iter().collect();
    let ended: Vec<_> = ended.iter().map(|p| (p["part"].as_str(), p["exit"].as_i64())).collect();
    let parts = [("conformance", 3), ("bench-kiln", 0), ("report", 0), ("train", 0)];
    assert_eq!(ended, parts.map(|(name, code)| (Some(name), Some(code))));
    assert_eq!(
        summary["skipped"],
        json!([
            { "part": "sanitizer", "why": "--quick has none" },
            { "part": "bench-torch", "why": r#"no "torch""# },
        ])
    );
    let said = |file: &str| std::fs::read_to_string(out.join(file)).expect("a file of the run");
    assert_eq!(said("conformance.txt"), "cases: 2\n");
    assert!(said("train.txt").starts_with("train mnist-cnn --device cuda --max-steps 3 --out "));

    // Only the smallest batch is within the limit; both ways of training it are measured, and the record has the reason
    // why there is no peer.
    let results = json(&out.join("results.json"));
    let rows = results["results"].as_array().expect("results");
    assert_eq!(rows.len(), 1, "{results}");
    assert_eq!(
        (&rows[0]["id"], &rows[0]["headline"]),
        (&"step/f32/lenet-b4".into(), &"graph".into())
    );
    for way in ["eager", "graph"] {
        let rate = &rows[0]["kiln"][way]["images_per_second"];
        assert!(rate.as_f64().is_some_and(|r| r > 0.0), "{rows:?}");
    }
    // The graph's launches are modelled beside what was measured.
    let graph = &rows[0]["kiln"]["graph"];
    let number = |name: &str| graph[name].as_f64().unwrap_or_else(|| panic!("no {name}: {graph}"));
    assert!(
        number("modelled_seconds") > 1e-5 && number("modelled_seconds") < 1e-3,
        "{graph}"
    );
    let [measured, ratio] = ["seconds", "measured_by_modelled"].map(number);
    assert!(
        (measured / number("modelled_seconds") / ratio - 1.0).abs() < 1e-9,
        "{graph}"
    );
    assert!(said("report.txt").contains(" us modelled"), "{}", said("report.txt"));
    assert_eq!(results["about"][0]["modelled_as"], "h100");
    let skipped = json!({ "peer": "torch", "skipped": r#"no "torch""# });
    assert!(
        results["about"].as_array().is_some_and(|a| a.contains(&skipped)),
        "{results}"
    );

    // Whole nets alone name the card as well.
    let output = run(&["--filter", "no-such-net", "--out", "nets", "nets"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let nets = json(&folder.join("nets/nets.json"));
    assert_eq!(nets["results"], json!([]));
    let about = &nets["about"];
    assert_eq!(about[0]["compute_capability"], "9.0", "{about}");
    assert!(about[0]["driver"].as_str().is_some_and(|d| !d.is_empty()), "{about}");
    assert_eq!(about[1]["peer"], "torch", "{about}");

    for wrong in [&["--filter"][..], &["--fast"], &["benches"]] {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(text(&output.stderr).starts_with("run.sh: "), "{}", text(&output.stderr));
    }
}

#[test]
fn bytes_are_limited_too() {
    let run = bench(&["run", "--quick", "--max-bytes", "5000000", "optim-adam"]);
    assert_eq!(ids(&run), ["optim-adam/f32/mnist-cnn"]);
}

#[test]
fn a_filter_that_finds_nothing_is_an_error() {
    for words in [
        &["run", "um/"][..],
        &["run", "--max-bytes", "1", "sum/"],
        &["run", "--device", "7", "gemm"],
    ] {
        let run = bench(words);
        assert_eq!(run.status.code(), Some(1), "{words:?}");
        assert!(
            text(&run.stderr).starts_with("kiln-cuda-bench: "),
            "{}",
            text(&run.stderr)
        );
    }
    let none = bench(&["report", "no-such-file"]);
    assert!(!none.status.success() && text(&none.stderr).contains("no-such-file"));
}
