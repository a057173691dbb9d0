//! What a training run shows while it goes: a bar on a terminal, plain lines elsewhere, JSON where it was asked for.

use crate::output::{counted, line, percent, thousands, warn};
use indicatif::{ProgressBar, ProgressStyle};
use kiln_train::{Callback, EpochRecord, Flow, Plan, Result, StepInfo, Values, Warning};
use serde_json::json;
use std::io::IsTerminal;

/// Where progress goes.
enum Show {
    /// A bar on standard error, finished epochs as lines on standard output.
    Bar(ProgressBar),
    /// Lines on standard output.
    Lines,
    /// One JSON object an epoch on standard output.
    Json,
}

/// Shows a run.
pub(crate) struct Progress {
    show: Show,
    plan: Option<Plan>,
    /// The loss as last read.
    loss: Option<f64>,
}

impl Progress {
    pub(crate) fn new(json: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        let show = match (json, terminal) {
            (true, _) => Show::Json,
            (false, true) => Show::Bar(ProgressBar::hidden()),
            (false, false) => Show::Lines,
        };
        Progress {
            show,
            plan: None,
            loss: None,
        }
    }

    fn epochs(&self) -> u64 {
        self.plan.map_or(0, |p| p.epochs)
    }
}

impl Callback for Progress {
    fn on_start(&mut self, plan: &Plan) -> Result<()> {
        self.plan = Some(*plan);
        if let Show::Bar(bar) = &mut self.show {
            // The template is a constant of this program; a bar without it would still count.
            let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            *bar = ProgressBar::new(plan.batches).with_style(style.progress_chars("=> "));
        }
        Ok(())
    }

    fn on_step(&mut self, info: &StepInfo) -> Result<Flow> {
        self.loss = info.loss.or(self.loss);
        let epochs = self.epochs();
        let rate = thousands((info.samples as f64 / info.seconds) as u64);
        match &self.show {
            Show::Bar(bar) => {
                bar.set_prefix(format!("epoch {}/{epochs}", info.epoch));
                bar.set_position(info.batch);
                let loss = self.loss.map_or_else(|| "…".to_string(), |l| format!("{l:.4}"));
                bar.set_message(format!("loss {loss}  {rate} images/s"));
            }
            Show::Lines => {
                let batches = self.plan.map_or(0, |p| p.batches);
                if let Some(loss) = info.loss.filter(|_| info.batch < batches) {
                    let (epoch, batch) = (info.epoch, info.batch);
                    line(&format!(
                        "epoch {epoch}/{epochs}  batch {batch}/{batches}  loss {loss:.4}  {rate} images/s"
                    ));
                }
            }
            Show::Json => {}
        }
        Ok(Flow::Continue)
    }

    fn on_epoch_end(&mut self, record: &EpochRecord) -> Result<Flow> {
        let text = match &self.show {
            Show::Json => json!({
                "event": "epoch",
                "epoch": record.epoch,
                "step": record.step,
                "lr": record.lr,
                "train": record.train,
                "valid": record.valid,
                "best": record.best,
                "skipped": record.skipped,
                "seconds": record.seconds,
                "images_per_second": record.samples_per_second,
            })
            .to_string(),
            _ => {
                let valid = record.valid.as_ref().map(|v| format!("  validation {}", values(v)));
                let skipped = match record.skipped {
                    0 => String::new(),
                    n => format!("  {} skipped", counted(n, "step")),
                };
                format!(
                    "epoch {}/{}  {}{}  {} images/s  {:.1} s{skipped}",
                    record.epoch,
                    self.epochs(),
                    values(&record.train),
                    valid.unwrap_or_default(),
                    thousands(record.samples_per_second as u64),
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

/// `loss 0.1234  accuracy 97.60 %`
fn values(values: &Values) -> String {
    let get = |name: &str| values.get(name).copied().unwrap_or(f64::NAN);
    format!("loss {:.4}  accuracy {}", get("loss"), percent(get("accuracy")))
}
