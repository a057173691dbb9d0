//! Tests of SIGINT (Ctrl-C) and SIGTERM.
#![cfg(unix)]

use crate::common::{kiln, names};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Starts a run and waits until it has printed a line with `mark`.
pub(crate) fn start(dir: &std::path::Path, args: &[&str], mark: &str) -> Child {
    let mut child = kiln(dir, args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = lines.by_ref().map_while(Result::ok).any(|l| l.contains(mark));
    assert!(seen, "the run ended before it printed `{mark}`");
    // The pipe is read to its end, so that the program can go on printing.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The exit code, waiting at most this many seconds.
pub(crate) fn code_within(child: &mut Child, seconds: u64) -> Option<i32> {
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
            [
                "config.json",
                "history.csv",
                "history.jsonl",
                "last.safetensors",
                "summary.json"
            ]
        );
    }
}

/// Waits until a program has used a second of processor time: preparing a batch of a few thousand images takes less, and
/// its step much more, so the step is then in progress.
#[cfg(target_os = "linux")]
pub(crate) fn wait_for_the_step(child: &mut Child) {
    while processor_time(child) < 100 {
        assert!(
            child.try_wait().unwrap().is_none(),
            "the run ended before its first step"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Hundredths of a second of processor time that a program has used.
#[cfg(target_os = "linux")]
fn processor_time(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    // Fields 14 and 15 of the line, user and system time in hundredths; the name in brackets before them may hold spaces.
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    fields.skip(11).take(2).map(|f| f.parse::<u64>().unwrap()).sum()
}

#[cfg(target_os = "linux")]
#[test]
fn the_second_signal_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // The program may give the step up so quickly that the second signal finds it exiting; three attempts are made.
    for out in ["one", "two", "three"] {
        let size = ["--synthetic", "8000", "--batch", "8000", "--threads", "1"];
        let args = [&["train", "mnist-cnn", "--out", out][..], &size].concat();
        let mut child = start(dir.path(), &args, "run folder");
        wait_for_the_step(&mut child);
        send(&child, Signal::INT);
        std::thread::sleep(Duration::from_millis(50));
        send(&child, Signal::TERM);
        if code_within(&mut child, 30) == Some(143) {
            assert!(!dir.path().join(out).join("last.safetensors").exists());
            return;
        }
    }
    panic!("the second signal did not end the program");
}

#[cfg(target_os = "linux")]
#[test]
fn a_step_that_takes_long_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    // A step takes several times the two seconds that a run waits for it after a request to stop, even on a fast processor.
    let sizes = [
        &["--synthetic", "16000", "--batch", "16000"][..],
        &["--synthetic", "80000", "--batch", "50", "--accumulate", "1600"],
    ];
    let weights = sizes.map(|sizes| {
        let out = format!("run{}", sizes.concat());
        let common = ["train", "mnist-cnn", "--threads", "1", "--out", &out];
        let args = [&common[..], sizes].concat();
        let mut child = start(dir.path(), &args, "run folder");
        wait_for_the_step(&mut child);
        send(&child, Signal::INT);
        assert_eq!(code_within(&mut child, 60), Some(130));
        let path = dir.path().join(out);
        assert_eq!(
            names(&path),
            [
                "config.json",
                "history.csv",
                "history.jsonl",
                "last.safetensors",
                "summary.json"
            ]
        );
        std::fs::read(path.join("last.safetensors")).unwrap()
    });
    // Both runs saved the initial weights, because neither finished its first step.
    assert!(weights[0] == weights[1]);
}

#[test]
fn a_signal_ends_all_runs_of_a_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let common = ["sweep", "lenet", "--synthetic", "1000000", "--out", "all"];
    let args = [&common[..], &["--over", "seed=0,1,2", "--jobs", "2"]].concat();
    let mut child = start(dir.path(), &args, "3 runs in all");
    let begun = |run: &str| dir.path().join("all").join(run).join("config.json").exists();
    let until = Instant::now() + Duration::from_secs(60);
    while !(begun("1") && begun("2")) {
        assert!(Instant::now() < until, "two runs do not go on at the same time");
        std::thread::sleep(Duration::from_millis(10));
    }
    send(&child, Signal::INT);
    assert_eq!(code_within(&mut child, 20), Some(130));
    assert!(!begun("3"));
    for run in ["all/1", "all/2"] {
        // A run that went on would hold its folder.
        crate::common::run(dir.path(), &["train", "--resume", run]).fails(1, &["no checkpoint"]);
    }
}
