//! The peers: other frameworks on the same work, each a script under benches/peers that prints JSON lines.

use super::Times;
use crate::workspace::{Outcome, passes, root};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A peer's name and version, and what it measured.
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) times: Times,
}

/// Makes `.venv-peers` and installs the peers into it.
pub(super) fn set_up(python: Option<&Path>) -> Outcome {
    let folder = root().join(".venv-peers");
    let python = python.map_or_else(|| PathBuf::from("python3"), Path::to_path_buf);
    let made = passes(Command::new(python).args(["-m", "venv"]).arg(&folder))?;
    let requirements = root().join("benches/peers/requirements.txt");
    let pip = ["-m", "pip", "install", "--requirement"];
    Ok(made && passes(Command::new(python_of(&folder)).args(pip).arg(requirements))?)
}

fn python_of(environment: &Path) -> PathBuf {
    environment.join(if cfg!(windows) {
        "Scripts/python.exe"
    } else {
        "bin/python"
    })
}

/// PyTorch's times.
///
/// # Errors
/// One line that says why there are none.
pub(super) fn torch(python: Option<&Path>, threads: usize, quick: bool, filters: &[String]) -> Result<Peer, String> {
    let own = python_of(&root().join(".venv-peers"));
    let python = match python {
        Some(path) => path.to_path_buf(),
        None if own.exists() => own,
        None => PathBuf::from("python3"),
    };
    let probe = Command::new(&python)
        .args(["-c", "import torch, numpy"])
        .stderr(Stdio::null())
        .status();
    match probe {
        Err(_) => return Err(format!("no Python at `{}`, so Kiln alone", python.display())),
        Ok(status) if !status.success() => {
            return Err(format!(
                "`{}` has no PyTorch, so Kiln alone; `cargo xtask bench --setup-peers` installs it",
                python.display()
            ));
        }
        Ok(_) => {}
    }
    let mut command = Command::new(&python);
    command
        .arg(root().join("benches/peers/torch_bench.py"))
        .arg("--threads")
        .arg(threads.to_string());
    if quick {
        command.arg("--quick");
    }
    println!(
        "$ {} benches/peers/torch_bench.py --threads {threads}",
        python.display()
    );
    let mut child = command
        .args(filters)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run `{}`: {e}", python.display()))?;
    let mut peer = Peer {
        name: "torch".into(),
        times: Times::new(),
    };
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            peer.read(&line);
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(peer),
        Ok(status) => Err(format!("torch_bench.py: {status}, so Kiln alone")),
        Err(e) => Err(format!("torch_bench.py: {e}, so Kiln alone")),
    }
}

impl Peer {
    /// Takes one line: the peer's name, or a bench.
    fn read(&mut self, line: &str) {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            println!("torch_bench.py: {line}");
            return;
        };
        if let Some(name) = value["peer"].as_str() {
            self.name = name.to_string();
        }
        if let (Some(id), Some(seconds)) = (value["id"].as_str(), value["seconds"].as_f64()) {
            println!("{id:<32} {}", super::report::time(seconds));
            self.times.insert(id.to_string(), seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_lines_are_read() {
        let mut peer = Peer {
            name: "torch".into(),
            times: Times::new(),
        };
        peer.read(r#"{"peer": "torch 2.9", "threads": 2}"#);
        peer.read(r#"{"id": "adam/mnist-cnn", "seconds": 4.5e-4}"#);
        peer.read("a warning");
        assert_eq!(peer.name, "torch 2.9");
        assert_eq!(peer.times, Times::from([("adam/mnist-cnn".to_string(), 4.5e-4)]));
    }
}
