//! `cargo xtask bundle`: makes a folder of programs for a machine with a GPU but without cargo.

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
    /// Folder to make
    #[arg(long, value_name = "FOLDER", default_value = "target/bundle")]
    out: PathBuf,
}

/// A program of the folder.
struct Program {
    name: &'static str,
    /// The arguments of cargo that build it.
    words: &'static [&'static str],
    /// True if the program runs Kiln's kernels. For the others kernels are compiled to PTX alone, which is quickest.
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

/// The scripts, by their paths in the workspace and in the folder: run.sh, the scripts that it starts, and their imports.
const SCRIPTS: [(&str, &str); 17] = [
    ("benches/cuda/run.sh", "run.sh"),
    ("benches/peers/torch_bert.py", "peers/torch_bert.py"),
    ("benches/peers/torch_classify.py", "peers/torch_classify.py"),
    ("benches/peers/torch_cuda.py", "peers/torch_cuda.py"),
    ("benches/peers/torch_cuda_nets.py", "peers/torch_cuda_nets.py"),
    ("benches/peers/torch_dcgan.py", "peers/torch_dcgan.py"),
    ("benches/peers/torch_detectors.py", "peers/torch_detectors.py"),
    ("benches/peers/torch_gan.py", "peers/torch_gan.py"),
    ("benches/peers/torch_images.py", "peers/torch_images.py"),
    ("benches/peers/torch_mnist.py", "peers/torch_mnist.py"),
    ("benches/peers/torch_nets.py", "peers/torch_nets.py"),
    ("benches/peers/torch_seq2seq.py", "peers/torch_seq2seq.py"),
    ("benches/peers/torch_speech.py", "peers/torch_speech.py"),
    ("benches/peers/torch_stylegan2.py", "peers/torch_stylegan2.py"),
    ("benches/peers/torch_video.py", "peers/torch_video.py"),
    ("benches/peers/torch_wgan.py", "peers/torch_wgan.py"),
    ("benches/peers/worker.py", "peers/worker.py"),
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

/// Builds a program with the release profile; returns its path, or `None` if the build failed and printed the reason.
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

/// Removes the symbols of a program if `strip` is installed; returns the number of bytes saved.
fn stripped(program: &Path) -> u64 {
    let size = || std::fs::metadata(program).map_or(0, |m| m.len());
    let before = size();
    let _ = Command::new("strip").arg(program).status();
    before.saturating_sub(size())
}

#[cfg(test)]
mod tests {
    use super::{SCRIPTS, root};

    fn read(path: &str) -> String {
        std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// The modules that `import module` and `from module import names` name.
    fn imports(text: &str) -> Vec<(String, Vec<String>)> {
        let words = |names: &str| names.split(',').map(|n| n.trim().to_string()).collect();
        let import = |line: &str| match line.trim().strip_prefix("from ") {
            Some(rest) => rest
                .split_once(" import ")
                .map(|(m, names)| (m.to_string(), words(names))),
            None => line.trim().strip_prefix("import ").map(|m| (m.to_string(), Vec::new())),
        };
        text.lines().filter_map(import).collect()
    }

    /// Programs are checked by the compiler; only this test finds a missing script before the bundle runs on a GPU.
    #[test]
    fn every_script_finds_what_it_imports() {
        let mut found = Vec::new();
        for (from, to) in SCRIPTS.iter().filter(|s| s.0.ends_with(".py")) {
            for (module, names) in imports(&read(from)) {
                let sibling = format!("benches/peers/{module}.py");
                if !root().join(&sibling).exists() {
                    continue;
                }
                let beside = SCRIPTS
                    .iter()
                    .any(|s| s.0 == sibling && s.1 == format!("peers/{module}.py"));
                assert!(beside, "{to} imports {module}, which is not in the folder");
                let text = read(&sibling);
                for name in &names {
                    let defines = |line: &str| {
                        ["def ", "class ", ""].iter().any(|kind| {
                            let rest = line.strip_prefix(kind).and_then(|l| l.strip_prefix(name.as_str()));
                            rest.is_some_and(|r| r.starts_with(['(', ':', ' ']))
                        })
                    };
                    assert!(
                        text.lines().any(defines),
                        "{to} imports {name}, which {module}.py has not"
                    );
                }
                found.push(module);
            }
        }
        found.sort();
        found.dedup();
        let scripts: Vec<String> = SCRIPTS
            .iter()
            .filter_map(|(from, _)| from.strip_prefix("benches/peers/")?.strip_suffix(".py"))
            .filter(|module| *module != "torch_cuda_nets")
            .map(str::to_string)
            .collect();
        assert_eq!(found, scripts, "a script that nothing imports");
        let run = read(SCRIPTS[0].0);
        assert!(run.contains("$here/peers/$@"));
        for script in ["torch_cuda.py", "torch_cuda_nets.py"] {
            assert!(run.contains(&format!(" {script}")), "run.sh does not start {script}");
        }
    }
}
