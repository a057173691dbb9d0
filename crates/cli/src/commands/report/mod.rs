//! `kiln report`: a page of a run.

mod classes;
mod layers;
mod machine;
mod measure;
mod page;
mod pictures;

use crate::args::ReportArgs;
use crate::config::Settings;
use crate::device::{DeviceOptions, with_device};
use crate::error::{Error, Result};
use crate::output::{self, line};
use crate::record::RunRecord;
use kiln_files::{check_writable, shown_path, write_atomic};
use kiln_train::RunFolder;
use measure::Measure;
use page::Page;
use std::path::Path;

/// The name of the page in the folder of its run.
pub(crate) const FILE: &str = "report.html";

/// Writes the page of the run in `folder` as `file`. With `device` it also has what is computed on it; a part that cannot be
/// computed is left out with a warning.
pub(crate) fn create(folder: &Path, file: &Path, device: Option<&DeviceOptions>) -> Result<()> {
    let record = RunRecord::read(folder)?;
    if record.epochs.is_empty() {
        return Err(
            Error::failure(format!("{}: the run has not finished an epoch", shown_path(folder)))
                .help("wait for its first epoch, or go on with it: kiln train --resume DIR"),
        );
    }
    let settings = Settings::of(record.config.clone())?;
    // The path is checked before anything is measured.
    check_writable(file).map_err(|e| {
        Error::from(e)
            .context("cannot write the report")
            .help("name a file in a folder that exists and can be written with --out")
    })?;
    let measured = match device {
        Some(options) => {
            let measure = Measure {
                folder,
                settings: &settings,
            };
            Some(with_device(options, measure)?)
        }
        None => None,
    };
    let missing = |what: &str, error: &Error| output::warn(&format!("the report has no {what}: {}", error.message));
    if let Some(measured) = &measured {
        if let Some(Err(error)) = &measured.classes {
            missing("confusion matrix", error);
        }
        if let Some(Err(error)) = &measured.pictures {
            missing("samples", error);
        }
        if let Err(error) = &measured.layers {
            missing("time by layer", error);
        }
    }
    let page = Page {
        folder,
        record: &record,
        settings: &settings,
        measured: measured.as_ref(),
    };
    Ok(write_atomic(file, page.html().as_bytes())?)
}

pub(crate) fn run(args: ReportArgs) -> Result<u8> {
    RunFolder::tidy(&args.run);
    let file = args.out.clone().unwrap_or_else(|| args.run.join(FILE));
    let device = args.device.options();
    create(&args.run, &file, (!args.brief).then_some(&device))?;
    line(&format!("saved: {}", shown_path(&file)));
    Ok(0)
}
