//! `cargo xtask toolkit`: the CUDA compiler on a machine that has none.

use crate::workspace::{Outcome, passes, root};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where nvcc is looked for is known in one place: the build of the kernels.
#[path = "../../kernels/build/toolkit.rs"]
pub(crate) mod search;

/// What nvcc needs to compile for a device, all of one release: newer parts beside older ones do not work together.
const WHEELS: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];

/// Whether the CUDA crates can be built here.
pub(crate) enum Toolkit {
    /// nvcc is there.
    Ready,
    /// It is not, and cannot be had: why, in one line.
    Missing(String),
}

/// Finds nvcc or gets it; prints one line about a download.
pub(crate) fn ensure() -> Toolkit {
    if search::find(&root().join("kernels")).is_ok() {
        return Toolkit::Ready;
    }
    match install() {
        Ok(()) => Toolkit::Ready,
        Err(why) => Toolkit::Missing(why),
    }
}

pub(crate) fn run() -> Outcome {
    if search::find(&root().join("kernels")).is_err() {
        install()?;
    }
    let nvcc = search::find(&root().join("kernels"))?;
    let release = nvcc.version.lines().find(|l| l.contains("release")).unwrap_or_default();
    println!("{}: {}", nvcc.path.display(), release.trim());
    Ok(true)
}

/// Makes the environment beside the workspace's manifest; one that was left half-made is made anew.
fn install() -> Result<(), String> {
    let python = ["python3", "python"]
        .into_iter()
        .find(|p| quiet(Command::new(p).arg("--version")))
        .ok_or("nvcc is not here, and there is no Python to get it with")?;
    let venv = search::own(&root().join("kernels"));
    if !passes(Command::new(python).args(["-m", "venv", "--clear"]).arg(&venv))? {
        return Err(format!(
            "`{python} -m venv` failed; Debian keeps it in the package python3-venv"
        ));
    }
    let mut pip = Command::new(bin(&venv, "python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]);
    if !passes(pip.args(WHEELS))? {
        // What is half there would be found next time.
        let _ = std::fs::remove_dir_all(&venv);
        return Err("pip could not install nvcc's wheels; is PyPI reachable?".to_string());
    }
    search::find(&root().join("kernels")).map(|_| ())
}

fn bin(venv: &std::path::Path, program: &str) -> PathBuf {
    venv.join("bin").join(program)
}

fn quiet(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}
