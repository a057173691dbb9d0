//! `cargo xtask toolkit`: installs the CUDA compiler on a machine that has none.

use crate::workspace::{Outcome, passes, root};
use std::path::Path;
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
    Ok(true)
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
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]);
    if !passes(pip.args(WHEELS))? {
        // An incomplete environment would be found next time.
        let _ = std::fs::remove_dir_all(venv);
        return Err("pip could not install nvcc's wheels; is PyPI reachable?".to_string());
    }
    Ok(())
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
