//! What `kiln train` tells before and after a run.

use super::folder::Opened;
use crate::config::{Settings, record};
use crate::data::Data;
use crate::error::Error;
use crate::live::About;
use crate::machine::is_gpu;
use crate::output::{self, counted, line, number, thousands};
use crate::shown::{self, is_loss, samples};
use crate::weights::{FACTS, TOKENIZER};
use kiln_cpu::Cpu;
use kiln_data::{Dataset, TokenizerChoice, Tokens};
use kiln_files::shown_path;
use kiln_models::{Card, PhaseOptions};
use kiln_monitor::{Facts, Watch, of_run, verdict};
use kiln_tensorboard::TensorBoard;
use kiln_train::{Checkpoint, End, Report, RunFolder, TrainError, Warning};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The contents of `config.json`: the settings of the run, enough to repeat it, to resume it and to use its weights.
pub(super) fn config(settings: &Settings, data: &Data, device: &str) -> Value {
    let mut config = Map::from_iter([("kiln".to_string(), env!("CARGO_PKG_VERSION").into())]);
    let mut settings = settings.config(device);
    settings.data.format = data.kind;
    config.extend(record(&settings));
    if !data.facts.is_empty() {
        // Names, texts and finite numbers are values of JSON.
        config.insert(FACTS.to_string(), serde_json::to_value(&data.facts).unwrap_or_default());
    }
    Value::Object(config)
}

/// The folder of the event files in that of the run.
const BOARD: &str = "tensorboard";

/// The callback that writes event files for TensorBoard into the run's folder, with the contents of its `config.json`.
pub(super) fn board(folder: &RunFolder, config: &Value) -> TensorBoard {
    // Markdown shows indented text as it is.
    let text: String = format!("{config:#}")
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    TensorBoard::new(folder.file(BOARD))
        .text("config", &text)
        .weights_in(folder, RunFolder::LAST, &Cpu::new())
}

/// Facts about the run that the live view shows beside the progress.
pub(super) fn about(settings: &Settings, card: &'static Card, device: &str, watch: Option<&Watch>) -> About {
    let updates = settings.max_steps.unwrap_or(u64::MAX);
    About {
        title: format!(
            "{}   {}   batch {}   seed {}   {device}{}",
            settings.model,
            settings.phases.iter().map(phase).collect::<Vec<_>>().join(", "),
            settings.batch,
            settings.seed,
            settings.precision.described(),
        ),
        metric: card.values.iter().find(|shown| !is_loss(shown.name)),
        samples: samples(card),
        limit: Some(updates.saturating_mul(settings.accumulate as u64)),
        on_gpu: is_gpu(device),
        gpu: watch.and_then(|watch| watch.gpu().map(str::to_string)),
    }
}

/// Prints model, data, settings and device before the run.
pub(super) fn announce(
    settings: &Settings,
    data: &Data,
    opened: &Opened,
    (device, on_device): (&str, Option<u64>),
    parameters: u64,
    json: bool,
) {
    let folder = opened.folder.path();
    let at = opened.checkpoint.as_ref().map(|c| c.manifest());
    if json {
        let start = json!({
            "event": "start",
            "parameters": parameters,
            "train_samples": data.train.len(),
            "valid_samples": data.test.len(),
            "skipped_records": data.skipped(),
            "bytes_on_device": on_device,
            "folder": folder.display().to_string(),
            "resumed": at.map(|at| json!({ "epoch": at.epoch(), "batch": at.batch(), "step": at.step() })),
            "config": config(settings, data, device),
        });
        return output::json(&start);
    }
    let threads = match device {
        "cpu" => format!(" with {}", counted(rayon::current_num_threads() as u64, "thread")),
        _ => String::new(),
    };
    line(&format!(
        "{}: {} parameters, {}, batch {}, {}, seed {}, {device}{threads}{}",
        settings.model,
        thousands(parameters),
        settings.phases.iter().map(phase).collect::<Vec<_>>().join(", "),
        settings.batch,
        counted(settings.epochs, "epoch"),
        settings.seed,
        settings.precision.described(),
    ));
    line(&match on_device {
        Some(bytes) => format!("{}; {} of pixels on {device}", data.description, output::bytes(bytes)),
        None => data.description.clone(),
    });
    if data.skipped() > 0 {
        line(&format!("{} left out", counted(data.skipped(), "bad record")));
    }
    if let Some(of) = data.tokens().and_then(Tokens::tokenizer) {
        let characters = data.train.characters_per_token().unwrap_or_default();
        line(&format!(
            "tokenizer: {}, {characters:.2} characters a token, kept as {TOKENIZER}",
            match &settings.data.tokenizer {
                Some(TokenizerChoice::File(path)) => shown_path(path).to_string(),
                _ => format!(
                    "{} learned from what is trained on",
                    counted(of.tokenizer().vocabulary() as u64, "token")
                ),
            },
        ));
    }
    line(&format!("run folder: {}", shown_path(folder)));
    if let Some(at) = at {
        let (step, epoch, batch) = (thousands(at.step()), at.epoch(), at.batch());
        line(&format!("resumed after step {step}: epoch {epoch}, batch {batch}"));
    }
}

/// The optimizer of an update in words: `adam 0.001`, `generator: adam 0.0001 every 5 steps`.
fn phase(phase: &PhaseOptions) -> String {
    let mut text = match phase.shares {
        Some(owner) => format!("by the optimizer of {owner}"),
        None => format!("{} {}", phase.optimizer.kind.name(), number(phase.optimizer.lr)),
    };
    if !phase.name.is_empty() {
        text = format!("{}: {text}", phase.name);
    }
    if phase.every > 1 {
        text.push_str(&format!(" every {} steps", phase.every));
    }
    text
}

/// The JSON object that ends the output of a run.
pub(super) fn summary(report: &Report, card: &Card, folder: &Path, device: &str) -> Value {
    let best = report.best();
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
        "twin": report.twin.map(|twin| json!({ "steps": twin.steps, "ops": twin.ops, "outside": twin.outside })),
        "epochs": report.history.epochs().len(),
        "best_epoch": best.map(|b| b.epoch),
        "warnings": report.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "folder": folder.display().to_string(),
    });
    let epochs = report.history.epochs();
    let facts = Facts::of_run(epochs, is_gpu(device));
    summary["waiting_share"] = facts.waiting.into();
    summary["machine"] = json!(of_run(epochs));
    summary["verdict"] = verdict(&facts).to_string().into();
    for shown in card.monitored() {
        let value = best.and_then(|b| shown.of(b.valid.as_ref()?));
        summary[format!("best_{}", shown.name)] = value.into();
    }
    summary
}

/// The lines that end the output of a run.
pub(super) fn text(report: &Report, card: &Card, folder: &Path) -> Vec<String> {
    let mut text = Vec::new();
    if let Some(best) = report.best() {
        let values = best.valid.as_ref().unwrap_or(&best.train);
        let each = card
            .monitored()
            .filter_map(|s| Some(format!("{} {}", s.label, shown::text(s, s.of(values)?))));
        let each: Vec<String> = each.collect();
        if !each.is_empty() {
            text.push(format!("best: epoch {}, validation {}", best.epoch, each.join(", ")));
        }
    }
    text.extend(executed(report));
    text.extend(report.twin.map(|twin| {
        let (steps, ops) = (counted(twin.steps, "step"), counted(twin.ops, "op"));
        match twin.outside {
            0 => format!("twin: {steps} compared with the CPU, {ops} within their bounds"),
            outside => format!(
                "twin: {steps} compared with the CPU, {ops}; {} with ops outside of their bounds",
                counted(outside, "step")
            ),
        }
    }));
    text.push(saved(report, folder));
    if report.end == End::Stopped && !report.warnings.iter().any(|w| matches!(w, Warning::Moved { .. })) {
        text.push(format!("go on with: kiln train --resume {}", shown_path(folder)));
    }
    text
}

/// The start of the line that says why no step of a run was recorded.
pub(crate) const OP_BY_OP: &str = "steps ran op by op: ";

/// A line on recorded and replayed steps, or on the reason why a backend could not record them; `None` without recording.
fn executed(report: &Report) -> Option<String> {
    let done = &report.execution;
    if let Some(obstacle) = &report.not_captured {
        return Some(format!("{OP_BY_OP}{obstacle}"));
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

/// The error with advice for the user of this command.
pub(super) fn advised(error: TrainError, folder: &Path) -> Error {
    let saved = folder.join(RunFolder::LAST);
    let kept = match saved.exists() {
        true => format!("; the weights of the last whole epoch are in {}", shown_path(&saved)),
        false => String::new(),
    };
    let help = match &error {
        TrainError::NonFiniteLoss { .. } | TrainError::NonFiniteWeights { .. } => {
            let resumable = Checkpoint::steps(folder).is_ok_and(|steps| !steps.is_empty());
            let again = match resumable {
                true => format!(
                    "; to go on from the last checkpoint: kiln train --resume {} --nan rollback",
                    shown_path(folder)
                ),
                false => String::new(),
            };
            format!("lower --lr, add --clip-norm 1, or leave such steps out with --nan rollback{again}{kept}")
        }
        TrainError::Twin { .. } => {
            "compare again with `kiln replay` and on another device; --twin every=N,warn goes on after a difference".to_string()
        }
        TrainError::TooManySkipped { .. } => format!("lower --lr or add --clip-norm 1{kept}"),
        TrainError::Validation { .. } if error.is_out_of_memory() => {
            let again = match Checkpoint::steps(folder).is_ok_and(|steps| !steps.is_empty()) {
                true => format!(
                    "go on with kiln train --resume {} and a smaller --valid-batch, or where there is more memory",
                    shown_path(folder)
                ),
                false => "name a smaller --valid-batch".to_string(),
            };
            format!("the steps fit, the batches of the validation do not: {again}")
        }
        _ if error.is_out_of_memory() => {
            "name a smaller --batch (with --accumulate for the same updates), --recompute layers, or --precision bf16; see `kiln \
             find-batch`. A run whose checkpoints are there goes on with --resume where there is more memory"
                .to_string()
        }
        _ => return error.into(),
    };
    Error::from(error).help(help)
}
