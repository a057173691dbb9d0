//! The progress of a training run: a bar on a terminal, plain lines elsewhere, JSON with `--json`.

use crate::output::{counted, line, rate, warn};
use crate::shown;
use indicatif::{ProgressBar, ProgressStyle};
use kiln_models::Card;
use kiln_train::{Callback, EpochRecord, Flow, Plan, Result, StepInfo, Warning};
use std::io::IsTerminal;

/// The form of progress output.
enum Show {
    /// A bar on standard error, finished epochs as lines on standard output.
    Bar(ProgressBar),
    /// Lines on standard output.
    Lines,
    /// One JSON object per epoch on standard output.
    Json,
}

/// The callback that shows the progress of a run.
pub(crate) struct Progress {
    show: Show,
    card: &'static Card,
    plan: Option<Plan>,
    /// The losses as last read, in words.
    losses: Option<String>,
}

impl Progress {
    pub(crate) fn new(json: bool, card: &'static Card) -> Self {
        let terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        let show = match (json, terminal) {
            (true, _) => Show::Json,
            (false, true) => Show::Bar(ProgressBar::hidden()),
            (false, false) => Show::Lines,
        };
        Progress {
            show,
            card,
            plan: None,
            losses: None,
        }
    }

    /// The word for samples.
    fn samples(&self) -> String {
        format!("{}s", self.card.input.noun())
    }

    fn epochs(&self) -> u64 {
        self.plan.map_or(0, |p| p.epochs)
    }
}

impl Callback for Progress {
    fn on_start(&mut self, plan: &Plan) -> Result<()> {
        self.plan = Some(*plan);
        if let Show::Bar(bar) = &mut self.show {
            // The template is a valid constant; if it were not, the default bar would do.
            let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            *bar = ProgressBar::new(plan.batches).with_style(style.progress_chars("=> "));
        }
        Ok(())
    }

    fn on_step(&mut self, info: &StepInfo) -> Result<Flow> {
        let losses = losses(info);
        self.losses = losses.clone().or(self.losses.take());
        let epochs = self.epochs();
        let rate = format!("{} {}/s", rate(info.samples as f64 / info.seconds), self.samples());
        match &self.show {
            Show::Bar(bar) => {
                bar.set_prefix(format!("epoch {}/{epochs}", info.epoch));
                bar.set_position(info.batch);
                let losses = self.losses.as_deref().unwrap_or("loss …");
                bar.set_message(format!("{losses}  {rate}"));
            }
            Show::Lines => {
                let batches = self.plan.map_or(0, |p| p.batches);
                if let Some(losses) = losses.filter(|_| info.batch < batches) {
                    let (epoch, batch) = (info.epoch, info.batch);
                    line(&format!(
                        "epoch {epoch}/{epochs}  batch {batch}/{batches}  {losses}  {rate}"
                    ));
                }
            }
            Show::Json => {}
        }
        Ok(Flow::Continue)
    }

    fn on_epoch_end(&mut self, record: &EpochRecord) -> Result<Flow> {
        let text = match &self.show {
            Show::Json => {
                let mut event = serde_json::json!({
                    "event": "epoch",
                    "epoch": record.epoch,
                    "step": record.step,
                    "lr": record.lr,
                    "train": shown::with_computed(self.card, &record.train),
                    "valid": record.valid.as_ref().map(|v| shown::with_computed(self.card, v)),
                    "best": record.best,
                    "skipped": record.skipped,
                    "seconds": record.seconds,
                });
                event[format!("{}_per_second", self.samples())] = record.samples_per_second.into();
                event.to_string()
            }
            _ => {
                let valid = record
                    .valid
                    .as_ref()
                    .map(|v| format!("  validation {}", shown::line(self.card, v)));
                let skipped = match record.skipped {
                    0 => String::new(),
                    n => format!("  {} skipped", counted(n, "step")),
                };
                format!(
                    "epoch {}/{}  {}{}  {} {}/s  {:.1} s{skipped}",
                    record.epoch,
                    self.epochs(),
                    shown::line(self.card, &record.train),
                    valid.unwrap_or_default(),
                    rate(record.samples_per_second),
                    self.samples(),
                    record.seconds,
                )
            }
        };
        match &self.show {
            Show::Bar(bar) => {
                bar.suspend(|| line(&text));
                bar.reset();
            }
            _ => line(&text),
        }
        Ok(Flow::Continue)
    }

    fn on_warning(&mut self, warning: &Warning) {
        match &self.show {
            Show::Bar(bar) => bar.suspend(|| warn(warning)),
            _ => warn(warning),
        }
    }

    fn on_end(&mut self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }
}

/// The losses that were read after a step, without their parts: `loss 0.1234`; `None` if none was.
fn losses(info: &StepInfo) -> Option<String> {
    let named = info.values.iter().filter(|(name, _)| is_loss(name));
    let each: Vec<String> = named.map(|(name, value)| format!("{name} {value:.4}")).collect();
    (!each.is_empty()).then(|| each.join("  "))
}

/// True for the name of a loss: `loss`, or `generator/loss` of a phase.
fn is_loss(name: &str) -> bool {
    name == "loss" || name.ends_with("/loss")
}
