//! The program that `cargo xtask fuzz` calls, which runs one target.

use clap::Parser;
use kiln_fuzz::search::{fails, minimise, search};
use kiln_fuzz::{TARGETS, Target, target};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs a fuzz target over inputs that depend on a seed alone. An input that makes the target panic is minimised and
/// written to a file.
#[derive(Parser)]
struct Args {
    /// The target's name [default: list all targets]
    target: Option<String>,
    /// Seconds to run
    #[arg(long, default_value_t = 60)]
    time: u64,
    /// Number of the first input
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Run only the input in this file
    #[arg(long)]
    input: Option<PathBuf>,
    /// Make the input of --input smaller
    #[arg(long, requires = "input")]
    minimise: bool,
    /// Folder for failing inputs
    #[arg(long, default_value = "target/fuzz")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(name) = &args.target else {
        for target in TARGETS {
            println!("{:<14}{}", target.name, target.about);
        }
        return ExitCode::SUCCESS;
    };
    let Some(target) = target(name) else {
        let names: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
        eprintln!("no target `{name}`; there are {}", names.join(", "));
        return ExitCode::from(2);
    };
    match run(&args, target) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args, target: &Target) -> Result<bool, String> {
    if let Some(path) = &args.input {
        let input = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        if !fails(target, &input) {
            println!("{}: {} does not fail", target.name, path.display());
            return Ok(true);
        }
        if args.minimise {
            keep(args, target, &input)?;
        }
        return Ok(false);
    }
    std::fs::create_dir_all(&args.out).map_err(|e| format!("cannot make {}: {e}", args.out.display()))?;
    // The file of the input that runs now, which remains if the process is killed or does not end.
    let current = args.out.join(format!("{}.current", target.name));
    let (start, time) = (Instant::now(), Duration::from_secs(args.time));
    let mut last = args.seed;
    let mut said = 0;
    let found = search(target, args.seed.., |number, input| {
        last = number;
        let seconds = start.elapsed().as_secs();
        if seconds >= said + 10 {
            said = seconds;
            println!("{}: {} inputs in {seconds} s", target.name, number - args.seed);
        }
        std::fs::write(&current, input).is_ok() && start.elapsed() < time
    });
    let _ = std::fs::remove_file(&current);
    match found {
        None => {
            println!(
                "{}: nothing in {} inputs, the numbers {}..{last}",
                target.name,
                last - args.seed,
                args.seed
            );
            Ok(true)
        }
        Some(input) => {
            println!("{}: input number {last} fails", target.name);
            keep(args, target, &input)?;
            Ok(false)
        }
    }
}

/// Writes the smallest input that fails as `input` does.
fn keep(args: &Args, target: &Target, input: &[u8]) -> Result<(), String> {
    std::panic::set_hook(Box::new(|_| {}));
    let small = minimise(input, |input| fails(target, input));
    let _ = std::panic::take_hook();
    let path = free(&args.out, target.name);
    std::fs::write(&path, &small).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    println!(
        "{}: the smallest of its kind, {} bytes: {}",
        target.name,
        small.len(),
        path.display()
    );
    println!("again: cargo xtask fuzz {} --input {}", target.name, path.display());
    // The target runs once more, to print its panic message.
    fails(target, &small);
    Ok(())
}

/// A path in `folder` at which no file exists.
fn free(folder: &Path, name: &str) -> PathBuf {
    let of = |i: u32| folder.join(format!("{name}-{i}.fail"));
    (0..).map(of).find(|path| !path.exists()).unwrap_or_else(|| of(0))
}
