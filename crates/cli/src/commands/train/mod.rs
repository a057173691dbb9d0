//! `kiln train`: trains a model and writes the files of the run, or resumes it.

mod report;

use super::objective;
use crate::args::TrainArgs;
use crate::config::{self, Settings};
use crate::data::{self, Data};
use crate::device::{Task, with_device};
use crate::error::{Error, Result, code};
use crate::output::{self, line};
use crate::progress::Progress;
use crate::signals::Signals;
use crate::weights;
use kiln_core::Backend;
use kiln_data::{Loader, LoaderOptions};
use kiln_files::shown_path;
use kiln_models::MetricKind;
use kiln_nn::Module;
use kiln_train::{
    Accuracy, Checkpoint, Clip, End, Goal, Monitor, NonFinite, RunFolder, StopHandle, TrainError, TrainOptions, Trainer,
};
use serde_json::Value;
use std::path::Path;

/// Settings that may differ when a run is resumed: its length, and those on which its results do not depend.
const FREE: [&str; 11] = [
    "epochs",
    "max_steps",
    "patience",
    "log_every",
    "data.path",
    "workers",
    "device.name",
    "device.threads",
    "checkpoint.steps",
    "checkpoint.minutes",
    "checkpoint.keep",
];

/// The folder of a run, with the checkpoint that it is resumed from.
struct Opened {
    folder: RunFolder,
    checkpoint: Option<Checkpoint>,
}

/// The end of a run, which is reported after the device has been released.
struct Outcome {
    end: End,
    summary: Value,
    text: Vec<String>,
}

struct Train {
    settings: Settings,
    data: Data,
    /// The run that is resumed.
    resumed: Option<Opened>,
    json: bool,
    stop: StopHandle,
    /// The reason for the choice of the device.
    chosen: Option<String>,
}

impl Task for Train {
    type Output = Outcome;

    fn chosen(&mut self, why: String) {
        self.chosen = Some(why);
    }

    fn run<B: Backend>(self, backend: &B) -> Result<Outcome> {
        let Train {
            settings,
            data,
            resumed,
            json,
            stop,
            chosen,
        } = self;
        let (model, metric) = (settings.model, settings.model.recipe().metric);
        let mut net = model.build_for(backend, settings.seed, data.classes(model))?;
        let mut optimizer = settings.optimizer.build();
        let parameters = net.num_parameters() as u64;

        let (train, valid) = loaders(&settings, &data)?;
        // The folder is made last, so that a run that cannot start leaves none behind.
        let opened = match resumed {
            Some(opened) => opened,
            None => Opened {
                folder: create_folder(&settings)?,
                checkpoint: None,
            },
        };
        let path = opened.folder.path().to_path_buf();
        let config = report::config(&settings, &data, &backend.name());
        opened.folder.write_json(RunFolder::CONFIG, &config)?;
        if !json {
            chosen.iter().for_each(|why| line(why));
        }
        report::announce(&settings, &data, &opened, &backend.name(), parameters, json);
        let updates = (train.batches() as u64).div_ceil(settings.accumulate as u64);
        let updates = updates
            .saturating_mul(settings.epochs)
            .min(settings.max_steps.unwrap_or(u64::MAX));
        let mut trainer = Trainer::new(backend, options(&settings))
            .callback(Progress::new(json, metric))
            .metadata(weights::metadata(model))
            .folder(opened.folder)
            .stop_handle(stop);
        if metric == MetricKind::Accuracy {
            trainer = trainer.metric(Accuracy::new());
        }
        if let Some(schedule) = settings.schedule.build(settings.optimizer.lr, updates) {
            trainer = trainer.schedule(schedule);
        }
        if let Some(checkpoint) = opened.checkpoint {
            trainer = trainer.resume(checkpoint);
        }
        let report = trainer
            .fit(&mut net, &mut *optimizer, objective, &train, Some(&valid))
            .map_err(|e| report::advised(e, &path))?;
        Ok(Outcome {
            end: report.end,
            summary: report::summary(&report, metric, &path),
            text: report::text(&report, metric, &path),
        })
    }
}

/// The loaders of the samples to train on and of those held back.
fn loaders(settings: &Settings, data: &Data) -> Result<(Loader, Loader)> {
    let model = settings.model;
    let train = LoaderOptions {
        batch_size: settings.batch,
        shuffle: true,
        workers: settings.workers,
        seed: settings.seed,
        ..Default::default()
    };
    let valid = LoaderOptions {
        batch_size: match model.recipe().metric {
            MetricKind::Accuracy => settings.batch.max(100),
            MetricKind::Perplexity => settings.batch,
        },
        workers: settings.workers,
        ..Default::default()
    };
    let train = Loader::new(data.train.clone(), train)?.with_transform(data::transform(model, true)?);
    let valid = Loader::new(data.test.clone(), valid)?.with_transform(data::transform(model, false)?);
    Ok((train, valid))
}

fn options(settings: &Settings) -> TrainOptions {
    TrainOptions {
        epochs: settings.epochs,
        accumulate: settings.accumulate,
        clip: settings.clip_norm.map(Clip::Norm),
        log_every: settings.log_every,
        non_finite: match settings.skip_nan {
            Some(in_a_row) => NonFinite::Skip { in_a_row },
            None => NonFinite::Stop,
        },
        monitor: match settings.model.recipe().metric {
            MetricKind::Accuracy => Monitor::new("accuracy", Goal::Max),
            MetricKind::Perplexity => Monitor::default(),
        },
        patience: settings.patience,
        max_steps: settings.max_steps,
        checkpoints: Some(settings.checkpoints),
        capture: !settings.no_capture,
    }
}

/// Makes the folder that the run writes into.
fn create_folder(settings: &Settings) -> Result<RunFolder> {
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
fn reopen(path: &Path, args: &TrainArgs) -> Result<(Settings, Opened)> {
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
    let (merged, changed) = config::differences(&saved, &args.config.flags)?;
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

/// Refuses a text with other characters than those of the run that is resumed.
fn check_text(folder: &RunFolder, data: &Data) -> Result<()> {
    let path = folder.file(RunFolder::CONFIG);
    let saved = weights::entry(&path, weights::VOCABULARY).map_err(Error::failure)?;
    let now = data
        .vocabulary
        .as_ref()
        .map(|v| v.characters().iter().collect::<String>());
    match saved == now {
        true => Ok(()),
        false => Err(Error::failure(format!(
            "{}: the text has other characters than when the run began",
            shown_path(folder.path())
        ))
        .help("pass that text with --data FILE")),
    }
}

pub(crate) fn run(args: TrainArgs) -> Result<u8> {
    let (settings, resumed) = match &args.resume {
        Some(path) => {
            let (settings, opened) = reopen(path, &args)?;
            (settings, Some(opened))
        }
        None => (Settings::of(config::combined(&args.config)?)?, None),
    };
    let data = data::load(settings.model, &settings.data, settings.seed)?;
    if let Some(opened) = &resumed {
        check_text(&opened.folder, &data)?;
    }
    let signals = Signals::install()?;
    let device = settings.device.options();
    let task = Train {
        settings,
        data,
        resumed,
        json: args.json,
        stop: signals.stop_handle(),
        chosen: None,
    };
    let outcome = with_device(&device, task)?;
    if args.json {
        output::json(&outcome.summary);
    } else {
        outcome.text.iter().for_each(|t| line(t));
    }
    Ok(match outcome.end {
        End::Stopped => signals.exit_code().unwrap_or(code::INTERRUPTED),
        End::Finished | End::EarlyStopped => 0,
    })
}
