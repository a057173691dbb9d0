//! Compiles every `src/*.cu` with nvcc into an image for several architectures, and writes a Rust constant for each
//! kernel in it: a misspelt kernel is a compile error.

mod codes;
mod compile;
mod entries;
mod generate;
mod toolkit;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build");
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env("OUT_DIR")?);
    for name in ["NVCC", "PATH", "VIRTUAL_ENV"].iter().chain(toolkit::HOMES) {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    if std::env::var_os("DOCS_RS").is_some() {
        return document(&root, &out);
    }
    let environment = toolkit::own(&root).join("pyvenv.cfg");
    if environment.exists() {
        println!("cargo::rerun-if-changed={}", environment.display());
    }
    let nvcc = toolkit::find(&root)?;
    let codes = codes::write(&out)?;
    let mut folders = vec![("src", "generated.rs")];
    if std::env::var_os("CARGO_FEATURE_NEGATIVE").is_some() {
        folders.push(("negative", "negative.rs"));
    }
    for (folder, written) in folders {
        println!("cargo::rerun-if-changed={folder}");
        let mut sources = cuda_files(&root.join(folder))?;
        sources.sort();
        let images = compile::all(&nvcc, &root.join("src"), &codes, &sources, &out)?;
        let path = out.join(written);
        std::fs::write(&path, generate::module(&images)?)
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    Ok(())
}

/// Writes the modules for docs.rs, where there is no nvcc: every kernel by `entries.txt`, in images without code.
fn document(root: &Path, out: &Path) -> Result<(), String> {
    let list = root.join("entries.txt");
    println!("cargo::rerun-if-changed={}", list.display());
    let list = std::fs::read_to_string(&list).map_err(|e| format!("cannot read {}: {e}", list.display()))?;
    let path = out.join("generated.rs");
    std::fs::write(&path, generate::documented(&list)?).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// The translation units of a folder; headers end in `.cuh`.
fn cuda_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let paths = entries.map(|entry| entry.map(|e| e.path()).map_err(|e| e.to_string()));
    let files: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
    Ok(files
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "cu"))
        .collect())
}

fn env(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("{name} is not set: this program is run by cargo"))
}
