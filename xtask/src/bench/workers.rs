//! Who is measured, how each is started, and with which settings.

use super::peers::Pythons;
use super::worker::{Start, Worker};
use crate::workspace::{cargo, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kiln and its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Kiln,
    Torch,
    TensorFlow,
    Jax,
    /// NumPy, for its BLAS.
    NumPy,
}

impl Who {
    /// Those that train nets, besides Kiln.
    pub(super) const NETS: [Who; 3] = [Who::Torch, Who::TensorFlow, Who::Jax];
    /// Those whose matrix products are measured, besides Kiln: MKL through PyTorch, OpenBLAS through NumPy.
    pub(super) const PRODUCTS: [Who; 2] = [Who::Torch, Who::NumPy];

    /// The head of its column.
    pub(super) fn label(self) -> &'static str {
        match self {
            Who::Kiln => "kiln",
            Who::Torch => "torch",
            Who::TensorFlow => "tensorflow",
            Who::Jax => "jax",
            Who::NumPy => "numpy",
        }
    }

    /// The module that its Python must have, and its script.
    fn script(self) -> (&'static str, &'static str) {
        match self {
            Who::Kiln => ("", ""),
            Who::Torch => ("torch", "torch_nets.py"),
            Who::TensorFlow => ("tensorflow", "tf_nets.py"),
            Who::Jax => ("jax", "jax_nets.py"),
            Who::NumPy => ("numpy", "numpy_gemm.py"),
        }
    }
}

/// The workers that run, by who they are and on how many threads.
pub(super) struct Crew {
    kiln: PathBuf,
    pythons: Pythons,
    workers: BTreeMap<(Who, usize), Worker>,
    absent: BTreeMap<(Who, usize), String>,
}

impl Crew {
    /// Builds Kiln's worker.
    pub(super) fn new(pythons: Pythons) -> Result<Crew, String> {
        Ok(Crew {
            kiln: build()?,
            pythons,
            workers: BTreeMap::new(),
            absent: BTreeMap::new(),
        })
    }

    /// The worker of someone on so many threads, started if need be; `None` when it cannot be had, which is said once.
    pub(super) fn get(&mut self, who: Who, threads: usize) -> Option<&mut Worker> {
        let key = (who, threads);
        if self.absent.contains_key(&key) {
            return None;
        }
        if !self.workers.contains_key(&key) {
            match self.command(who, threads).and_then(|mut c| Worker::start(&mut c)) {
                Ok(worker) => {
                    println!(
                        "{} on {threads} thread{}",
                        worker.name,
                        if threads == 1 { "" } else { "s" }
                    );
                    self.workers.insert(key, worker);
                }
                Err(why) => {
                    println!("{} is left out: {why}", who.label());
                    self.absent.insert(key, why);
                }
            }
        }
        self.workers.get_mut(&key)
    }

    /// Asks a worker that runs.
    pub(super) fn ask(&mut self, who: Who, threads: usize, command: &str) -> Result<Value, String> {
        let worker = self.get(who, threads).ok_or("not there")?;
        let answer = worker.ask(command);
        if answer.as_ref().is_err_and(|e| e.contains("ended")) {
            self.workers.remove(&(who, threads));
        }
        answer
    }

    /// What the start of a process costs.
    pub(super) fn once(&self, who: Who, threads: usize, model: &str, batch: usize) -> Result<Start, String> {
        Worker::once(&mut self.command(who, threads)?, model, batch)
    }

    /// Names and versions of those that ran.
    pub(super) fn names(&self) -> BTreeMap<Who, String> {
        self.workers
            .iter()
            .map(|(&(who, _), w)| (who, w.name.clone()))
            .collect()
    }

    fn command(&self, who: Who, threads: usize) -> Result<Command, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (program, script) = match who {
            Who::Kiln => (self.kiln.clone(), None),
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
