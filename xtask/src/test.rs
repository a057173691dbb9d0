//! `cargo xtask test`: tidy, then every test of the workspace, and one closing line that adds them up.

use crate::tidy;
use crate::workspace::{Outcome, cargo, line};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

#[derive(clap::Args)]
#[command(after_help = "\
`cargo xtask test` runs on every machine and needs nothing but a Rust toolchain: no GPU, no Python, no network
once the dependencies are there. What follows `--` goes to `cargo test`:
  cargo xtask test -- -p kiln-nn gradcheck")]
pub(crate) struct Args {
    /// Test what users run: optimised, with the release profile
    #[arg(long)]
    pub(crate) release: bool,
    /// Passed to `cargo test` in place of `--workspace`
    #[arg(last = true)]
    pub(crate) cargo: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let tidy = tidy::run()?;
    let mut words = vec!["test"];
    if args.cargo.is_empty() {
        words.extend(["--workspace", "--no-fail-fast"]);
    }
    if args.release {
        words.push("--release");
    }
    words.extend(args.cargo.iter().map(String::as_str));
    let mut command = cargo(words);
    println!("$ {}", line(&command));

    // The tests' output passes through as it comes; only libtest's own result lines are read.
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run `{}`: {e}", line(&command)))?;
    let (mut total, mut out) = (Total::default(), std::io::stdout());
    if let Some(stdout) = child.stdout.take() {
        for text in BufReader::new(stdout).split(b'\n') {
            let text = text.map_err(|e| format!("cannot read the tests' output: {e}"))?;
            total.read(&String::from_utf8_lossy(&text));
            // A closed pipe (`| head`) must not end the tests.
            let _ = out.write_all(&text).and_then(|()| out.write_all(b"\n"));
        }
    }
    let status = child.wait().map_err(|e| format!("cannot wait for the tests: {e}"))?;

    println!();
    println!("tidy: {}", if tidy { "ok" } else { "FAILED (see above)" });
    if !status.success() && total.failed == 0 {
        println!("cargo test did not finish: {status}");
    }
    if status.success() && total.passed == 0 {
        println!("no test ran");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    );
    Ok(tidy && status.success() && total.passed > 0)
}

/// The sum of libtest's result lines.
#[derive(Default, Debug, PartialEq)]
struct Total {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Total {
    /// Adds `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn read(&mut self, text: &str) {
        let Some(rest) = text.strip_prefix("test result: ") else {
            return;
        };
        let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let count = words.next().and_then(|n| n.parse().ok()).unwrap_or(0);
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                Some("ignored") => self.skipped += count,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Total;

    #[test]
    fn result_lines_add_up() {
        let mut total = Total::default();
        for text in [
            "running 3 tests",
            "test a ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s",
        ] {
            total.read(text);
        }
        let expected = Total {
            passed: 5,
            failed: 4,
            skipped: 1,
        };
        assert_eq!(total, expected);
    }
}
