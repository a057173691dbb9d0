//! `summary.json` in the folder of a run: how it ended, and on which machine it was.

use crate::device;
use crate::error::{Error, Result};
use crate::machine::machine;
use crate::record::SUMMARY;
use kiln_train::RunFolder;
use serde_json::{Value, json};

/// Notes that a run is in progress. What stays of a run that is killed is this note.
pub(super) fn begin(folder: &RunFolder) -> Result<()> {
    Ok(folder.write_json(SUMMARY, &json!({ "reason": "running" }))?)
}

/// Notes the error that ended a run, and returns it.
pub(super) fn fail(folder: &RunFolder, error: Error) -> Error {
    // The error of the run matters more than one of this note.
    let _ = folder.write_json(SUMMARY, &json!({ "reason": "failed", "error": error.message }));
    error
}

/// Writes the summary of a run that has ended on the device of this name.
pub(super) fn end(folder: &RunFolder, summary: &Value, device: &str) -> Result<()> {
    let mut summary = summary.clone();
    if let Value::Object(entries) = &mut summary {
        entries.retain(|key, _| key != "event" && key != "folder");
    }
    let missing = machine(device)
        .absent()
        .iter()
        .map(|source| Value::from(format!("{}: {}", source.what, source.why)))
        .collect();
    summary["environment"] = json!({
        "kiln": env!("CARGO_PKG_VERSION"),
        "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        "device": device,
        "description": device::describe(device),
        "threads": rayon::current_num_threads(),
        "not_measured": Value::Array(missing),
    });
    Ok(folder.write_json(SUMMARY, &summary)?)
}
