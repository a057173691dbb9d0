//! The Python installations with the peers' modules, and PyTorch's script of single ops.

use super::candle;
use crate::workspace::{Outcome, passes, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds by bench id.
pub(super) type Times = BTreeMap<String, f64>;

/// Builds candle's worker, makes `.venv-peers` and installs each peer into it separately, so that a failed installation does not prevent
/// others.
pub(super) fn set_up(python: Option<&Path>) -> Outcome {
    let folder = root().join(".venv-peers");
    let python = python.map_or_else(|| PathBuf::from("python3"), Path::to_path_buf);
    let mut all = candle::set_up()?;
    all &= passes(Command::new(python).args(["-m", "venv"]).arg(&folder))?;
    for file in [
        "requirements.txt",
        "requirements-tensorflow.txt",
        "requirements-jax.txt",
    ] {
        let requirements = root().join("benches/peers").join(file);
        let pip = ["-m", "pip", "install", "--requirement"];
        all &= passes(Command::new(python_of(&folder)).args(pip).arg(requirements))?;
    }
    Ok(all)
}

fn python_of(environment: &Path) -> PathBuf {
    environment.join(if cfg!(windows) {
        "Scripts/python.exe"
    } else {
        "bin/python"
    })
}

/// The Pythons in which peers are looked for.
#[derive(Clone, Debug)]
pub(super) struct Pythons(Vec<PathBuf>);

impl Pythons {
    /// The given Pythons; by default that of the environment which `--setup-peers` makes, then the system's.
    pub(super) fn new(given: &[PathBuf]) -> Pythons {
        if !given.is_empty() {
            return Pythons(given.to_vec());
        }
        let own = python_of(&root().join(".venv-peers"));
        Pythons(
            own.exists()
                .then_some(own)
                .into_iter()
                .chain(["python3".into()])
                .collect(),
        )
    }

    /// The first Python that has `module`.
    ///
    /// # Errors
    /// One line that says that no Python has it.
    pub(super) fn with(&self, module: &str) -> Result<PathBuf, String> {
        let program = format!("import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)");
        let finds = |python: &&PathBuf| {
            let mut probe = Command::new(python);
            let status = probe.args(["-c", &program]).stderr(Stdio::null()).status();
            status.is_ok_and(|s| s.success())
        };
        self.0.iter().find(finds).cloned().ok_or_else(|| {
            let names: Vec<_> = self.0.iter().map(|p| format!("`{}`", p.display())).collect();
            let names = names.join(" and ");
            format!("{names} has no module {module}; `cargo xtask bench --setup-peers` installs it")
        })
    }
}

/// PyTorch's times of single ops.
///
/// # Errors
/// One line with the reason why there are no times.
pub(super) fn torch(pythons: &Pythons, threads: usize, quick: bool, filters: &[String]) -> Result<Times, String> {
    let python = pythons.with("torch")?;
    let script = root().join("benches/peers/torch_bench.py");
    println!(
        "$ {} benches/peers/torch_bench.py --threads {threads}",
        python.display()
    );
    let mut child = Command::new(&python)
        .arg(script)
        .args(["--threads", &threads.to_string()])
        .args(quick.then_some("--quick"))
        .args(filters)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run `{}`: {e}", python.display()))?;
    let mut times = Times::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            read(&line, &mut times);
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(times),
        Ok(status) => Err(format!("torch_bench.py: {status}")),
        Err(e) => Err(format!("torch_bench.py: {e}")),
    }
}

/// Reads one line of the script's output.
fn read(line: &str, times: &mut Times) {
    let Ok(value) = serde_json::from_str::<Value>(line) else {
        println!("torch_bench.py: {line}");
        return;
    };
    if let (Some(id), Some(seconds)) = (value["id"].as_str(), value["seconds"].as_f64()) {
        println!("{id:<36} torch {}", super::report::time(seconds));
        times.insert(id.to_string(), seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_lines_are_read() {
        let mut times = Times::new();
        read(r#"{"peer": "torch 2.9", "threads": 2}"#, &mut times);
        read(r#"{"id": "adam/mnist-cnn", "seconds": 4.5e-4}"#, &mut times);
        read("a warning", &mut times);
        assert_eq!(times, Times::from([("adam/mnist-cnn".to_string(), 4.5e-4)]));
    }

    #[test]
    fn a_python_that_is_not_there_is_named() {
        let why = Pythons::new(&["/no/such/python".into()])
            .with("torch")
            .expect_err("none");
        assert!(
            why.contains("/no/such/python") && why.contains("--setup-peers"),
            "{why}"
        );
    }
}
