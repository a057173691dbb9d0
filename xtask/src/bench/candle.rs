//! Candle's worker, a program of its own outside the workspace.

use crate::workspace::{Outcome, cargo, passes, root};
use std::path::PathBuf;

/// The folder of what cargo builds, beside that of the workspace's own.
const TARGET: &str = "target/peers";

/// Builds the worker for this processor, as candle's documentation advises.
pub(super) fn set_up() -> Outcome {
    let mut command = cargo(["build", "--release", "--target-dir"]);
    command.arg(root().join(TARGET)).arg("--manifest-path");
    command.arg(root().join("benches/peers/candle/Cargo.toml"));
    passes(command.env("RUSTFLAGS", "-C target-cpu=native"))
}

/// The program of the worker.
///
/// # Errors
/// One line that says how to build it.
pub(super) fn worker() -> Result<PathBuf, String> {
    let name = format!("candle-nets{}", std::env::consts::EXE_SUFFIX);
    let program = root().join(TARGET).join("release").join(name);
    match program.exists() {
        true => Ok(program),
        false => Err("its worker is not built; `cargo xtask bench --setup-peers` builds it".into()),
    }
}
