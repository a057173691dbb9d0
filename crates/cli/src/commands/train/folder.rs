//! The folder of a run, new or of a run that is resumed.

use crate::args::TrainArgs;
use crate::config::{self, Settings};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::weights;
use kiln_files::shown_path;
use kiln_train::{Checkpoint, RunFolder, TrainError};
use std::path::Path;

/// Settings that may differ when a run is resumed: its length, what it does about a NaN, and those on which its results do not depend.
const FREE: [&str; 22] = [
    "epochs",
    "max_steps",
    "patience",
    "nan",
    "skip_nan",
    "nan_lr",
    "log_every",
    "recompute",
    "recompute_activations",
    "tensorboard",
    "twin",
    "report",
    "data.path",
    "valid_batch",
    "workers",
    "data_on_device",
    "device.name",
    "device.threads",
    "device.memory",
    "checkpoint.steps",
    "checkpoint.minutes",
    "checkpoint.keep",
];

/// The folder of a run, with the checkpoint that it is resumed from.
pub(super) struct Opened {
    pub(super) folder: RunFolder,
    pub(super) checkpoint: Option<Checkpoint>,
}

/// Makes the folder that the run writes into.
pub(super) fn create(settings: &Settings) -> Result<RunFolder> {
    let folder = match &settings.out {
        Some(path) => RunFolder::create(path),
        None => RunFolder::numbered("runs", &format!("{}-{}", settings.model, settings.seed)),
    };
    folder.map_err(|e| {
        let help = match &e {
            TrainError::Occupied { .. } => {
                "name another folder with --out, or leave --out out for a numbered one; a run goes on with --resume"
            }
            TrainError::Busy { .. } => "name another folder with --out, or leave --out out for a numbered one",
            _ => "name a folder that can be written with --out",
        };
        Error::from(e).help(help)
    })
}

/// Opens the folder of a run that is to go on, with its settings and its newest checkpoint.
pub(super) fn reopen(path: &Path, args: &TrainArgs) -> Result<(Settings, Opened)> {
    let shown = shown_path(path);
    let again = || {
        format!(
            "start it anew: kiln train --config {shown}/{} --out DIR",
            RunFolder::CONFIG
        )
    };
    let folder = RunFolder::reopen(path).map_err(|e| match &e {
        TrainError::Busy { .. } => Error::from(e).help("wait for that run to end, or stop it"),
        _ => Error::from(e).help("name the folder that `kiln train` shows as `run folder`"),
    })?;
    let saved = config::read(&folder.file(RunFolder::CONFIG))?;
    let (merged, changed) = config::changed(&saved, &args.config.flags)?;
    if let Some(key) = changed.iter().find(|key| !FREE.contains(&key.as_str())) {
        return Err(Error::usage(format!(
            "{shown}: `{key}` is a setting of the run, which cannot change when it is resumed"
        ))
        .help(format!("leave it out; these can change: {}", FREE.join(", "))));
    }
    let checkpoint = Checkpoint::latest(&folder).map_err(|e| match &e {
        TrainError::NoCheckpoint { .. } => Error::from(e).help(again()),
        _ => e.into(),
    })?;
    let opened = Opened {
        folder,
        checkpoint: Some(checkpoint),
    };
    Ok((Settings::of(merged)?, opened))
}

/// Refuses data of which other facts hold than of that of the run that is resumed: a text with other characters, other classes.
pub(super) fn check_facts(folder: &RunFolder, data: &Data) -> Result<()> {
    let path = folder.file(RunFolder::CONFIG);
    let saved = weights::facts(&path).map_err(Error::failure)?;
    match saved == data.facts {
        true => Ok(()),
        false => Err(Error::failure(format!(
            "{}: the data is other than when the run began: {}, then {}",
            shown_path(folder.path()),
            data.facts.described(),
            saved.described()
        ))
        .help("pass that data with --data")),
    }
}
