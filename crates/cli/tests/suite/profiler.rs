//! The library of a profiler of NVIDIA's, which tests compile, and the ranges that it sees.

#[path = "../../../nvtx/tests/stub/library.rs"]
mod library;

use library::library;
use std::path::Path;
use std::process::Command;

/// Runs a command below the profiler and returns the ranges that it saw, each with those around it: `epoch 1 > step 1`.
pub(crate) fn ranges(command: &mut Command, folder: &Path) -> Vec<String> {
    let log = folder.join("ranges");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nvtx/tests/stub/injection.rs");
    command
        .env("NVTX_INJECTION64_PATH", library(&source, folder))
        .env("STUB_LOG", &log);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (mut open, mut seen) = (Vec::new(), Vec::new());
    for line in std::fs::read_to_string(&log).unwrap().lines() {
        match line.strip_prefix("+ ") {
            Some(name) => {
                open.push(name.to_string());
                seen.push(open.join(" > "));
            }
            None => drop(open.pop().expect("an end without a begin")),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    seen
}

/// How often a range was seen inside of these others.
pub(crate) fn count(seen: &[String], path: &str) -> usize {
    seen.iter().filter(|range| *range == path).count()
}
