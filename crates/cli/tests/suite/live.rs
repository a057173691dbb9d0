//! The live view, on a terminal that this test holds the other end of.
#![cfg(target_os = "linux")]

use crate::common::{kiln, names};
use crate::signals::{code_within, send, wait_for_the_step};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// The user's end of a terminal, and what was written on it.
struct Terminal {
    user: File,
    program: File,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn new(columns: u16, rows: u16) -> Self {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let name = ptsname(&user, Vec::new()).unwrap();
        let program = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let terminal = Terminal {
            user: user.into(),
            program: program.into(),
            seen: Arc::default(),
        };
        terminal.resize(columns, rows);
        let (mut reads, seen) = (terminal.user.try_clone().unwrap(), Arc::clone(&terminal.seen));
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = reads.read(&mut some) {
                seen.lock().unwrap().extend(&some[..count]);
            }
        });
        terminal
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.user, size).unwrap();
    }

    /// Starts the program on this terminal.
    fn start(&self, dir: &Path, args: &[&str]) -> Child {
        let end = || Stdio::from(self.program.try_clone().unwrap());
        let mut command = kiln(dir, args);
        command.stdin(end()).stdout(end()).stderr(end());
        command.env("TERM", "xterm-256color").spawn().unwrap()
    }

    fn press(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).unwrap();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// True if lines are edited and echoed, as outside of a live view.
    fn is_as_before(&self) -> bool {
        let modes = tcgetattr(&self.program).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Waits for something to be written.
    fn wait_for(&self, text: &str) {
        wait(&format!("`{text}` on the screen"), || self.text().contains(text));
    }
}

fn wait(what: &str, mut there: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !there() {
        assert!(Instant::now() < until, "no {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A run that ends only when it is asked to.
const ENDLESS: [&str; 12] = [
    "train",
    "lenet",
    "--synthetic",
    "400",
    "--batch",
    "20",
    "--epochs",
    "100000",
    "--log-every",
    "5",
    "--out",
    "run",
];

#[test]
fn keys_save_change_the_rate_and_stop() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let mut terminal = Terminal::new(100, 30);
    assert!(terminal.is_as_before());
    let mut child = terminal.start(dir.path(), &ENDLESS);
    terminal.wait_for(ENTER);
    // A word of the line of keys, and the title of a curve.
    terminal.wait_for("checkpoint");
    terminal.wait_for("accuracy");
    assert!(!terminal.is_as_before());
    let journal = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(run.join("journal.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let mut after = 0;
    for key in ["s", "+", "?"] {
        terminal.press(key);
        if key != "?" {
            after += 1;
            wait(&format!("entry of {key}"), || journal().len() == after);
        }
    }
    // The help, and screens of any size.
    terminal.wait_for("divided");
    for (columns, rows) in [(10, 3), (1, 1), (200, 60)] {
        terminal.resize(columns, rows);
        std::thread::sleep(Duration::from_millis(60));
    }
    terminal.press("q");
    assert_eq!(code_within(&mut child, 20), Some(130));
    assert!(terminal.is_as_before());
    let entries = journal();
    let events: Vec<&str> = entries.iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["save", "lr", "stop"]);
    assert!(entries[0]["checkpoint"].as_str().unwrap().starts_with("checkpoint-0"));
    let (from, to) = (entries[1]["from"].as_f64().unwrap(), entries[1]["to"].as_f64().unwrap());
    assert!((to / from - 1.25).abs() < 1e-9, "{from} {to}");
    assert!(names(&run).contains(&"last.safetensors".to_string()));
    let stop = format!("checkpoint-{:09}.json", entries[2]["step"].as_u64().unwrap());
    assert!(run.join(stop).exists());
    // The lines of the run are there after the view.
    terminal.wait_for("go on with: kiln train --resume run");
    let text = terminal.text();
    let (_, after) = text.rsplit_once(LEAVE).unwrap();
    assert!(after.contains("asked: checkpoint after step"), "{after}");
    assert!(!after.contains("\u{1b}[?1049h"), "{after}");
}

#[test]
fn signals_end_the_view_with_their_codes() {
    let dir = tempfile::tempdir().unwrap();
    for (out, signal, code) in [("int", Signal::INT, 130), ("term", Signal::TERM, 143)] {
        let terminal = Terminal::new(80, 24);
        let args = [&ENDLESS[..11], &[out]].concat();
        let mut child = terminal.start(dir.path(), &args);
        terminal.wait_for("checkpoint");
        send(&child, signal);
        assert_eq!(code_within(&mut child, 20), Some(code));
        assert!(terminal.is_as_before());
        assert!(terminal.text().contains(LEAVE));
        assert!(dir.path().join(out).join("last.safetensors").exists());
    }
}

#[test]
fn a_second_signal_ends_at_once_and_gives_the_terminal_back() {
    let dir = tempfile::tempdir().unwrap();
    // The program may give the step up so quickly that the second signal finds it exiting; three attempts are made.
    for out in ["one", "two", "three"] {
        let terminal = Terminal::new(80, 24);
        let size = ["--synthetic", "16000", "--batch", "16000", "--threads", "1"];
        let mut child = terminal.start(dir.path(), &[&["train", "mnist-cnn", "--out", out][..], &size].concat());
        terminal.wait_for(ENTER);
        wait_for_the_step(&mut child);
        send(&child, Signal::INT);
        std::thread::sleep(Duration::from_millis(50));
        send(&child, Signal::TERM);
        let code = code_within(&mut child, 30);
        assert!(terminal.is_as_before() && terminal.text().contains(LEAVE));
        if code == Some(143) {
            assert!(!dir.path().join(out).join("last.safetensors").exists());
            return;
        }
    }
    panic!("the second signal did not end the program");
}

#[test]
fn plain_lines_in_a_terminal_if_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let terminal = Terminal::new(80, 24);
    let args = [
        "train",
        "lenet",
        "--synthetic",
        "40",
        "--batch",
        "20",
        "--epochs",
        "1",
        "--plain",
        "--out",
        "run",
    ];
    let mut child = terminal.start(dir.path(), &args);
    assert_eq!(code_within(&mut child, 60), Some(0));
    terminal.wait_for("saved: ");
    let text = terminal.text();
    assert!(text.contains("epoch 1/1  loss") && !text.contains('\u{1b}'), "{text}");
}
