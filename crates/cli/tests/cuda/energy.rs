//! The energy of a run, by a management library that this test compiles: its counter grows by 2.5 J whenever it is read.

use crate::with_gpu;
use std::process::Command;

#[test]
fn the_energy_of_training_and_of_validation_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("nvml.rs"), dir.path().join("libnvml.so"));
    std::fs::write(&source, include_str!("../../../monitor/tests/stub/nvml.rs.in")).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "--crate-type=cdylib", "-Anon_snake_case", "-o"]);
    assert!(command.arg(&library).arg(&source).output().unwrap().status.success());
    let args = [
        "train",
        "lenet",
        "--synthetic",
        "4",
        "--batch",
        "2",
        "--epochs",
        "2",
        "--device",
        "cuda",
        "--out",
        "run",
    ];
    let ran = with_gpu(dir.path(), &args).env("KILN_NVML", &library).output().unwrap();
    let told = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{told}{}", String::from_utf8_lossy(&ran.stderr));
    let history = std::fs::read_to_string(dir.path().join("run/history.jsonl")).unwrap();
    let (mut train, mut valid) = (0.0, 0.0);
    for line in history.lines() {
        let epoch: serde_json::Value = serde_json::from_str(line).unwrap();
        let of = |name: &str| {
            epoch["machine"][name]
                .as_f64()
                .unwrap_or_else(|| panic!("no {name} in {line}"))
        };
        // One look at the end of each, and one for each second in between.
        assert!(of("joules") >= 2.5 && of("valid_joules") >= 2.5, "{line}");
        assert_eq!(
            (of("gpu_joules"), of("valid_gpu_joules")),
            (of("joules"), of("valid_joules"))
        );
        assert!(epoch["machine"]["valid_gpu_watts"].is_null(), "{line}");
        train += of("joules");
        valid += of("valid_joules");
    }
    let epochs: Vec<&str> = told
        .lines()
        .filter(|line| line.contains(" J more in validation"))
        .collect();
    assert_eq!(epochs.len(), 2, "{told}");
    let summary = std::fs::read_to_string(dir.path().join("run/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["machine"]["joules"].as_f64(), Some(train));
    assert_eq!(summary["machine"]["valid_joules"].as_f64(), Some(valid));
    let ran = with_gpu(dir.path(), &["report", "run", "--brief"]).output().unwrap();
    assert!(ran.status.success());
    let page = std::fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    for part in ["joules of an epoch", "energy of training, all", "and of validation"] {
        assert!(page.contains(part), "{part}");
    }
}
