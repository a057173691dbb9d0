//! A step, recorded by a run of this program on the emulated driver, which computes nothing.

use crate::commands::train::OP_BY_OP;
use crate::config::{self, RunConfig};
use crate::error::{Error, Result};
use kiln_files::shown_path;
use kiln_forecast::{Gpu, Step};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Steps of a run: one op by op, one recorded, one replayed, and one more whose memory is that of any later one.
const STEPS: u32 = 4;

/// Memory of a device on which a step is recorded so that its needs are known, whatever a card has.
pub(super) const ENOUGH: u64 = 1 << 42;

/// The outcome of a run.
pub(super) enum Recorded {
    /// The step.
    Step(Step),
    /// It needs more memory than the card has.
    TooLarge,
}

/// The emulated driver: the file that `KILN_CUDA_DRIVER` names, or the one beside this program.
pub(super) fn driver() -> Result<PathBuf> {
    let missing = |what: String| {
        Error::failure(format!("no step can be recorded: {what}")).help(
            "build the emulated driver with `cargo build --release -p kiln-emulator`, and put libkiln_emulator.so beside this program or \
             name it in KILN_CUDA_DRIVER",
        )
    };
    let named = std::env::var_os("KILN_CUDA_DRIVER").filter(|name| !name.is_empty());
    match named.map(PathBuf::from) {
        // A real driver knows nothing of recording, and has its own name.
        Some(path)
            if path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().contains("kiln_emulator")) =>
        {
            match path.is_file() {
                true => Ok(path),
                false => Err(missing(format!("there is no {}", shown_path(&path)))),
            }
        }
        _ => beside().ok_or_else(|| missing("there is no libkiln_emulator.so beside this program".to_string())),
    }
}

#[cfg(feature = "cuda")]
fn beside() -> Option<PathBuf> {
    kiln_device::emulator::beside()
}

#[cfg(not(feature = "cuda"))]
fn beside() -> Option<PathBuf> {
    None
}

/// Fails in a build that cannot record.
pub(super) fn check_build() -> Result<()> {
    match cfg!(feature = "cuda") {
        true => Ok(()),
        false => Err(Error::failure("this build of kiln has no CUDA, whose launches a forecast is made of").help(
            "build one with `cargo install --locked --path crates/cli --features cuda`, which takes nvcc; it runs without a GPU",
        )),
    }
}

/// The error of a network whose steps cannot be recorded.
fn not_recorded(why: &str) -> Error {
    Error::failure(format!(
        "steps of this network run op by op, and a forecast is of recorded ones: {why}"
    ))
    .help("`kiln profile --device cuda` measures them on a card")
}

/// Records a step with these settings as it is on a card with so many bytes of memory.
pub(super) fn record(config: &RunConfig, gpu: &Gpu, memory: u64, driver: &Path) -> Result<Recorded> {
    let failed = |what: &str, e: &dyn std::fmt::Display| Error::failure(format!("cannot {what}: {e}"));
    let folder = tempfile::tempdir().map_err(|e| failed("make a temporary folder", &e))?;
    let (settings, log, trace) = (
        folder.path().join("settings.json"),
        folder.path().join("launches.jsonl"),
        folder.path().join("trace.jsonl"),
    );
    config::write(&settings, config)?;
    let program = std::env::current_exe().map_err(|e| failed("find this program", &e))?;
    let steps = STEPS.to_string();
    let mut args: Vec<OsString> = ["train", "--config"].map(OsString::from).into();
    args.push(settings.into());
    args.extend(["--device", "cuda", "--plain", "--out", "run", "--max-steps", &steps].map(OsString::from));
    let output = Command::new(program)
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .env("KILN_CUDA_DRIVER", driver)
        .env("KILN_LAUNCH_LOG", &log)
        .env("KILN_EMULATOR_TRACE", &trace)
        .env("KILN_EMULATOR_EXECUTE", "0")
        .env("KILN_EMULATOR_DEVICES", "1")
        .env("KILN_EMULATOR_MEMORY", memory.to_string())
        .env("KILN_EMULATOR_SM", gpu.card.sm.to_string())
        .env("KILN_EMULATOR_MULTIPROCESSORS", gpu.card.sms.to_string())
        .env_remove("KILN_EMULATOR_CHECK")
        .env_remove("KILN_EMULATOR_COUNTERS")
        .env_remove("KILN_EMULATOR_STREAMS")
        .env_remove("KILN_EMULATOR_SKIP")
        .output()
        .map_err(|e| failed("run this program again", &e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("out of memory") || said.contains("does not fit") {
            return Ok(Recorded::TooLarge);
        }
        let last = said
            .lines()
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
        return Err(Error::failure(format!("the recorded run failed: {last}")));
    }
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|e| failed("read what was recorded", &e));
    let unread = |e: &dyn std::fmt::Display| {
        failed("read the recorded step", e).help("the emulated driver may be older than this program: build both")
    };
    match Step::read(&read(&log)?, &read(&trace)?) {
        Ok(Some(step)) => Ok(Recorded::Step(step)),
        // It ran op by op to its end: a recording has no place beside what the ops before it left.
        Ok(None) if memory < ENOUGH => Ok(Recorded::TooLarge),
        Ok(None) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let why = said.lines().find_map(|line| line.strip_prefix(OP_BY_OP));
            Err(why.map_or_else(|| unread(&"no step was replayed"), not_recorded))
        }
        Err(e) => Err(unread(&e)),
    }
}
