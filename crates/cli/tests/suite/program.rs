//! Functions that run the program in a given folder.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program, to be run in `dir`.
pub(crate) fn kiln(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command
}

/// The exit code and the output of a finished program.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Every line of standard output as JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// Asserts that the program failed with `code`, an error message that holds every one of `parts`, and no panic.
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "no `{part}` in: {}", self.stderr);
        }
    }
}
