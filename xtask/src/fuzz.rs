//! `cargo xtask fuzz`: runs targets of kiln-fuzz, built by the stable compiler, in separate processes that may crash.

use crate::workspace::{Outcome, cargo, line, passes, root};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

/// The time after which an input counts as one that does not end.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
#[command(after_help = "\
  cargo xtask fuzz                               the targets
  cargo xtask fuzz all --time 30                 each of them for half a minute
  cargo xtask fuzz csv --seed 1000000            others than the first million inputs
  cargo xtask fuzz csv --input target/fuzz/csv-0.fail
                                                 one input again
An input that fails, kills the process or does not end is written to target/fuzz. One that was mended belongs in
crates/fuzz/corpus/TARGET, where the tests run it for ever.
With a nightly compiler and cargo-fuzz, libFuzzer runs the same targets:
  KILN_FUZZ_TARGET=csv cargo +nightly fuzz run --fuzz-dir crates/fuzz/libfuzzer any")]
pub(crate) struct Args {
    /// The target, or `all`
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    time: u64,
    /// The number of the first input
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Run only the input in this file
    #[arg(long)]
    input: Option<PathBuf>,
    /// Make the input of --input smaller
    #[arg(long, requires = "input")]
    minimise: bool,
}

impl Args {
    /// Arguments for all targets, from the first input on.
    pub(crate) fn all(seconds: u64) -> Self {
        Args {
            target: Some("all".to_string()),
            time: seconds,
            seed: 0,
            input: None,
            minimise: false,
        }
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if !passes(&mut cargo(["build", "--package", "kiln-fuzz"]))? {
        return Ok(false);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir));
    let program = target.join("debug/kiln-fuzz");
    let Some(name) = &args.target else {
        return passes(&mut Command::new(program));
    };
    let mut ok = true;
    for name in names(&program, name)? {
        let mut command = Command::new(&program);
        command.current_dir(root()).arg(&name);
        command.args(["--time", &args.time.to_string(), "--seed", &args.seed.to_string()]);
        command.arg("--out").arg(target.join("fuzz"));
        if let Some(input) = &args.input {
            command
                .arg("--input")
                .arg(std::path::absolute(input).unwrap_or_else(|_| input.clone()));
        }
        if args.minimise {
            command.arg("--minimise");
        }
        ok &= watch(&mut command, &name, &target.join("fuzz"))?;
    }
    Ok(ok)
}

/// The targets for a name, which may be `all`.
fn names(program: &Path, name: &str) -> Result<Vec<String>, String> {
    if name != "all" {
        return Ok(vec![name.to_string()]);
    }
    let listed = Command::new(program)
        .output()
        .map_err(|e| format!("cannot run {}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(text
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .map(String::from)
        .collect())
}

/// Runs a target until it ends. If it crashes or does not end, the input is kept.
fn watch(command: &mut Command, name: &str, folder: &Path) -> Outcome {
    let shown = line(command);
    println!("$ {shown}");
    let mut child = command.spawn().map_err(|e| format!("cannot run `{shown}`: {e}"))?;
    let current = folder.join(format!("{name}.current"));
    let _ = std::fs::remove_file(&current);
    let status = loop {
        if let Some(status) = child
            .try_wait()
            .map_err(|e| format!("cannot wait for `{shown}`: {e}"))?
        {
            break status;
        }
        let begun = std::fs::metadata(&current).and_then(|m| m.modified()).ok();
        if begun.is_some_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > LONGEST)) {
            println!("{name}: an input that runs for more than {} s", LONGEST.as_secs());
            let _ = child.kill();
            break child.wait().map_err(|e| format!("cannot wait for `{shown}`: {e}"))?;
        }
        sleep(Duration::from_millis(200));
    };
    if status.code().is_none() {
        keep(&current, name, folder, status);
    }
    Ok(status.success())
}

fn keep(current: &Path, name: &str, folder: &Path, status: ExitStatus) {
    let kept = (0u32..)
        .map(|i| folder.join(format!("{name}-{i}.died")))
        .find(|path| !path.exists());
    if let Some(kept) = kept
        && std::fs::rename(current, &kept).is_ok()
    {
        println!("{name}: {status}; the input: {}", kept.display());
    }
}
