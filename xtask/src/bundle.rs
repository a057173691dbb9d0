//! `cargo xtask bundle`: a folder for a machine that has a GPU and no cargo.

use crate::toolkit::{self, Toolkit};
use crate::workspace::{Outcome, cargo, line, root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(clap::Args)]
#[command(after_help = "\
Copy the folder to a Linux x86-64 machine with an NVIDIA driver and glibc 2.36 or newer, and start run.sh there: it runs
the device layer's and the conformance tests on the real driver, compute-sanitizer where it is installed, the benches beside
PyTorch where that is installed, and a training run, and writes JSON; `run.sh --help` has its options. The machine needs no
Rust, no toolkit and no network.")]
pub(crate) struct Args {
    /// Where the folder goes
    #[arg(long, value_name = "FOLDER", default_value = "target/bundle")]
    out: PathBuf,
}

/// A program of the folder.
struct Program {
    name: &'static str,
    /// How cargo makes it.
    words: &'static [&'static str],
    /// Whether it holds Kiln's kernels. The others are built with what is quickest to compile.
    kernels: bool,
}

const PROGRAMS: [Program; 6] = [
    Program {
        name: "kiln",
        words: &["build", "--package", "kiln-cli", "--features", "cuda", "--bin", "kiln"],
        kernels: true,
    },
    Program {
        name: "kiln-cuda-bench",
        words: &[
            "build",
            "--package",
            "kiln-benches",
            "--features",
            "cuda",
            "--bin",
            "kiln-cuda-bench",
        ],
        kernels: true,
    },
    Program {
        name: "conformance",
        words: &["test", "--no-run", "--package", "kiln-cuda", "--test", "emulated"],
        kernels: true,
    },
    Program {
        name: "device-memory",
        words: &["test", "--no-run", "--package", "kiln-device", "--test", "memory"],
        kernels: false,
    },
    Program {
        name: "device-errors",
        words: &["test", "--no-run", "--package", "kiln-device", "--test", "errors"],
        kernels: false,
    },
    Program {
        name: "device-peers",
        words: &["test", "--no-run", "--package", "kiln-device", "--test", "peers"],
        kernels: false,
    },
];

/// Scripts, by their place in the workspace and in the folder.
const SCRIPTS: [(&str, &str); 4] = [
    ("benches/cuda/run.sh", "run.sh"),
    ("benches/peers/torch_cuda.py", "peers/torch_cuda.py"),
    ("benches/peers/torch_bench.py", "peers/torch_bench.py"),
    ("benches/peers/torch_mnist.py", "peers/torch_mnist.py"),
];

pub(crate) fn run(args: &Args) -> Outcome {
    if let Toolkit::Missing(why) = toolkit::ensure() {
        return Err(why);
    }
    let out = root().join(&args.out);
    for folder in ["bin", "peers"] {
        let folder = out.join(folder);
        std::fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    }
    let mut bytes = 0;
    for program in &PROGRAMS {
        let Some(built) = executable(program)? else {
            return Ok(false);
        };
        let target = out.join("bin").join(program.name);
        bytes += copy(&built, &target)?;
        bytes -= stripped(&target);
    }
    for (from, to) in SCRIPTS {
        bytes += copy(&root().join(from), &out.join(to))?;
    }
    println!(
        "{}: {:.1} MiB; start run.sh there",
        out.display(),
        bytes as f64 / f64::from(1 << 20)
    );
    Ok(true)
}

/// Builds with the release profile; the program that was asked for, or `None` when the build failed and said so.
fn executable(program: &Program) -> Result<Option<PathBuf>, String> {
    let mut command = cargo(program.words.iter().copied());
    command.args(["--release", "--message-format", "json-render-diagnostics"]);
    if !program.kernels {
        command.env("KILN_CUDA_ARCHS", "ptx");
    }
    println!("$ {}", line(&command));
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cannot run `{}`: {e}", line(&command)))?;
    if !output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text
        .lines()
        .filter_map(|l| {
            serde_json::from_str::<Value>(l).ok()?["executable"]
                .as_str()
                .map(PathBuf::from)
        })
        .next_back();
    last.map(Some)
        .ok_or_else(|| format!("cargo built no program for {}", program.name))
}

fn copy(from: &Path, to: &Path) -> Result<u64, String> {
    std::fs::copy(from, to).map_err(|e| format!("cannot copy {} to {}: {e}", from.display(), to.display()))
}

/// Leaves the symbols out where `strip` is installed; the bytes won.
fn stripped(program: &Path) -> u64 {
    let size = || std::fs::metadata(program).map_or(0, |m| m.len());
    let before = size();
    let _ = Command::new("strip").arg(program).status();
    before.saturating_sub(size())
}
