//! Tests of a run's folder: its lock, its files, and interference by other programs or the system.
#![cfg(unix)]

use crate::common::{Ran, kiln, names, run, succeeds};
use crate::signals::{code_within, send, start};
use rustix::process::Signal;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const RUN: [&str; 6] = [
    "best.safetensors",
    "config.json",
    "history.csv",
    "history.jsonl",
    "last.safetensors",
    "summary.json",
];

/// The arguments of a run that goes on until it is stopped, with short epochs.
fn endless(out: &str) -> Vec<&str> {
    vec![
        "train",
        "lenet",
        "--synthetic",
        "40",
        "--epochs",
        "1000000",
        "--out",
        out,
    ]
}

/// The arguments of a run that ends quickly.
fn short<'a>(out: &'a str, seed: &'a str) -> Vec<&'a str> {
    vec![
        "train",
        "lenet",
        "--synthetic",
        "8",
        "--epochs",
        "1",
        "--seed",
        seed,
        "--out",
        out,
    ]
}

/// The program's standard error, after it has ended.
fn said(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

/// The program under a limit of `kib` KiB per file.
fn limited(dir: &Path, kib: u32, args: &[&str]) -> Command {
    let program = kiln(dir, args);
    let mut command = Command::new("bash");
    let script = format!("ulimit -f {kib} && exec \"$@\"");
    command.args(["-c", &script, "bash"]).arg(program.get_program());
    command.args(program.get_args()).current_dir(dir).stdin(Stdio::null());
    command.env("KILN_CUDA_DRIVER", crate::common::NO_DRIVER);
    command
}

#[test]
fn a_folder_of_someones_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h");
    std::fs::create_dir(&path).unwrap();
    for theirs in [".draft.tmp", "x"] {
        std::fs::write(path.join(theirs), b"mine").unwrap();
        let before = names(&path);
        run(dir.path(), &short("h", "0")).fails(1, &["h: already holds", "help: ", "--out"]);
        assert_eq!(names(&path), before);
    }
}

#[test]
fn a_second_start_does_not_disturb_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = start(dir.path(), &endless("run"), "epoch 1/");
    let process = format!("process {} ", first.id());
    let second = run(dir.path(), &short("run", "0"));
    second.fails(1, &["run: a run", &process, "works in this folder", "help: ", "--out"]);
    assert!(first.try_wait().unwrap().is_none());
    send(&first, Signal::INT);
    assert_eq!(code_within(&mut first, 60), Some(130), "{}", said(&mut first));
    assert_eq!(names(&dir.path().join("run")), RUN);
}

#[test]
fn of_two_starts_at_once_one_gets_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let out = format!("run-{round}");
        let seeds = ["1", "2"];
        let start = |seed| {
            let mut command = kiln(dir.path(), &short(&out, seed));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let ran = seeds.map(start).map(|child| Ran::of(child.wait_with_output().unwrap()));
        let winner = ran.iter().position(|r| r.code == Some(0)).unwrap();
        ran[1 - winner].fails(1, &[&out, "choose another folder"]);
        let config = std::fs::read(dir.path().join(&out).join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["seed"].to_string(), seeds[winner]);
        assert_eq!(names(&dir.path().join(&out)), RUN);
    }
}

#[test]
fn what_killed_runs_leave_goes_when_their_folder_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..8u64 {
        let out = format!("run-{round}");
        let mut child = start(dir.path(), &endless(&out), "epoch 1/");
        std::thread::sleep(Duration::from_millis(3 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let path = dir.path().join(&out);
        // The state after a run that was killed in the middle of a save.
        std::fs::write(path.join(".last.safetensors.kiln-tmp"), b"half").unwrap();
        std::fs::write(path.join(".mine.tmp"), b"whole").unwrap();
        assert!(names(&path).contains(&".kiln.lock".to_string()));
        run(dir.path(), &short(&out, "0")).fails(1, &["already holds"]);
        let weights = format!("{out}/last.safetensors");
        succeeds(dir.path(), &["eval", "--weights", &weights, "--synthetic", "8"]);
        assert_eq!(names(&path), [&[".mine.tmp"], &RUN[..]].concat());
    }
}

#[test]
fn files_that_somebody_removes_are_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut child = start(dir.path(), &endless("run"), "epoch 2/");
    for name in ["history.jsonl", "history.csv", "config.json"] {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    send(&child, Signal::INT);
    assert_eq!(code_within(&mut child, 60), Some(130));
    let said = said(&mut child);
    for part in [
        "warning: run/history.jsonl: was removed",
        "warning: run/history.csv: was removed",
        "warning: run/config.json: was removed",
    ] {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
    assert_eq!(names(&path), RUN);
    let history = std::fs::read_to_string(path.join("history.jsonl")).unwrap();
    assert!(history.starts_with("{\"epoch\":1,"), "{history}");
    let config = std::fs::read(path.join("config.json")).unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&config).unwrap()["model"],
        "lenet"
    );
}

#[test]
fn a_folder_that_is_moved_is_followed_and_one_that_is_removed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path(), &endless("run"), "epoch 1/");
    std::fs::rename(dir.path().join("run"), dir.path().join("moved")).unwrap();
    send(&child, Signal::TERM);
    assert_eq!(code_within(&mut child, 60), Some(143));
    let said_moved = said(&mut child);
    assert!(
        said_moved.contains("warning: run: the folder was moved"),
        "{said_moved}"
    );
    assert_eq!(names(dir.path()), ["moved"]);
    assert_eq!(names(&dir.path().join("moved")), RUN);

    let mut child = start(dir.path(), &endless("gone"), "epoch 1/");
    // The removal is repeated because the run may write a file meanwhile.
    while std::fs::remove_dir_all(dir.path().join("gone")).is_err() {}
    assert_eq!(code_within(&mut child, 60), Some(1));
    let said = said(&mut child);
    assert!(said.contains("error: gone") && !said.contains("panicked"), "{said}");
}

#[test]
fn a_folder_that_becomes_read_only_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut child = start(dir.path(), &endless("run"), "epoch 1/");
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o500);
    if std::fs::write(path.join("probe"), b"").is_ok() {
        // Permissions do not stop a privileged user, so the test ends here.
        child.kill().unwrap();
        child.wait().unwrap();
        return;
    }
    assert_eq!(code_within(&mut child, 60), Some(1));
    mode(0o700);
    let said = said(&mut child);
    assert!(said.contains("error: run/") && said.contains("cannot write"), "{said}");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_leaves_nothing_half() {
    let dir = tempfile::tempdir().unwrap();
    let weights = Ran::of(limited(dir.path(), 100, &short("run", "0")).output().unwrap());
    weights.fails(1, &["run/last.safetensors", "(102400 bytes)", "ulimit -f"]);
    assert_eq!(
        names(&dir.path().join("run")),
        ["config.json", "history.csv", "history.jsonl", "summary.json"]
    );

    let profile = ["profile", "lenet", "--steps", "1", "--trace", "trace.json"];
    let trace = Ran::of(limited(dir.path(), 1, &profile).output().unwrap());
    trace.fails(1, &["trace.json", "(1024 bytes)", "ulimit -f"]);

    let folder = Ran::of(limited(dir.path(), 0, &short("none", "0")).output().unwrap());
    folder.fails(1, &["none/", "(0 bytes)", "ulimit -f"]);
    assert_eq!(names(&dir.path().join("none")), [""; 0]);

    let out = std::fs::File::create(dir.path().join("out")).unwrap();
    let told = limited(dir.path(), 0, &["devices"]).stdout(out).output().unwrap();
    Ran::of(told).fails(1, &["cannot write to standard output"]);
    assert_eq!(names(dir.path()), ["none", "out", "run"]);
}

#[test]
fn a_full_disk_is_an_error() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let told = kiln(dir.path(), &["devices"]).stdout(full).output().unwrap();
    Ran::of(told).fails(1, &["cannot write to standard output"]);
}

#[test]
fn names_that_cannot_be_a_runs_folder_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), b"mine").unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(dir.path().join("fifo"))
            .status()
            .unwrap()
            .success()
    );
    for (out, code, part) in [
        ("file", 1, "file: is a regular file, not a folder"),
        ("fifo", 1, "fifo: is a FIFO, not a folder"),
        ("link", 1, "link: is a link to nowhere, not a folder"),
        ("", 2, "--out"),
        ("a\u{1b}[2Jb", 2, "control characters"),
        ("a\nb", 2, "control characters"),
    ] {
        let ran = run(dir.path(), &short(out, "0"));
        ran.fails(code, &[part]);
        assert!(!ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    }
    assert_eq!(names(dir.path()), ["fifo", "file", "link"]);
    for trace in ["fifo", "link", "/dev/null"] {
        let ran = run(dir.path(), &["profile", "lenet", "--steps", "1", "--trace", trace]);
        ran.fails(1, &["cannot write the trace", trace, "not a regular file", "help: "]);
    }
    assert_eq!(names(dir.path()), ["fifo", "file", "link"]);
}
