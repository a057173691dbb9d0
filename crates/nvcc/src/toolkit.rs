//! Finds nvcc. No GPU and no driver are needed to compile.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An nvcc that runs.
pub(crate) struct Nvcc {
    pub(crate) path: PathBuf,
    /// The output of `nvcc --version`.
    pub(crate) version: String,
}

/// The first nvcc that runs: one that a variable names, one on `PATH`, one in a usual system folder, one of the active
/// virtual environment, the project's own.
pub(crate) fn find(manifest: &Path) -> Result<Nvcc, String> {
    let mut tried = Vec::new();
    for (place, path) in candidates(manifest) {
        match Command::new(&path).arg("--version").output() {
            Ok(output) if output.status.success() => {
                let version = String::from_utf8_lossy(&output.stdout).into_owned();
                return Ok(Nvcc { path, version });
            }
            Ok(output) => tried.push(format!("{place}: {} ended with {}", path.display(), output.status)),
            Err(e) => tried.push(format!("{place}: {}: {e}", path.display())),
        }
    }
    let tried: String = tried.iter().map(|t| format!("\n  {t}")).collect();
    Err(format!(
        "no working nvcc, which compiles CUDA kernels. Do one of these:\n  \
         cargo xtask toolkit              (in Kiln's sources: 271 MB from PyPI; needs Python, no GPU)\n  \
         install the CUDA toolkit (13.0 is what this was tried with), and set CUDA_HOME if it is in an unusual place\n  \
         set NVCC to the compiler\nA build without CUDA does not need it: leave out `--features cuda`.\nTried:{tried}"
    ))
}

/// The environment `.venv-cuda` in the folder of a manifest or the nearest one above it; where there is none, that beside the folder.
/// `cargo xtask toolkit` makes one.
pub(crate) fn own(manifest: &Path) -> PathBuf {
    let beside = manifest.parent().unwrap_or(manifest).join(".venv-cuda");
    let above = manifest.ancestors().map(|folder| folder.join(".venv-cuda"));
    above.into_iter().find(|path| path.is_dir()).unwrap_or(beside)
}

fn candidates(manifest: &Path) -> Vec<(String, PathBuf)> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut all = Vec::new();
    if let Some(path) = var("NVCC") {
        all.push(("NVCC".to_string(), path));
    }
    for name in HOMES {
        if let Some(home) = var(name) {
            all.push((name.to_string(), home.join("bin/nvcc")));
        }
    }
    all.push(("PATH".to_string(), PathBuf::from("nvcc")));
    for home in installed() {
        all.push(("system".to_string(), home.join("bin/nvcc")));
    }
    if let Some(venv) = var("VIRTUAL_ENV") {
        all.extend(in_venv(&venv).map(|nvcc| ("VIRTUAL_ENV".to_string(), nvcc)));
    }
    all.extend(in_venv(&own(manifest)).map(|nvcc| (".venv-cuda".to_string(), nvcc)));
    all
}

/// Variables that name a toolkit's folder.
pub(crate) const HOMES: &[&str] = &["CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"];

/// The usual system folders, the newest version first.
fn installed() -> Vec<PathBuf> {
    let mut versions: Vec<(Vec<u32>, PathBuf)> = Vec::new();
    for folder in ["/usr/local", "/opt"] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(version) = name.strip_prefix("cuda-") {
                let numbers = version.split('.').map_while(|n| n.parse().ok()).collect();
                versions.push((numbers, entry.path()));
            }
        }
    }
    versions.sort_by(|a, b| b.cmp(a));
    let newest = versions.into_iter().map(|(_, path)| path);
    let plain = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda"].map(PathBuf::from);
    plain.into_iter().chain(newest).filter(|p| p.is_dir()).collect()
}

/// Where the wheels `nvidia-cuda-nvcc` and its companions put nvcc inside a virtual environment.
pub(crate) fn in_venv(venv: &Path) -> Option<PathBuf> {
    let lib = std::fs::read_dir(venv.join("lib")).ok()?;
    lib.flatten()
        .map(|python| python.path().join("site-packages/nvidia/cu13/bin/nvcc"))
        .find(|nvcc| nvcc.is_file())
}
