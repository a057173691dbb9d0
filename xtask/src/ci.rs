//! `cargo xtask ci`: the checks that a change must pass.

use crate::licences;
use crate::test::{self, Times};
use crate::toolkit::{self, Toolkit};
use crate::workspace::{Outcome, cargo, passes};

#[derive(clap::Args)]
#[command(after_help = "\
Runs in this order, each to its end even when one before it failed:
  fmt     cargo fmt --all --check
  clippy  cargo clippy --workspace --all-targets -- -D warnings, with CUDA where nvcc can be had, and then of the program
          without it too
  doc     cargo doc --workspace --no-deps, with rustdoc's warnings denied
  licence cargo xtask licences
  test    cargo xtask test
At the end stand the seconds of each.")]
pub(crate) struct Args {
    /// Leave out the tests
    #[arg(long)]
    pub(crate) lints: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let toolkit = toolkit::ensure();
    let selection = toolkit.selection();
    let chosen = || selection.iter().map(String::as_str);
    let clippy = ["clippy", "--all-targets"].into_iter().chain(chosen());
    let clippy = clippy.chain(["--", "-D", "warnings"]);
    // With tests, whose dependencies have features that the others are checked with already.
    let without_cuda = [
        "clippy",
        "--workspace",
        "--bin",
        "kiln",
        "--test",
        "suite",
        "--",
        "-D",
        "warnings",
    ];
    let doc = ["doc", "--no-deps"].into_iter().chain(chosen());
    let mut times = Times::default();
    let mut results = vec![
        (
            "fmt",
            times.step("fmt", || passes(&mut cargo(["fmt", "--all", "--check"])))?,
        ),
        ("clippy", times.step("clippy", || passes(&mut cargo(clippy)))?),
        (
            "no CUDA",
            times.step("clippy without CUDA", || match toolkit {
                Toolkit::Ready => passes(&mut cargo(without_cuda)),
                // All of the above was without.
                Toolkit::Missing(_) => Ok(true),
            })?,
        ),
        (
            "doc",
            times.step("doc", || passes(cargo(doc).env("RUSTDOCFLAGS", "-D warnings")))?,
        ),
        ("licence", times.step("licence", licences::run)?),
    ];
    if args.lints {
        println!("\n{times}");
    } else {
        let args = test::Args {
            seed: test::Seed::default(),
            release: false,
            full: false,
            cargo: Vec::new(),
        };
        results.push(("test", test::run_timed(&args, &mut times)?));
    }
    println!();
    for (name, ok) in &results {
        println!("{name:<8} {}", if *ok { "ok" } else { "FAILED" });
    }
    Ok(results.iter().all(|(_, ok)| *ok))
}
