//! `kiln train`: trains a model and writes the files of the run, or resumes it.

mod folder;
mod placement;
mod report;
mod summary;
mod views;

use crate::args::TrainArgs;
use crate::config::{self, Precision, Settings};
use crate::data::{self, Data};
use crate::device::{Task, with_device};
use crate::error::{Error, Result, code};
use crate::live::{self, Hands};
use crate::machine;
use crate::output::{self, line, thousands};
use crate::progress::{Progress, Show};
use crate::signals::Signals;
use crate::weights;
use folder::Opened;
use kiln_core::{Backend, Runtime};
use kiln_cpu::Cpu;
use kiln_data::{LoaderOptions, Sizes, Tokens};
use kiln_files::shown_path;
use kiln_models::{Batches, Model, OutputKind};
use kiln_nn::Module;
use kiln_profile::Profiled;
use kiln_train::{
    Average, Clip, Control, End, Goal, GradNorm, Monitor, RunFolder, TrainOptions, Trainer, Twin, check_by_name,
};
pub(crate) use report::OP_BY_OP;
use serde_json::Value;
use views::Views;

/// The end of a run, which is reported after the device has been released.
struct Outcome {
    end: End,
    folder: RunFolder,
    device: String,
    summary: Value,
    text: Vec<String>,
}

struct Train {
    settings: Settings,
    data: Data,
    /// The run that is resumed.
    resumed: Option<Opened>,
    json: bool,
    /// True for a live view.
    live: bool,
    signals: Signals,
    /// The reason for the choice of the device.
    chosen: Option<String>,
}

impl Task for Train {
    type Output = Outcome;

    fn chosen(&mut self, why: String) {
        self.chosen = Some(why);
    }

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<Outcome> {
        let Train {
            settings,
            data,
            resumed,
            json,
            live,
            signals,
            chosen,
        } = self;
        let (model, card) = (settings.model, settings.model.card_for(&data.facts));
        // A checkpoint has all of a net without additions.
        let begins = resumed.is_none() || settings.lora.is_some();
        let mut net = weights::begin(&settings, data.sizes(), begins, backend)?;
        for rules in &settings.rules {
            check_by_name(&net, &rules.by_name())?;
        }
        let parameters = net.num_parameters() as u64;
        let metrics = net.metrics(&*data.test)?;
        let updates_of_epoch = net.batches(training(&settings, &data)?)?.div_ceil(settings.accumulate) as u64;
        let options = options(&settings, updates_of_epoch);
        options.check_names(&net)?;
        let on_device = placement::decide(&settings, &data, &backend.name())?;
        // The folder is made last, so that a run that cannot start leaves none behind.
        let opened = match resumed {
            Some(opened) => opened,
            None => Opened {
                folder: folder::create(&settings)?,
                checkpoint: None,
            },
        };
        let path = opened.folder.path().to_path_buf();
        let config = report::config(&settings, &data, &backend.name());
        let folder = opened.folder.clone();
        folder.write_json(RunFolder::CONFIG, &config)?;
        if let Some(of) = data.tokens().and_then(Tokens::tokenizer) {
            folder.write(weights::TOKENIZER, of.json().as_bytes())?;
        }
        summary::begin(&folder)?;
        if !json {
            chosen.iter().for_each(|why| line(why));
            if let Some(path) = settings.init_from.as_ref().filter(|_| begins) {
                let trained = thousands(net.num_trainable() as u64);
                line(&format!("starts from {}, {trained} parameters train", shown_path(path)));
            }
        }
        report::announce(
            &settings,
            &data,
            &opened,
            (&backend.name(), on_device),
            parameters,
            json,
        );
        let views = match settings.tensorboard || card.output == OutputKind::Images {
            true => Some(Views::new(backend, &settings, &data, &path).map_err(|e| summary::fail(&folder, e))?),
            false => None,
        };
        let data = match on_device {
            Some(_) => {
                placement::place(backend, data, &signals.stop_handle()).map_err(|e| summary::fail(&folder, e))?
            }
            None => data,
        };
        let (train, valid) = (training(&settings, &data)?, validation(&settings, &data)?);
        let steps = updates_of_epoch
            .saturating_mul(settings.epochs)
            .min(settings.max_steps.unwrap_or(u64::MAX));
        let watch = machine::watch(&backend.name());
        let control = Control::with_stop(signals.stop_handle());
        let show = match (json, live) {
            (true, _) => Show::Json,
            (false, false) => Show::Lines,
            (false, true) => Show::Live(Box::new((
                report::about(&settings, card, &backend.name(), watch.as_ref()),
                Hands {
                    control: control.clone(),
                    signals,
                    watch: watch.clone(),
                },
            ))),
        };
        let mut trainer = Trainer::new(backend, options)
            .callback(Progress::new(show, card, backend.name(), watch.clone()))
            .metadata(weights::metadata(model))
            .folder(opened.folder)
            .control(control);
        if let Some(watch) = watch {
            trainer = trainer.callback(watch);
        }
        for metric in metrics {
            trainer = trainer.metric(metric);
        }
        trainer = match (views, settings.tensorboard) {
            (Some(mut views), true) => {
                let board = report::board(&folder, &config);
                trainer.callback(board.views(move |epoch| Ok(views.make(epoch.epoch))))
            }
            (Some(views), false) => trainer.callback(views),
            (None, _) => trainer,
        };
        if let Some(every) = settings.twin {
            let twin = twin(model, settings.seed, data.sizes(), settings.precision)?.every(every.steps());
            trainer = trainer.twin(if every.warns() { twin.warn() } else { twin });
        }
        if let Some(checkpoint) = opened.checkpoint {
            trainer = trainer.resume(checkpoint);
        }
        let report = net
            .fit(&mut trainer, &mut settings.updates(steps), train, Some(valid))
            .map_err(|e| summary::fail(&folder, report::advised(e, &path)))?;
        Ok(Outcome {
            end: report.end,
            folder,
            device: backend.name(),
            summary: report::summary(&report, card, &path, &backend.name()),
            text: report::text(&report, card, &path),
        })
    }
}

/// The model on the CPU, for comparison with a device that computes in this precision.
pub(super) fn twin(model: Model, seed: u64, sizes: Sizes, precision: Precision) -> Result<Twin> {
    let cpu = Profiled::new(&Cpu::builder().exact_convolutions(true).build());
    let twin = model.twin(&cpu, seed, sizes)?;
    Ok(match precision {
        // Operands of products have 10 bits of mantissa.
        Precision::Tf32 => twin.unit_roundoff(f64::powi(2.0, -11)),
        _ => twin,
    })
}

/// The samples to train on.
pub(super) fn training(settings: &Settings, data: &Data) -> Result<Batches> {
    Ok(Batches {
        dataset: data.train.clone(),
        options: LoaderOptions {
            batch_size: settings.batch,
            shuffle: true,
            workers: settings.workers,
            seed: settings.seed,
            ..Default::default()
        },
        transform: settings
            .model
            .transform(settings.overfit_batches.is_none().then_some(&data.train))?,
    })
}

/// The samples that are held back.
fn validation(settings: &Settings, data: &Data) -> Result<Batches> {
    data::in_order(
        settings.model,
        data.test.clone(),
        settings.valid_batch,
        settings.workers,
    )
}

pub(super) fn options(settings: &Settings, updates_of_epoch: u64) -> TrainOptions {
    TrainOptions {
        epochs: settings.epochs,
        accumulate: settings.accumulate,
        clip: settings.clip_norm.map(Clip::Norm),
        log_every: settings.log_every,
        non_finite: config::OnNan::policy(settings.nan, settings.skip_nan, settings.nan_lr),
        find_non_finite: true,
        monitor: match settings.model.card().monitor {
            (name, true) => Monitor::new(name, Goal::Max),
            (name, false) => Monitor::new(name, Goal::Min),
        },
        patience: settings.patience,
        max_steps: settings.max_steps,
        average: match (settings.ema, settings.swa) {
            (Some(decay), _) => Some(Average::Ema { decay }),
            (None, Some(epoch)) => Some(Average::Swa {
                from: epoch.saturating_mul(updates_of_epoch) - 1,
                every: updates_of_epoch,
            }),
            (None, None) => None,
        },
        update_bn: settings.update_bn,
        autocast: settings.precision.autocast(),
        freeze: settings.freeze.iter().map(|names| names.pattern()).collect(),
        recompute: settings.recompute.iter().map(|names| names.pattern()).collect(),
        recompute_activations: settings.recompute_activations,
        grad_norm: settings.log_grad_norm.map_or(GradNorm::Off, Into::into),
        checkpoints: Some(settings.checkpoints),
        capture: !settings.no_capture,
    }
}

pub(crate) fn run(args: TrainArgs) -> Result<u8> {
    let (mut settings, resumed) = match &args.resume {
        Some(path) => {
            let (settings, opened) = folder::reopen(path, &args)?;
            (settings, Some(opened))
        }
        None => (Settings::of(config::combined(&args.config)?)?, None),
    };
    let tokenizer = resumed.as_ref().map(|opened| opened.folder.file(weights::TOKENIZER));
    let kept = tokenizer.filter(|file| file.symlink_metadata().is_ok());
    let mut data = data::load_again(&settings, kept)?;
    if let Some(batches) = settings.overfit_batches {
        data = data.overfitted(batches.saturating_mul(settings.batch))?;
    }
    // Dropped at the end, and the folder with it.
    let mut passing = None;
    if args.fast_dev_run {
        let folder = tempfile::tempdir().map_err(|e| Error::failure(format!("no folder for the run: {e}")))?;
        let out = passing.insert(folder).path().join(settings.model.name());
        data = data.first(settings.batch * settings.accumulate, settings.batch)?;
        settings = Settings {
            epochs: 1,
            max_steps: Some(1),
            out: Some(out),
            ..settings
        };
    }
    if let Some(opened) = &resumed {
        folder::check_facts(&opened.folder, &data)?;
    }
    let live = !args.json && !args.plain && !args.fast_dev_run && live::is_possible();
    let signals = match live {
        true => Signals::install_for_view()?,
        false => Signals::install()?,
    };
    let (device, reports) = (settings.device_options(), settings.report);
    let task = Train {
        settings,
        data,
        resumed,
        json: args.json,
        live,
        signals: signals.clone(),
        chosen: None,
    };
    let mut outcome = with_device(&device, task)?;
    summary::end(&outcome.folder, &outcome.summary, &outcome.device)?;
    // Somebody who stops a run does not want to wait.
    if reports && outcome.end != End::Stopped {
        let path = outcome.folder.path();
        let file = path.join(super::report::FILE);
        super::report::create(path, &file, Some(&device)).map_err(|e| e.context("the run has ended, its report"))?;
        outcome.text.push(format!("report: {}", shown_path(&file)));
        outcome.summary["report"] = file.display().to_string().into();
    }
    if args.json {
        output::json(&outcome.summary);
    } else {
        outcome.text.iter().for_each(|t| line(t));
    }
    if passing.is_some() && !args.json {
        line("one step and one batch of validation work; nothing was kept");
    }
    Ok(match outcome.end {
        End::Stopped => signals.exit_code().unwrap_or(code::INTERRUPTED),
        End::Finished | End::EarlyStopped => 0,
    })
}
