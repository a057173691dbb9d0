//! The compilation of the library of a profiler, for tests that run below it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the library's `source` into `folder`.
pub(crate) fn library(source: &Path, folder: &Path) -> PathBuf {
    let library = folder.join("libstub.so");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "--crate-type=cdylib", "-Anon_snake_case", "-o"]);
    let out = command.arg(&library).arg(source).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    library
}
