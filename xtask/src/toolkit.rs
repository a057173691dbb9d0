//! `cargo xtask toolkit`: installs the CUDA compiler on a machine that has none.

use crate::workspace::{Outcome, passes, root};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The search for nvcc, shared with the build of the kernels.
#[path = "../../crates/nvcc/src/toolkit.rs"]
pub(crate) mod search;

/// The packages that nvcc needs to compile for a device, all of one release, because parts of different releases do not work
/// together.
const WHEELS: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];

/// NVIDIA's disassembler, which `cargo xtask machine-code` runs and no build needs. It reads the code of older releases too; there is no
/// wheel of nvcc's own.
const DISASSEMBLER: &str = "nvidia-cuda-nvdisasm==13.5.37";

/// True if the CUDA crates can be built here.
pub(crate) enum Toolkit {
    /// nvcc is installed.
    Ready,
    /// nvcc is not installed and cannot be installed; the reason in one line.
    Missing(String),
}

impl Toolkit {
    /// The packages to build: all, or all but those that nvcc compiles.
    pub(crate) fn selection(&self) -> Vec<String> {
        let words: &[&str] = match self {
            Toolkit::Ready => &["--workspace", "--features", "kiln-cli/cuda,kiln-benches/cuda"],
            // The device layer builds without nvcc; its tests run kernels.
            Toolkit::Missing(_) => &[
                "--workspace",
                "--exclude",
                "kiln-kernels",
                "--exclude",
                "kiln-cuda",
                "--exclude",
                "kiln-device",
                "--exclude",
                "kiln-example-kernel",
            ],
        };
        words.iter().map(|w| w.to_string()).collect()
    }
}

/// Finds nvcc or installs it; prints one line about a download.
pub(crate) fn ensure() -> Toolkit {
    match obtain(&PYTHONS) {
        Ok(_) => Toolkit::Ready,
        Err(why) => Toolkit::Missing(why),
    }
}

/// The names of a Python interpreter.
const PYTHONS: [&str; 2] = ["python3", "python"];

/// An nvcc that works here, installed by one of these Pythons if there is none; or the reason why not, in one line.
fn obtain(pythons: &[&str]) -> Result<search::Nvcc, String> {
    let kernels = root().join("kernels");
    let nvcc = match search::find(&kernels) {
        Ok(nvcc) => nvcc,
        Err(_) => {
            install(pythons, &search::own(&kernels))?;
            search::find(&kernels).map_err(|_| "nvcc's wheels were installed, and nvcc does not run")?
        }
    };
    compiles(&nvcc.path).map(|()| nvcc)
}

/// Checks that nvcc compiles. It calls the system's C++ compiler, which may be missing, since Rust needs only a C compiler.
pub(crate) fn compiles(nvcc: &Path) -> Result<(), String> {
    let mut command = Command::new(nvcc);
    match quiet(command.args(["-std=c++17", "-E", "-x", "cu", "/dev/null", "-o", "/dev/null"])) {
        true => Ok(()),
        false => Err(format!(
            "{} finds no C++ compiler that it can use (Debian: the package g++)",
            nvcc.display()
        )),
    }
}

pub(crate) fn run() -> Outcome {
    let nvcc = obtain(&PYTHONS)?;
    let release = nvcc.version.lines().find(|l| l.contains("release")).unwrap_or_default();
    println!("{}: {}", nvcc.path.display(), release.trim());
    match disassembler() {
        Ok(path) => println!("{}", path.display()),
        Err(why) => println!("kernels compile, and `cargo xtask machine-code` cannot run: {why}"),
    }
    Ok(true)
}

/// The whole version of the nvcc that builds use, such as `13.0.88`; empty if there is none.
pub(crate) fn compiler() -> String {
    let version = search::find(&root().join("kernels")).map_or(String::new(), |nvcc| nvcc.version);
    let whole = version.split_whitespace().find_map(|word| word.strip_prefix('V'));
    whole.unwrap_or_default().to_string()
}

/// nvdisasm: beside nvcc, on `PATH`, in `.venv-cuda`, or installed there now; or the reason why not, in one line.
pub(crate) fn disassembler() -> Result<PathBuf, String> {
    let kernels = root().join("kernels");
    let beside = search::find(&kernels)
        .ok()
        .map(|nvcc| nvcc.path.with_file_name("nvdisasm"));
    let venv = search::own(&kernels);
    let find = || {
        let own = search::in_venv(&venv).map(|nvcc| nvcc.with_file_name("nvdisasm"));
        let places = beside.clone().into_iter().chain([PathBuf::from("nvdisasm")]).chain(own);
        places
            .into_iter()
            .find(|path| quiet(Command::new(path).arg("--version")))
    };
    if let Some(path) = find() {
        return Ok(path);
    }
    let why = format!(
        "nvdisasm is not here; it is part of the CUDA toolkit and of the PyPI package {DISASSEMBLER}, which goes into the \
         environment that nvcc is in"
    );
    if !venv.is_dir() || !pip(&venv, &[DISASSEMBLER])? {
        return Err(why);
    }
    find().ok_or(why)
}

/// Makes the environment `venv`; an incomplete one is made anew.
fn install(pythons: &[&str], venv: &Path) -> Result<(), String> {
    let python = pythons
        .iter()
        .find(|p| quiet(Command::new(p).arg("--version")))
        .ok_or("nvcc is not here, and there is no Python to get it with")?;
    if !passes(Command::new(python).args(["-m", "venv", "--clear"]).arg(venv))? {
        return Err(format!(
            "`{python} -m venv` failed; Debian keeps it in the package python3-venv"
        ));
    }
    if !pip(venv, &WHEELS)? {
        // An incomplete environment would be found next time.
        let _ = std::fs::remove_dir_all(venv);
        return Err("pip could not install nvcc's wheels; is PyPI reachable?".to_string());
    }
    Ok(())
}

/// Installs packages, and nothing that they name, into an environment.
fn pip(venv: &Path, packages: &[&str]) -> Outcome {
    let words = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ];
    passes(Command::new(venv.join("bin/python")).args(words).args(packages))
}

fn quiet(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}

#[cfg(test)]
mod tests {
    use super::{compiles, install};
    use std::path::Path;

    fn one_line(why: &str, part: &str) {
        assert!(why.lines().count() == 1 && why.contains(part), "{why}");
    }

    #[test]
    fn what_is_missing_is_told_in_one_line() {
        let venv = std::env::temp_dir().join(format!("kiln-no-venv-{}", std::process::id()));
        let without = |python: &str| install(&["no-such-python", python], &venv).expect_err("nothing to install with");
        one_line(&without("no-such-python-either"), "no Python");
        // A Python that does not run counts as missing.
        one_line(&without("false"), "no Python");
        assert!(!venv.exists());
        one_line(&compiles(Path::new("false")).expect_err("it compiles nothing"), "C++");
        assert_eq!(compiles(Path::new("true")), Ok(()));
    }
}
