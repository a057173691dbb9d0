//! `kiln-cuda-bench` as a user runs it, on the emulated driver: lines of JSON, filters, limits, the report.

use serde_json::Value;
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

/// The ids of what `kiln-cuda-bench run` measured, after the line on the device.
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

    // The two larger layers are beyond the limit, and `f32` is no part of `tf32`.
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
