//! Framework is measured, how each is started, and with which settings.

use super::framework::Framework;
use super::peers::Pythons;
use super::worker::{Start, Worker};
use crate::workspace::{cargo, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workers that run, by framework and number of threads.
pub(super) struct Workers {
    kiln: PathBuf,
    pythons: Pythons,
    running: BTreeMap<(Framework, usize), Worker>,
    absent: BTreeMap<(Framework, usize), String>,
}

impl Workers {
    /// Builds Kiln's worker.
    pub(super) fn new(pythons: Pythons) -> Result<Workers, String> {
        Ok(Workers {
            kiln: build()?,
            pythons,
            running: BTreeMap::new(),
            absent: BTreeMap::new(),
        })
    }

    /// The worker of someone on so many threads, started if need be; `None` when it cannot be had, which is said once.
    pub(super) fn get(&mut self, who: Framework, threads: usize) -> Option<&mut Worker> {
        let key = (who, threads);
        if self.absent.contains_key(&key) {
            return None;
        }
        if !self.running.contains_key(&key) {
            match self.command(who, threads).and_then(|mut c| Worker::start(&mut c)) {
                Ok(worker) => {
                    println!(
                        "{} on {threads} thread{}",
                        worker.name,
                        if threads == 1 { "" } else { "s" }
                    );
                    self.running.insert(key, worker);
                }
                Err(why) => {
                    println!("{} is left out: {why}", who.label());
                    self.absent.insert(key, why);
                }
            }
        }
        self.running.get_mut(&key)
    }

    /// Asks a worker that runs.
    pub(super) fn ask(&mut self, who: Framework, threads: usize, command: &str) -> Result<Value, String> {
        let worker = self.get(who, threads).ok_or("not there")?;
        let answer = worker.ask(command);
        if answer.as_ref().is_err_and(|e| e.contains("ended")) {
            self.running.remove(&(who, threads));
        }
        answer
    }

    /// The cost of starting a process.
    pub(super) fn once(&self, who: Framework, threads: usize, model: &str, batch: usize) -> Result<Start, String> {
        Worker::once(&mut self.command(who, threads)?, model, batch)
    }

    /// Names and versions of those that ran.
    pub(super) fn names(&self) -> BTreeMap<Framework, String> {
        self.running
            .iter()
            .map(|(&(who, _), w)| (who, w.name.clone()))
            .collect()
    }

    fn command(&self, who: Framework, threads: usize) -> Result<Command, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (program, script) = match who {
            Framework::Kiln => (self.kiln.clone(), None),
            _ => {
                let (module, script) = who.script();
                (
                    self.pythons.with(module)?,
                    Some(root().join("benches/peers").join(script)),
                )
            }
        };
        // Every library counts the processors that it may use: the one way that limits XLA too.
        let mut command = if threads < cores && Path::new("/usr/bin/taskset").exists() {
            let mut command = Command::new("/usr/bin/taskset");
            command.arg("-c").arg(format!("0-{}", threads - 1)).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(script).arg("--threads").arg(threads.to_string());
        for variable in [
            "OMP_NUM_THREADS",
            "MKL_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "RAYON_NUM_THREADS",
        ] {
            command.env(variable, threads.to_string());
        }
        command.env("TORCHINDUCTOR_CACHE_DIR", root().join("target/bench/inductor"));
        Ok(command)
    }
}

/// Builds `kiln-nets-bench` and finds it.
fn build() -> Result<PathBuf, String> {
    println!("$ cargo build --release --package kiln-benches --bin kiln-nets-bench");
    let words = "build --release --package kiln-benches --bin kiln-nets-bench --message-format json-render-diagnostics";
    let output = cargo(words.split(' '))
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let mut executables = messages.filter_map(|m| m["executable"].as_str().map(PathBuf::from));
    let executable = executables.next_back();
    executable
        .filter(|_| output.status.success())
        .ok_or("Kiln's worker does not build".into())
}
