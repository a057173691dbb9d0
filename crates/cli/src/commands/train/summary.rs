//! `summary.json` in the folder of a run: how it ended, and on which machine it was.

use crate::device;
use crate::error::{Error, Result};
use crate::machine::machine;
use crate::record::SUMMARY;
use kiln_train::RunFolder;
use serde_json::{Value, json};

/// The bytes of the note of a run in progress, blanks included: room for its end on a disk that is full by then.
const ROOM: usize = 4096;

/// The characters of an error that fit this room, whatever they are.
const ERROR: usize = 300;

/// Notes that a run is in progress. What stays of a run that is killed is this note.
pub(super) fn begin(folder: &RunFolder) -> Result<()> {
    Ok(folder.write_json_with_room(SUMMARY, &json!({ "reason": "running" }), ROOM)?)
}

/// Notes the error that ended a run, and returns it.
pub(super) fn fail(folder: &RunFolder, error: Error) -> Error {
    let note = |text: &str| json!({ "reason": "failed", "error": text });
    if folder.write_json(SUMMARY, &note(&error.message)).is_err() {
        let short: String = error.message.chars().take(ERROR).collect();
        // The error of the run matters more than one of this note.
        let _ = folder.overwrite_json(SUMMARY, &note(&short));
    }
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
    folder.write_json(SUMMARY, &summary).map_err(|error| {
        // At least how it ended.
        let short: String = error.to_string().chars().take(ERROR).collect();
        let note = json!({ "reason": summary["reason"], "steps": summary["steps"], "warnings": [short] });
        let _ = folder.overwrite_json(SUMMARY, &note);
        error.into()
    })
}
