//! `kiln find-lr`: the loss over a learning rate that grows, and a suggestion.

use super::train::training;
use crate::args::FindLrArgs;
use crate::config::{self, Settings};
use crate::data::{self, Data};
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::output::{self, counted, line};
use crate::plot::Plot;
use crate::weights;
use kiln_core::{Backend, DType};
use kiln_files::{shown_path, write_atomic};
use kiln_nn::autocast;
use kiln_profile::Profiled;
use kiln_train::{LrCurve, LrRange};
use serde_json::json;

struct FindLr {
    settings: Settings,
    data: Data,
    range: LrRange,
    /// The phase whose rate is searched for.
    phase: usize,
}

impl Task for FindLr {
    type Output = LrCurve;

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<LrCurve> {
        let FindLr {
            settings,
            data,
            range,
            phase,
        } = self;
        let mut net = weights::begin(&settings, data.sizes(), true, backend)?;
        let train = training(&settings, &data)?;
        let mut updates = settings.updates(0);
        let search = || net.find_lr(backend, &mut updates, phase, train, range);
        Ok(match settings.precision.autocast() {
            Some(dtype) => autocast(dtype, || Ok(search()))??,
            None => search()?,
        })
    }
}

pub(crate) fn run(args: FindLrArgs) -> Result<u8> {
    let settings = Settings::of(config::combined(&args.config)?)?;
    let mut data = data::load_again(&settings, None)?;
    if let Some(batches) = settings.overfit_batches {
        data = data.overfitted(batches.saturating_mul(settings.batch))?;
    }
    let range = LrRange {
        min: args.min.get(),
        max: args.max.get(),
        steps: args.steps.get(),
        scale_loss: settings.precision.autocast() == Some(DType::F16),
        ..Default::default()
    };
    let phase = match &args.phase {
        None => 0,
        Some(name) => settings.phase(name)?,
    };
    let (model, batch) = (settings.model, settings.batch);
    let searched = settings.phases[phase];
    let optimizer = match searched.name {
        "" => searched.optimizer.kind.to_string(),
        name => format!("{name}: {}", searched.optimizer.kind),
    };
    let device = settings.device_options();
    let description = data.description.clone();
    let curve = with_device(
        &device,
        FindLr {
            settings,
            data,
            range,
            phase,
        },
    )?;
    let suggestion = curve.suggestion();
    if curve.points.is_empty() {
        return Err(Error::failure("the first loss is not finite").help("look at the data, or name a smaller --min"));
    }
    let plot = Plot {
        title: &format!("{model}, {optimizer}, batch {batch}"),
        x: "learning rate",
        y: "smoothed loss",
        points: curve.points.iter().map(|p| (p.lr, p.smoothed)).collect(),
        marked: suggestion,
    };
    if let Some(path) = &args.plot {
        write_atomic(path, plot.svg().as_bytes())?;
    }
    if args.json {
        output::json(&json!({ "suggestion": suggestion, "diverged": curve.diverged, "points": curve.points }));
        return Ok(0);
    }
    line(&description);
    line(&plot.text(70, 16));
    line("");
    let steps = counted(curve.points.len() as u64, "step");
    if curve.diverged {
        line(&format!("ended after {steps}: the loss grew too large"));
    }
    line(&match suggestion {
        Some(lr) => {
            let setting = match searched.name {
                "" => "--lr ".to_string(),
                name => format!("--set phases.{name}.optimizer.lr="),
            };
            format!("suggested: {setting}{lr:.1e}, where the loss falls most steeply in {steps}")
        }
        None => format!("no suggestion: the loss fell nowhere in {steps}"),
    });
    if let Some(path) = &args.plot {
        line(&format!("saved: {}", shown_path(path)));
    }
    Ok(0)
}
