//! The progress of a training run: a bar on a terminal, plain lines elsewhere, JSON with `--json`.

use crate::output::{counted, line, percent, rate, warn};
use indicatif::{ProgressBar, ProgressStyle};
use kiln_models::MetricKind;
use kiln_train::{Callback, EpochRecord, Flow, Plan, Result, StepInfo, Values, Warning};
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
    metric: MetricKind,
    plan: Option<Plan>,
    /// The loss as last read.
    loss: Option<f64>,
}

impl Progress {
    pub(crate) fn new(json: bool, metric: MetricKind) -> Self {
        let terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        let show = match (json, terminal) {
            (true, _) => Show::Json,
            (false, true) => Show::Bar(ProgressBar::hidden()),
            (false, false) => Show::Lines,
        };
        Progress {
            show,
            metric,
            plan: None,
            loss: None,
        }
    }

    /// The word for samples.
    fn samples(&self) -> &'static str {
        match self.metric {
            MetricKind::Accuracy => "images",
            MetricKind::Perplexity => "windows",
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
            // The template is a valid constant; if it were not, the default bar would do.
            let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            *bar = ProgressBar::new(plan.batches).with_style(style.progress_chars("=> "));
        }
        Ok(())
    }

    fn on_step(&mut self, info: &StepInfo) -> Result<Flow> {
        self.loss = info.loss.or(self.loss);
        let epochs = self.epochs();
        let rate = format!("{} {}/s", rate(info.samples as f64 / info.seconds), self.samples());
        match &self.show {
            Show::Bar(bar) => {
                bar.set_prefix(format!("epoch {}/{epochs}", info.epoch));
                bar.set_position(info.batch);
                let loss = self.loss.map_or_else(|| "…".to_string(), |l| format!("{l:.4}"));
                bar.set_message(format!("loss {loss}  {rate}"));
            }
            Show::Lines => {
                let batches = self.plan.map_or(0, |p| p.batches);
                if let Some(loss) = info.loss.filter(|_| info.batch < batches) {
                    let (epoch, batch) = (info.epoch, info.batch);
                    line(&format!(
                        "epoch {epoch}/{epochs}  batch {batch}/{batches}  loss {loss:.4}  {rate}"
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
                    "train": measured(&record.train, self.metric),
                    "valid": record.valid.as_ref().map(|v| measured(v, self.metric)),
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
                    .map(|v| format!("  validation {}", values(v, self.metric)));
                let skipped = match record.skipped {
                    0 => String::new(),
                    n => format!("  {} skipped", counted(n, "step")),
                };
                format!(
                    "epoch {}/{}  {}{}  {} {}/s  {:.1} s{skipped}",
                    record.epoch,
                    self.epochs(),
                    values(&record.train, self.metric),
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

/// Values in one line: `loss 0.1234  accuracy 97.60 %`, for text `loss 1.4500 nats/character  perplexity 4.263`.
fn values(values: &Values, metric: MetricKind) -> String {
    let get = |name: &str| values.get(name).copied().unwrap_or(f64::NAN);
    let loss = get("loss");
    match metric {
        MetricKind::Accuracy => format!("loss {loss:.4}  accuracy {}", percent(get("accuracy"))),
        MetricKind::Perplexity => format!("loss {loss:.4} nats/character  perplexity {:.3}", loss.exp()),
    }
}

/// The values of an epoch, with the perplexity added for text.
fn measured(values: &Values, metric: MetricKind) -> Values {
    let mut values = values.clone();
    if let (MetricKind::Perplexity, Some(&loss)) = (metric, values.get("loss")) {
        values.insert("perplexity".to_string(), loss.exp());
    }
    values
}
