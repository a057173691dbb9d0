//! Ctrl-C and SIGTERM.
#![cfg(unix)]

use crate::common::{kiln, names};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Starts a run and waits until it has printed a line with `mark`.
fn start(dir: &std::path::Path, args: &[&str], mark: &str) -> Child {
    let mut child = kiln(dir, args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = lines.by_ref().map_while(Result::ok).any(|l| l.contains(mark));
    assert!(seen, "the run ended before it printed `{mark}`");
    // The pipe stays open and is read to its end, so that the program can go on printing.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The exit code, within a time.
fn code_within(child: &mut Child, seconds: u64) -> Option<i32> {
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("still running after {seconds} s");
}

#[test]
fn the_first_signal_finishes_the_step_and_saves() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let dir = tempfile::tempdir().unwrap();
        let args = [
            "train",
            "lenet",
            "--synthetic",
            "1000000",
            "--log-every",
            "1",
            "--out",
            "run",
        ];
        let mut child = start(dir.path(), &args, "batch 2/");
        send(&child, signal);
        assert_eq!(code_within(&mut child, 5), Some(code));
        assert_eq!(
            names(&dir.path().join("run")),
            ["config.json", "history.jsonl", "last.safetensors"]
        );
    }
}

#[test]
fn the_second_signal_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // One batch of this size takes much longer than the test.
    let args = [
        "train",
        "mnist-cnn",
        "--synthetic",
        "30000",
        "--batch",
        "30000",
        "--out",
        "run",
    ];
    let mut child = start(dir.path(), &args, "run folder");
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        child.try_wait().unwrap().is_none(),
        "the first signal waits for the step"
    );
    send(&child, Signal::TERM);
    assert_eq!(code_within(&mut child, 2), Some(143));
    assert!(!dir.path().join("run/last.safetensors").exists());
}
