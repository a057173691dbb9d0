//! `cargo xtask sanitize`: runs tests of the crates with `unsafe` code under AddressSanitizer, Valgrind or Miri.

use crate::workspace::{Outcome, cargo, passes, root};
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    /// AddressSanitizer: accesses outside of an allocation or after it was freed
    Asan,
    /// Valgrind's memcheck: the same, and branches on uninitialised memory
    Valgrind,
    /// Miri: all undefined behaviour of Rust, in code without vector instructions
    Miri,
}

#[derive(clap::Args)]
#[command(after_help = "\
  cargo xtask sanitize                 every tool that this machine has
  cargo xtask sanitize asan -- gemm    AddressSanitizer, tests whose names contain `gemm`
AddressSanitizer takes 10 minutes on two cores to build, into target/sanitize, and its tests 15 more; Valgrind is some 30 times
slower than the tests alone, so give it filters. The compiler flag that AddressSanitizer needs is an unstable one, which the
stable compiler takes with RUSTC_BOOTSTRAP=1; it is set for these builds alone.")]
pub(crate) struct Args {
    /// The tool [default: every tool that is installed]
    tool: Option<Tool>,
    /// Filters of tests
    #[arg(last = true)]
    filters: Vec<String>,
}

/// The tests that reach `unsafe` code, as arguments of `cargo test`.
const SUITES: [&[&str]; 3] = [
    &["--package", "kiln-cpu", "--lib"],
    &["--package", "kiln-testkit", "--test", "cpu"],
    &["--package", "kiln-simulator", "--test", "ptx"],
];

pub(crate) fn run(args: &Args) -> Outcome {
    let mut results = Vec::new();
    for tool in [Tool::Asan, Tool::Valgrind, Tool::Miri] {
        if args.tool.is_some_and(|wanted| wanted != tool) {
            continue;
        }
        let result = match tool.missing() {
            Some(why) => Err(why),
            None => Ok(tool.run(&args.filters)?),
        };
        results.push((tool, result));
    }
    println!();
    for (tool, result) in &results {
        let text = match result {
            Ok(true) => "ok",
            Ok(false) => "FAILED",
            Err(why) => why,
        };
        println!("{:<9}{text}", format!("{tool:?}").to_lowercase());
    }
    // A tool that was given by name has to run.
    let passed = |result: &Result<bool, String>| result.as_ref().map_or(args.tool.is_none(), |ok| *ok);
    Ok(results.iter().all(|(_, result)| passed(result)))
}

/// The standard output of a command; `None` if it fails.
fn printed(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stderr(Stdio::null());
    let output = without_toolchain(&mut command).output().ok()?;
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(text)
}

/// Removes the variables that cargo set for this toolchain, so that `+nightly` has an effect.
fn without_toolchain(command: &mut Command) -> &mut Command {
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO")
}

/// The host's target triple. With an explicit `--target`, flags for the tests do not apply to build scripts and macros.
fn triple() -> Result<String, String> {
    let version = printed("rustc", &["-vV"]).unwrap_or_default();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(String::from)
        .ok_or_else(|| "rustc -vV names no host".to_string())
}

impl Tool {
    /// The reason why the tool cannot run here; `None` if it can.
    fn missing(self) -> Option<String> {
        match self {
            Tool::Asan => {
                let folder = printed("rustc", &["--print", "target-libdir"]).unwrap_or_default();
                let entries = std::fs::read_dir(folder.trim()).into_iter().flatten().flatten();
                let mut names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
                let there = names.any(|name| name.ends_with("rt.asan.a"));
                (!there).then(|| "not run: the toolchain has no runtime of AddressSanitizer".to_string())
            }
            Tool::Valgrind => {
                let there = printed("valgrind", &["--version"]).is_some();
                (!there).then(|| "not run: no `valgrind`; the package of that name has it".to_string())
            }
            Tool::Miri => {
                let there = printed("cargo", &["+nightly", "miri", "--version"]).is_some();
                (!there)
                    .then(|| "not run: `rustup component add --toolchain nightly miri rust-src` gets it".to_string())
            }
        }
    }

    fn run(self, filters: &[String]) -> Outcome {
        let triple = triple()?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let target = target.join("sanitize");
        let mut ok = true;
        for suite in SUITES {
            let mut command = cargo([]);
            match self {
                Tool::Asan => {
                    command.args(["test", "--target", &triple]);
                    command.env("RUSTC_BOOTSTRAP", "1");
                    command.env("RUSTFLAGS", "-Zsanitizer=address");
                    // Leak detection is off: memory that a process keeps to its end, such as a thread pool, is no leak.
                    command.env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=1");
                    command.env("CARGO_TARGET_DIR", target.join("asan"));
                }
                Tool::Valgrind => {
                    command.arg("test");
                    let runner = format!("CARGO_TARGET_{}_RUNNER", triple.to_uppercase().replace(['-', '.'], "_"));
                    command.env(runner, "valgrind --quiet --error-exitcode=9 --fair-sched=yes");
                }
                Tool::Miri => {
                    command = Command::new("cargo");
                    without_toolchain(&mut command).current_dir(root());
                    command.args(["+nightly", "miri", "test", "--target", &triple]);
                    command.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance");
                    command.env("CARGO_TARGET_DIR", target.join("miri"));
                }
            }
            ok &= passes(command.args(suite).arg("--").args(filters))?;
        }
        Ok(ok)
    }
}
