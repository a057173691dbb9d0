//! `cargo xtask ci`: what a change must pass before it lands.

use crate::licences;
use crate::test;
use crate::toolkit;
use crate::workspace::{Outcome, cargo, passes};

#[derive(clap::Args)]
#[command(after_help = "\
Runs in this order, each to its end even when one before it failed:
  fmt     cargo fmt --all --check
  clippy  cargo clippy --workspace --all-targets -- -D warnings, with CUDA where nvcc can be had
  doc     cargo doc --workspace --no-deps, with rustdoc's warnings denied
  licence cargo xtask licences
  test    cargo xtask test")]
pub(crate) struct Args {
    /// Leave out the tests (the script of the build machines runs them on their own)
    #[arg(long)]
    pub(crate) lints: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let selection = test::selection(&toolkit::ensure());
    let chosen = || selection.iter().map(String::as_str);
    let clippy = ["clippy", "--all-targets"].into_iter().chain(chosen());
    let clippy = clippy.chain(["--", "-D", "warnings"]);
    let doc = ["doc", "--no-deps"].into_iter().chain(chosen());
    let mut results = vec![
        ("fmt", passes(&mut cargo(["fmt", "--all", "--check"]))?),
        ("clippy", passes(&mut cargo(clippy))?),
        ("doc", passes(cargo(doc).env("RUSTDOCFLAGS", "-D warnings"))?),
        ("licence", licences::run()?),
    ];
    if !args.lints {
        let args = test::Args {
            seed: test::Seed::default(),
            release: false,
            cargo: Vec::new(),
        };
        results.push(("test", test::run(&args)?));
    }
    println!();
    for (name, ok) in &results {
        println!("{name:<8} {}", if *ok { "ok" } else { "FAILED" });
    }
    Ok(results.iter().all(|(_, ok)| *ok))
}
