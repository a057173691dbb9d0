//! `kiln train`: trains a model and writes the files of the run.

use super::objective;
use crate::args::TrainArgs;
use crate::data::{self, Data};
use crate::device::{Task, with_device};
use crate::error::{Error, Result, code};
use crate::output::{self, counted, line, number, percent, thousands};
use crate::progress::Progress;
use crate::signals::Signals;
use crate::weights;
use kiln_core::Backend;
use kiln_data::{Loader, LoaderOptions};
use kiln_files::shown_path;
use kiln_models::{MetricKind, OptimizerOptions, ScheduleKind};
use kiln_nn::Module;
use kiln_train::{
    Accuracy, Checkpoints, Clip, End, Goal, Monitor, NonFinite, Report, RunFolder, StopHandle, TrainError,
    TrainOptions, Trainer, Warning,
};
use serde_json::{Value, json};
use std::path::Path;

/// The training options: those of the command line, else those of the model's recipe.
struct Settings {
    epochs: u64,
    batch: usize,
    schedule: ScheduleKind,
    optimizer: OptimizerOptions,
    clip_norm: Option<f64>,
    workers: usize,
}

impl Settings {
    fn of(args: &TrainArgs) -> Result<Self> {
        let recipe = args.model.recipe();
        let options = recipe.optimizer.unless(args.optimizer);
        if args.momentum.is_some() && !options.kind.has_momentum() {
            return Err(Error::usage(format!("{} takes no --momentum", options.kind.name()))
                .help("leave it out, or choose --optimizer sgd or rmsprop"));
        }
        Ok(Settings {
            epochs: args.epochs.unwrap_or(recipe.epochs),
            batch: args.batch.unwrap_or(recipe.batch) as usize,
            schedule: args.schedule.unwrap_or(recipe.schedule),
            optimizer: OptimizerOptions {
                kind: options.kind,
                lr: args.lr.unwrap_or(options.lr),
                momentum: args.momentum.unwrap_or(options.momentum),
                weight_decay: args.weight_decay.or(options.weight_decay),
            },
            clip_norm: args.clip_norm.or(recipe.clip_norm),
            workers: usize::from(args.workers.unwrap_or(recipe.workers)),
        })
    }

    /// The contents of `config.json`: the settings of the run, enough to repeat it and to use its weights.
    fn config(&self, args: &TrainArgs, data: &Data, device: &str) -> Value {
        let mut config = json!({
            "kiln": env!("CARGO_PKG_VERSION"),
            "model": args.model.name(),
            "data": args.data.data.as_ref().map(|path| path.to_string_lossy()),
            "synthetic": args.data.synthetic,
            "skip_bad": args.data.skip_bad,
            "epochs": self.epochs,
            "batch": self.batch,
            "lr": self.optimizer.lr,
            "schedule": self.schedule.name(),
            "optimizer": self.optimizer.kind.name(),
            "momentum": self.optimizer.momentum,
            "weight_decay": self.optimizer.weight_decay,
            "clip_norm": self.clip_norm,
            "accumulate": args.accumulate,
            "patience": args.patience,
            "max_steps": args.max_steps,
            "skip_nan": args.skip_nan,
            "seed": args.seed,
            "device": device,
            "exact": args.device.exact,
        });
        if let Some(vocabulary) = &data.vocabulary {
            config[weights::VOCABULARY] = vocabulary.characters().iter().collect::<String>().into();
        }
        config
    }
}

/// The end of a run, which is reported after the device has been released.
struct Outcome {
    end: End,
    summary: Value,
    text: Vec<String>,
}

struct Train<'a> {
    args: &'a TrainArgs,
    settings: Settings,
    data: Data,
    stop: StopHandle,
    /// The reason for the choice of the device.
    chosen: Option<String>,
}

impl Task for Train<'_> {
    type Output = Outcome;

    fn chosen(&mut self, why: String) {
        self.chosen = Some(why);
    }

    fn run<B: Backend>(self, backend: &B) -> Result<Outcome> {
        let Train {
            args,
            settings,
            data,
            stop,
            chosen,
        } = self;
        let metric = args.model.recipe().metric;
        let mut model = args.model.build_for(backend, args.seed, data.classes(args.model))?;
        let mut optimizer = settings.optimizer.build();
        let parameters = model.num_parameters() as u64;

        let train = LoaderOptions {
            batch_size: settings.batch,
            shuffle: true,
            workers: settings.workers,
            seed: args.seed,
            ..Default::default()
        };
        let valid = LoaderOptions {
            batch_size: match metric {
                MetricKind::Accuracy => settings.batch.max(100),
                MetricKind::Perplexity => settings.batch,
            },
            workers: settings.workers,
            ..Default::default()
        };
        let train = Loader::new(data.train.clone(), train)?.with_transform(data::transform(args.model, true)?);
        let valid = Loader::new(data.test.clone(), valid)?.with_transform(data::transform(args.model, false)?);
        let options = TrainOptions {
            epochs: settings.epochs,
            accumulate: args.accumulate as usize,
            clip: settings.clip_norm.map(Clip::Norm),
            log_every: args.log_every as usize,
            non_finite: match args.skip_nan {
                Some(in_a_row) => NonFinite::Skip { in_a_row },
                None => NonFinite::Stop,
            },
            monitor: match metric {
                MetricKind::Accuracy => Monitor::new("accuracy", Goal::Max),
                MetricKind::Perplexity => Monitor::default(),
            },
            patience: args.patience,
            max_steps: args.max_steps,
            checkpoints: Some(Checkpoints::default()),
            capture: !args.no_capture,
        };
        // The folder is made last, so that a run that cannot start leaves none behind.
        let folder = create_folder(args)?;
        let path = folder.path().to_path_buf();
        folder.write_json(RunFolder::CONFIG, &settings.config(args, &data, &backend.name()))?;
        if !args.json {
            chosen.iter().for_each(|why| line(why));
        }
        announce(args, &settings, &data, &path, &backend.name(), parameters);
        let updates = (train.batches() as u64).div_ceil(args.accumulate.into());
        let updates = updates
            .saturating_mul(settings.epochs)
            .min(args.max_steps.unwrap_or(u64::MAX));
        let mut trainer = Trainer::new(backend, options)
            .callback(Progress::new(args.json, metric))
            .metadata(weights::metadata(args.model))
            .folder(folder)
            .stop_handle(stop);
        if metric == MetricKind::Accuracy {
            trainer = trainer.metric(Accuracy::new());
        }
        if let Some(schedule) = settings.schedule.build(settings.optimizer.lr, updates) {
            trainer = trainer.schedule(schedule);
        }
        let report = trainer
            .fit(&mut model, &mut *optimizer, objective, &train, Some(&valid))
            .map_err(|e| advised(e, &path))?;

        let best = report.best();
        let measured = |name| best.and_then(|b| b.valid.as_ref()?.get(name).copied());
        let (accuracy, loss): (Option<f64>, Option<f64>) = (measured("accuracy"), measured("loss"));
        let mut text = Vec::new();
        match (best, metric, accuracy, loss) {
            (Some(best), MetricKind::Accuracy, Some(accuracy), _) => text.push(format!(
                "best: epoch {}, validation accuracy {}",
                best.epoch,
                percent(accuracy)
            )),
            (Some(best), MetricKind::Perplexity, _, Some(loss)) => text.push(format!(
                "best: epoch {}, validation loss {loss:.4} nats/character, perplexity {:.3}",
                best.epoch,
                loss.exp()
            )),
            _ => {}
        }
        text.extend(executed(&report));
        text.push(saved(&report, &path));
        let mut summary = json!({
            "event": "end",
            "reason": match report.end {
                End::Finished => "finished",
                End::EarlyStopped => "early_stopped",
                End::Stopped => "stopped",
            },
            "steps": report.steps,
            "execution": report.execution,
            "not_captured": report.not_captured,
            "epochs": report.history.epochs().len(),
            "best_epoch": best.map(|b| b.epoch),
            "warnings": report.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "folder": path.display().to_string(),
        });
        match metric {
            MetricKind::Accuracy => summary["best_accuracy"] = accuracy.into(),
            MetricKind::Perplexity => {
                summary["best_loss"] = loss.into();
                summary["best_perplexity"] = loss.map(f64::exp).into();
            }
        }
        Ok(Outcome {
            end: report.end,
            summary,
            text,
        })
    }
}

/// A line on recorded and replayed steps, or on the reason why a backend could not record them; `None` without recording.
fn executed(report: &Report) -> Option<String> {
    let done = &report.execution;
    if let Some(obstacle) = &report.not_captured {
        return Some(format!("steps ran op by op: {obstacle}"));
    }
    (done.replayed > 0).then(|| {
        format!(
            "steps: {} replayed with {} each and {}, {} recorded, {} op by op",
            thousands(done.replayed),
            counted(done.launches, "kernel"),
            counted(done.allocations, "allocation"),
            thousands(done.recorded),
            thousands(done.eager),
        )
    })
}

/// A line that names the weight files that a run has saved.
fn saved(report: &Report, folder: &Path) -> String {
    let lost = |name: &str| {
        let path = folder.join(name);
        report.warnings.contains(&Warning::Lost { path })
    };
    let best = report.best().is_some() && !lost(RunFolder::BEST);
    let files = match best {
        true => format!("{} and {}", RunFolder::BEST, RunFolder::LAST),
        false => RunFolder::LAST.to_string(),
    };
    let from = folder.to_path_buf();
    match report.warnings.contains(&Warning::Moved { from }) {
        true => format!("saved: {files} in the folder that was {}", shown_path(folder)),
        false => format!("saved: {files} in {}", shown_path(folder)),
    }
}

/// Makes the folder that the run writes into.
fn create_folder(args: &TrainArgs) -> Result<RunFolder> {
    let folder = match &args.out {
        Some(path) => RunFolder::create(path),
        None => RunFolder::numbered("runs", &format!("{}-{}", args.model, args.seed)),
    };
    folder.map_err(|e| {
        let help = match &e {
            TrainError::Occupied { .. } | TrainError::Busy { .. } => {
                "name another folder with --out, or leave --out out for a numbered one"
            }
            _ => "name a folder that can be written with --out",
        };
        Error::from(e).help(help)
    })
}

/// Prints model, data, settings and device before the run.
fn announce(args: &TrainArgs, settings: &Settings, data: &Data, folder: &Path, device: &str, parameters: u64) {
    if args.json {
        let start = json!({
            "event": "start",
            "parameters": parameters,
            "train_samples": data.train.len(),
            "valid_samples": data.test.len(),
            "skipped_records": data.skipped(),
            "folder": folder.display().to_string(),
            "config": settings.config(args, data, device),
        });
        return output::json(&start);
    }
    let threads = match device {
        "cpu" => format!(" with {}", counted(rayon::current_num_threads() as u64, "thread")),
        _ => String::new(),
    };
    line(&format!(
        "{}: {} parameters, {} {}, batch {}, {}, seed {}, {device}{threads}",
        args.model,
        thousands(parameters),
        settings.optimizer.kind.name(),
        number(settings.optimizer.lr),
        settings.batch,
        counted(settings.epochs, "epoch"),
        args.seed,
    ));
    line(&data.description);
    if data.skipped() > 0 {
        line(&format!("{} left out", counted(data.skipped(), "bad record")));
    }
    line(&format!("run folder: {}", shown_path(folder)));
}

/// The error with advice for the user of this command.
fn advised(error: TrainError, folder: &Path) -> Error {
    let saved = folder.join(RunFolder::LAST);
    let kept = match saved.exists() {
        true => format!("; the weights of the last whole epoch are in {}", shown_path(&saved)),
        false => String::new(),
    };
    let help = match &error {
        TrainError::NonFiniteLoss { .. } | TrainError::NonFiniteWeights { .. } => {
            format!("lower --lr, add --clip-norm 1, or let such steps pass with --skip-nan{kept}")
        }
        TrainError::TooManySkipped { .. } => format!("lower --lr or add --clip-norm 1{kept}"),
        _ => return error.into(),
    };
    Error::from(error).help(help)
}

pub(crate) fn run(args: TrainArgs) -> Result<u8> {
    let settings = Settings::of(&args)?;
    let data = data::load(args.model, &args.data, args.seed)?;
    let signals = Signals::install()?;
    let task = Train {
        args: &args,
        settings,
        data,
        stop: signals.stop_handle(),
        chosen: None,
    };
    let outcome = with_device(&args.device.options(), task)?;
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
