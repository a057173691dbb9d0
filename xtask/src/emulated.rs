//! Runs of `kiln` on the emulated driver, for what they write down.

use crate::toolkit::Toolkit;
use crate::workspace::{cargo, passes, root};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of the device that is emulated, that of an H100.
const MEMORY: u64 = 80_000_000_000;

/// The files of a run.
pub(crate) struct Trained {
    /// The launch trace.
    pub(crate) trace: String,
    /// The log of launches of recorded steps, with the bytes of their arguments; as the trace, empty if kernels were carried out.
    pub(crate) launches: String,
    /// The counters; empty unless kernels were carried out.
    pub(crate) counters: String,
}

/// Builds the program as the tests do, with the emulator beside it, so that nothing is built twice: the folder that it lies in; `None`
/// if it does not compile.
pub(crate) fn programs() -> Result<Option<PathBuf>, String> {
    let mut build: Vec<String> = ["test", "--no-run", "--test", "cuda"].map(String::from).into();
    build.extend(Toolkit::Ready.selection());
    if !passes(&mut cargo(build.iter().map(String::as_str)))? {
        return Ok(None);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir));
    Ok(Some(target.join("debug")))
}

/// Trains a few steps of a network on the emulated driver. With `execute` kernels are carried out and counted, else nothing is computed.
pub(crate) fn trained(programs: &Path, train: &str, steps: u32, execute: bool) -> Result<Trained, String> {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let (process, run) = (std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(format!("kiln-gates-{process}-{run}"));
    std::fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    let done = trained_in(programs, train, steps, execute, &folder);
    // A temporary folder that stays does no harm.
    let _ = std::fs::remove_dir_all(&folder);
    done
}

fn trained_in(programs: &Path, train: &str, steps: u32, execute: bool, folder: &Path) -> Result<Trained, String> {
    let (trace, counters) = (folder.join("trace.jsonl"), folder.join("counters.jsonl"));
    let launches = folder.join("launches.jsonl");
    let mut command = Command::new(programs.join("kiln"));
    command
        .arg("train")
        .args(train.split_whitespace())
        .args([
            "--max-steps",
            &steps.to_string(),
            "--device",
            "cuda",
            "--plain",
            "--out",
            "run",
        ])
        .current_dir(folder)
        .env("KILN_CUDA_DRIVER", emulator(programs)?)
        .env("KILN_EMULATOR_MEMORY", MEMORY.to_string());
    match execute {
        false => command
            .env("KILN_EMULATOR_EXECUTE", "0")
            .env("KILN_LAUNCH_LOG", &launches)
            .env("KILN_EMULATOR_TRACE", &trace),
        true => command.env("KILN_EMULATOR_COUNTERS", &counters),
    };
    let output = command.output().map_err(|e| format!("cannot run kiln: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`kiln train {train}`: {said}"));
    }
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()));
    Ok(match execute {
        false => Trained {
            trace: read(&trace)?,
            launches: read(&launches)?,
            counters: String::new(),
        },
        true => Trained {
            trace: String::new(),
            launches: String::new(),
            counters: read(&counters)?,
        },
    })
}

/// The modelled nanoseconds of a step on an H100, by `kiln forecast`.
pub(crate) fn forecast(programs: &Path, train: &str) -> Result<u64, String> {
    let mut command = Command::new(programs.join("kiln"));
    command
        .arg("forecast")
        .args(train.split_whitespace())
        .args(["--gpu", "h100", "--no-largest", "--json"])
        .env("KILN_CUDA_DRIVER", emulator(programs)?);
    let output = command.output().map_err(|e| format!("cannot run kiln: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`kiln forecast {train}`: {said}"));
    }
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("its answer: {e}"))?;
    let seconds = answer["seconds"].as_f64().ok_or("its answer has no `seconds`")?;
    Ok((seconds * 1e9).round() as u64)
}

/// The emulated driver that cargo built.
fn emulator(programs: &Path) -> Result<PathBuf, String> {
    let file = "libkiln_emulator.so";
    let found = [programs.join("deps").join(file), programs.join(file)]
        .into_iter()
        .find(|path| path.is_file());
    found.ok_or_else(|| format!("there is no {file} in {}", programs.display()))
}
