//! A process, of Kiln or of a peer, that computes on command. It is stopped (SIGSTOP) while others have their turn.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time to wait for the last words of a process that has ended. A child of its own may still hold the pipe.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(super) struct Worker {
    child: Child,
    /// Closed to end the process.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// The lines of its standard error.
    stderr: Receiver<String>,
    /// The peer and its version.
    pub(super) name: String,
    /// The settings for training.
    pub(super) settings: Vec<String>,
    /// The settings for inference.
    pub(super) infer: Vec<String>,
}

impl Worker {
    /// Starts a process and waits for its first line, which has name, version and settings.
    pub(super) fn start(command: &mut Command) -> Result<Worker, String> {
        let mut worker = Worker::spawn(command)?;
        let hello = worker.hear()?;
        let words = |key: &str| -> Vec<String> {
            let all = hello[key].as_array().into_iter().flatten();
            all.filter_map(|s| Some(s.as_str()?.to_string())).collect()
        };
        (worker.settings, worker.infer) = (words("settings"), words("infer"));
        worker.name = hello["peer"].as_str().unwrap_or("?").to_string();
        worker.signal("STOP");
        Ok(worker)
    }

    fn spawn(command: &mut Command) -> Result<Worker, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot run `{program}`: {e}"))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(format!("`{program}` has no pipes"));
        };
        Ok(Worker {
            child,
            stdin: Some(stdin),
            stdout: BufReader::new(stdout),
            stderr: lines(stderr),
            name: String::new(),
            settings: Vec::new(),
            infer: Vec::new(),
        })
    }

    /// Continues the process, sends a command, waits for the answer, and stops the process again.
    pub(super) fn ask(&mut self, command: &str) -> Result<Value, String> {
        self.signal("CONT");
        let answer = self.tell(command).and_then(|()| self.hear());
        self.signal("STOP");
        answer
    }

    fn tell(&mut self, command: &str) -> Result<(), String> {
        let gone = |_| "the process has ended".to_string();
        let stdin = self.stdin.as_mut().ok_or("the process has ended")?;
        writeln!(stdin, "{command}").and_then(|()| stdin.flush()).map_err(gone)
    }

    fn hear(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(0) | Err(_) => return Err(self.ended()),
            Ok(_) => {}
        }
        let value: Value = serde_json::from_str(&line).map_err(|_| format!("an answer that is no JSON: {line}"))?;
        match value["error"].as_str() {
            Some(error) => Err(error.to_string()),
            None => Ok(value),
        }
    }

    /// The error of a process that ended without an answer, with the last line that it wrote to standard error: of a Python program
    /// the exception.
    fn ended(&self) -> String {
        let mut last = String::new();
        while let Ok(line) = self.stderr.recv_timeout(LAST_WORDS) {
            last = format!(": {line}");
        }
        format!("the process ended without an answer{last}")
    }

    /// Stops or continues the process, because idle threads that spin for work would slow the others. On a system without
    /// `kill`, workers are not stopped, and threads of the others may still spin when a turn starts.
    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let _ = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .stderr(Stdio::null())
            .status();
    }

    /// The seconds of a new process from its start to the end of its first training step.
    pub(super) fn once(command: &mut Command, model: &str, batch: usize) -> Result<f64, String> {
        let start = Instant::now();
        let mut worker = Worker::spawn(command)?;
        worker.tell(&format!("once {model} {batch}"))?;
        worker.hear()?;
        worker.hear()?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// The lines that are not blank, as they come.
fn lines(from: ChildStderr) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(from).lines().map_while(Result::ok);
        for line in lines.filter(|line| !line.trim().is_empty()) {
            let _ = send.send(line);
        }
    });
    receive
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.signal("CONT");
        self.stdin = None;
        if self.child.wait().is_err() {
            let _ = self.child.kill();
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Worker, String> {
        Worker::start(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn a_worker_says_what_it_is_and_answers() {
        let script = r#"echo '{"peer": "p 1", "settings": ["a", "b"], "infer": ["c"]}'
            while read line; do echo "{\"error\": \"$line\"}"; done"#;
        let mut worker = shell(script).expect("started");
        assert_eq!((worker.name.as_str(), worker.settings.len()), ("p 1", 2));
        assert_eq!(worker.ask("run k 1"), Err("run k 1".into()));
        assert_eq!(worker.ask("drop k"), Err("drop k".into()));
    }

    #[test]
    fn a_worker_that_ends_is_an_error() {
        assert_eq!(
            shell("true").err().as_deref(),
            Some("the process ended without an answer")
        );
        let script = "echo Traceback >&2; echo 'ModuleNotFoundError: no torchvision' >&2; echo >&2; exit 1";
        let why = shell(script).err().unwrap_or_default();
        assert!(why.ends_with("an answer: ModuleNotFoundError: no torchvision"), "{why}");
        let mut worker = shell(r#"echo '{"peer": "p"}'"#).expect("started");
        assert!(worker.ask("run k 1").is_err());
    }
}
