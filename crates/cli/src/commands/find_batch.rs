//! `kiln find-batch`: the largest batch that fits the memory, and the throughput of each size.

use super::train::options;
use crate::args::FindBatchArgs;
use crate::config::{self, Settings};
use crate::data::{self, Data};
use crate::device::{Task, with_device};
use crate::error::{Error, Result, code};
use crate::memory;
use crate::output::{self, bytes, line, rate};
use crate::signals::Signals;
use crate::weights;
use kiln_core::Backend;
use kiln_data::{Dataset, LoaderOptions};
use kiln_models::{Batches, Net};
use kiln_profile::Profiled;
use kiln_train::{BatchCurve, BatchLimit, BatchPoint, BatchRange, Flow, Trainer, check_by_name, find_batch};
use serde_json::json;

struct FindBatch {
    settings: Settings,
    data: Data,
    range: BatchRange,
    json: bool,
    chosen: Option<String>,
}

impl Task for FindBatch {
    type Output = BatchCurve;

    fn chosen(&mut self, why: String) {
        self.chosen = Some(why);
    }

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<BatchCurve> {
        let FindBatch {
            settings,
            data,
            range,
            json,
            chosen,
        } = self;
        let model = settings.model;
        let mut net = weights::begin(&settings, data.sizes(), true, backend)?;
        for rules in &settings.rules {
            check_by_name(&net, &rules.by_name())?;
        }
        range.options.check_names(&net)?;
        if !json {
            chosen.iter().for_each(|why| line(why));
            line(&data.description);
        }
        let augment = settings.overfit_batches.is_none();
        let train = |trainer: &mut Trainer<Profiled<B>>, net: &mut Net<Profiled<B>>, batch: usize| {
            let batches = Batches {
                dataset: data.train.clone(),
                options: LoaderOptions {
                    batch_size: batch,
                    shuffle: true,
                    drop_last: true,
                    workers: settings.workers,
                    seed: settings.seed,
                    ..Default::default()
                },
                transform: model.transform(augment.then_some(&data.train))?,
            };
            let mut updates = settings.updates(0);
            for update in &mut updates {
                // The weights stay, so that no step diverges.
                update.optimizer.set_lr(0.0);
                update.schedule = None;
            }
            net.fit(trainer, &mut updates, batches, None)
        };
        let tell = |point: &BatchPoint| {
            if !json {
                line(&tried(point));
            }
            Ok(Flow::Continue)
        };
        Ok(find_batch(backend, &mut net, data.train.len(), train, &range, tell)?)
    }
}

/// A size that was tried, in one line.
fn tried(point: &BatchPoint) -> String {
    let batch = point.batch;
    match (point.refused, point.seconds, point.samples_per_second) {
        (Some((requested, free)), ..) => {
            let free = free.map_or(String::new(), |free| format!(", {} are free", bytes(free)));
            format!(
                "batch {batch:>6}  does not fit: {} more are needed{free}",
                bytes(requested)
            )
        }
        (None, Some(seconds), Some(per_second)) => {
            let peak = point
                .peak
                .map_or(String::new(), |peak| format!("  {}", bytes(peak as u64)));
            let step = 1e3 * seconds;
            format!(
                "batch {batch:>6}  {step:.1} ms/update  {} samples/s{peak}",
                rate(per_second)
            )
        }
        _ => format!("batch {batch:>6}  fits"),
    }
}

pub(crate) fn run(args: FindBatchArgs) -> Result<u8> {
    let settings = Settings::of(config::combined(&args.config)?)?;
    if args.min.get() > args.max.get() {
        return Err(Error::usage("--min is above --max"));
    }
    let mut data = data::load_again(&settings, None)?;
    if let Some(batches) = settings.overfit_batches {
        data = data.overfitted(batches.saturating_mul(settings.batch))?;
    }
    let signals = Signals::install()?;
    let range = BatchRange {
        options: options(&settings, 1),
        min: args.min.get() as usize,
        max: args.max.get() as usize,
        steps: args.steps.get(),
        stop: signals.stop_handle(),
    };
    let mut device = settings.device_options();
    let asked = device.memory.is_some();
    if !asked {
        device.memory = memory::available().map(|bytes| usize::try_from(bytes / 10 * 9).unwrap_or(usize::MAX));
        device.memory_is_default = true;
    }
    let limit = device.memory;
    let task = FindBatch {
        settings,
        data,
        range,
        json: args.json,
        chosen: None,
    };
    let curve = with_device(&device, task)?;
    let (largest, fastest) = (curve.largest(), curve.fastest());
    if args.json {
        output::json(&json!({
            "largest": largest,
            "fastest": fastest,
            "limit": curve.limit,
            "memory": limit,
            "points": curve.points,
        }));
    } else {
        if let Some(largest) = largest {
            let why = match curve.limit {
                BatchLimit::Memory => "more does not fit the memory",
                BatchLimit::Samples => "there are no more training samples",
                BatchLimit::Range => "more was not tried; see --max",
                BatchLimit::Stopped => "the search was interrupted",
            };
            line(&format!("largest: --batch {largest}, {why}"));
        }
        if let Some(fastest) = fastest {
            line(&format!("fastest: --batch {fastest}, or less than 3 % from it"));
        }
    }
    if curve.limit == BatchLimit::Stopped {
        return Ok(signals.exit_code().unwrap_or(code::INTERRUPTED));
    }
    match largest {
        Some(_) => Ok(0),
        None => Err(Error::failure("not even a batch of one sample fits the memory")
            .help("give it more with --memory, choose a smaller model, or compute layers again with --recompute")),
    }
}
