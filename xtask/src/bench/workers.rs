//! The workers of the frameworks that are measured: how each is built, started and asked.

use super::candle;
use super::framework::Framework;
use super::peers::Pythons;
use super::worker::Worker;
use crate::workspace::{cargo, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The running workers, by framework and number of threads.
pub(super) struct Workers {
    kiln: PathBuf,
    pythons: Pythons,
    running: BTreeMap<(Framework, usize), Worker>,
    absent: BTreeMap<(Framework, usize), String>,
}

impl Workers {
    /// Builds Kiln's worker; no worker runs yet.
    pub(super) fn new(pythons: Pythons) -> Result<Workers, String> {
        Ok(Workers {
            kiln: build()?,
            pythons,
            running: BTreeMap::new(),
            absent: BTreeMap::new(),
        })
    }

    /// The worker of a framework on this number of threads, started if it does not run yet; `None` if it cannot be
    /// started, which is printed once.
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

    /// Sends a command to a worker and returns its answer.
    pub(super) fn ask(&mut self, who: Framework, threads: usize, command: &str) -> Result<Value, String> {
        let worker = self.get(who, threads).ok_or("not there")?;
        let answer = worker.ask(command);
        if answer.as_ref().is_err_and(|e| e.contains("ended")) {
            self.running.remove(&(who, threads));
        }
        answer
    }

    /// The seconds of a new process from its start to the end of its first training step.
    pub(super) fn once(&self, who: Framework, threads: usize, model: &str, batch: usize) -> Result<f64, String> {
        Worker::once(&mut self.command(who, threads)?, model, batch)
    }

    /// A process of its own, which ends when it is dropped.
    pub(super) fn fresh(&self, who: Framework, threads: usize) -> Result<Worker, String> {
        Worker::start(&mut self.command(who, threads)?)
    }

    /// Names and versions of the frameworks that ran.
    pub(super) fn names(&self) -> BTreeMap<Framework, String> {
        self.running
            .iter()
            .map(|(&(who, _), w)| (who, w.name.clone()))
            .collect()
    }

    fn command(&self, who: Framework, threads: usize) -> Result<Command, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (program, script) = match (who, who.script()) {
            (_, Some((module, script))) => (
                self.pythons.with(module)?,
                Some(root().join("benches/peers").join(script)),
            ),
            (Framework::Candle, None) => (candle::worker()?, None),
            (_, None) => (self.kiln.clone(), None),
        };
        // Every library uses as many threads as it has processors; limiting the processors is the only way that also
        // limits XLA.
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

/// Builds `kiln-nets-bench`; returns its path.
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
