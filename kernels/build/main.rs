//! Compiles every `src/*.cu` with nvcc into an image for several architectures, and writes a Rust constant for each
//! kernel in it: a misspelt kernel is a compile error.

mod codes;

use kiln_nvcc::Build;
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
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env("OUT_DIR")?);
    if std::env::var_os("DOCS_RS").is_some() {
        return document(&root, &out);
    }
    let codes = codes::write(&out)?;
    let compile = |folder: &str, module: &str| {
        let build = Build::new(folder).include("src").include(&codes).module(module);
        build.types("crate").strict(true).try_run()
    };
    compile("src", "generated.rs")?;
    match std::env::var_os("CARGO_FEATURE_NEGATIVE") {
        Some(_) => compile("negative", "negative.rs"),
        None => Ok(()),
    }
}

/// Writes the modules for docs.rs, where there is no nvcc: every kernel by `entries.txt`, in images without code.
fn document(root: &Path, out: &Path) -> Result<(), String> {
    let list = root.join("entries.txt");
    println!("cargo::rerun-if-changed={}", list.display());
    let list = std::fs::read_to_string(&list).map_err(|e| format!("cannot read {}: {e}", list.display()))?;
    let module = kiln_nvcc::documented(&list, "crate").map_err(|e| format!("entries.txt: {e}"))?;
    let path = out.join("generated.rs");
    std::fs::write(&path, module).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

fn env(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("{name} is not set: this program is run by cargo"))
}
