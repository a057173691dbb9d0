//! The progress of a training run: a live view on a terminal, plain lines elsewhere, JSON with `--json`.

use crate::live::{About, Hands, Live};
use crate::machine::is_gpu;
use crate::output::{bytes, counted, energy_of, line, rate, warn};
use crate::shown;
use kiln_models::Card;
use kiln_monitor::{Bottleneck, Facts, Judge, Watch};
use kiln_train::{Callback, EpochRecord, Event, Flow, JournalEntry, Plan, Result, StepInfo, Values, Warning};

/// The form of progress output.
pub(crate) enum Show {
    /// The live view, and lines on standard output when that is over.
    Live(Box<(About, Hands)>),
    /// Lines on standard output.
    Lines,
    /// One JSON object per epoch on standard output.
    Json,
}

/// The callback that shows the progress of a run.
pub(crate) struct Progress {
    show: Show,
    /// The live view while it is shown.
    live: Option<Live>,
    /// The lines to show after it.
    kept: Vec<String>,
    card: &'static Card,
    device: String,
    watch: Option<Watch>,
    plan: Option<Plan>,
    judge: Judge,
    /// The bottleneck that was told last.
    told: Option<Bottleneck>,
}

impl Progress {
    pub(crate) fn new(show: Show, card: &'static Card, device: String, watch: Option<Watch>) -> Self {
        Progress {
            show,
            live: None,
            kept: Vec::new(),
            card,
            device,
            watch,
            plan: None,
            judge: Judge::new(),
            told: None,
        }
    }

    fn epochs(&self) -> u64 {
        self.plan.map_or(0, |p| p.epochs)
    }

    /// The live view if it is on the screen; if it has left that, what was kept is shown.
    fn live(&mut self) -> Option<&Live> {
        if self.live.as_ref().is_some_and(|live| !live.is_shown()) {
            self.end_live();
        }
        self.live.as_ref()
    }

    fn end_live(&mut self) {
        drop(self.live.take());
        self.kept.drain(..).for_each(|text| line(&text));
    }

    /// Shows a line, after the live view if there is one.
    fn line(&mut self, text: String) {
        match self.live() {
            Some(_) => self.kept.push(text),
            None => line(&text),
        }
    }

    /// Says what limits the speed, if that is another than was told.
    fn tell_speed(&mut self) {
        let Some(verdict) = self.judge.verdict() else { return };
        let (bottleneck, text) = (verdict.bottleneck, format!("speed: {verdict}"));
        if self.told.replace(bottleneck) != Some(bottleneck) {
            self.line(text);
        }
    }

    /// The line of a report within an epoch.
    fn step(&self, info: &StepInfo, losses: &str) -> String {
        let (epochs, batches) = (self.epochs(), self.plan.map_or(0, |p| p.batches));
        let waiting = if info.seconds > 0.0 {
            info.waiting / info.seconds
        } else {
            0.0
        };
        let held = self.watch.as_ref().and_then(|watch| watch.sample().lap.process_memory);
        format!(
            "epoch {}/{epochs}  batch {}/{batches}  {losses}{}  {} {}/s  waiting {:.0} %{}",
            info.epoch,
            info.batch,
            grad_norm(&info.values),
            rate(info.samples as f64 / info.seconds),
            shown::samples(self.card),
            100.0 * waiting,
            held.map_or(String::new(), |held| format!("  memory {}", bytes(held as u64))),
        )
    }

    fn event(&self, record: &EpochRecord) -> serde_json::Value {
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
            "waiting_share": record.waiting_share(),
            "machine": record.machine,
            "verdict": self.judge.verdict().map(ToString::to_string),
        });
        event[format!("{}_per_second", shown::samples(self.card))] = record.samples_per_second.into();
        event
    }

    /// The line of an epoch.
    fn epoch(&self, record: &EpochRecord) -> String {
        let valid = record
            .valid
            .as_ref()
            .map(|v| format!("  validation {}", shown::line(self.card, v)));
        let skipped = match record.skipped {
            0 => String::new(),
            n => format!("  {} skipped", counted(n, "step")),
        };
        let energy = energy_of(&record.machine);
        format!(
            "epoch {}/{}  {}{}{}  {} {}/s  {:.1} s  waiting {:.0} %{}{skipped}",
            record.epoch,
            self.epochs(),
            shown::line(self.card, &record.train),
            grad_norm(&record.train),
            valid.unwrap_or_default(),
            rate(record.samples_per_second),
            shown::samples(self.card),
            record.seconds,
            100.0 * record.waiting_share(),
            energy.map_or(String::new(), |energy| format!("  {energy}")),
        )
    }
}

impl Callback for Progress {
    // An epoch that is shown is on the disk, whatever happens next.
    fn reads_weights(&self) -> bool {
        true
    }

    fn on_start(&mut self, plan: &Plan) -> Result<()> {
        self.plan = Some(*plan);
        if let Show::Live(parts) = &self.show {
            let (about, hands) = &**parts;
            let signals = hands.signals.clone();
            self.live = Live::start(about.clone(), *plan, hands.clone()).ok();
            if self.live.is_none() {
                signals.end_view();
            }
        }
        Ok(())
    }

    fn on_step(&mut self, info: &StepInfo) -> Result<Flow> {
        if let Show::Json = self.show {
            return Ok(Flow::Continue);
        }
        if let Some(live) = self.live() {
            live.step(info);
        } else if let Some(losses) = shown::losses(info).filter(|_| info.batch < self.plan.map_or(0, |p| p.batches)) {
            line(&self.step(info, &losses));
        }
        Ok(Flow::Continue)
    }

    fn on_epoch_end(&mut self, record: &EpochRecord) -> Result<Flow> {
        self.judge.add(record.seconds, &Facts::of(record, is_gpu(&self.device)));
        if let Show::Json = self.show {
            line(&self.event(record).to_string());
            return Ok(Flow::Continue);
        }
        if let Some(live) = self.live() {
            live.epoch(record);
        }
        self.line(self.epoch(record));
        if self.judge.stands() {
            self.tell_speed();
        }
        Ok(Flow::Continue)
    }

    fn on_journal(&mut self, entry: &JournalEntry) {
        if matches!(self.show, Show::Json) || entry.event == Event::Resume {
            return;
        }
        if let Some(live) = self.live() {
            live.say(entry.to_string());
        }
        self.line(format!("asked: {entry}"));
    }

    fn on_warning(&mut self, warning: &Warning) {
        match self.live() {
            Some(live) => {
                live.say(format!("warning: {warning}"));
                self.kept.push(format!("warning: {warning}"));
            }
            None => warn(warning),
        }
    }

    fn on_end(&mut self) {
        // A run that ends before a verdict stands has one on all of it.
        if self.told.is_none() && !matches!(self.show, Show::Json) {
            self.tell_speed();
        }
        self.end_live();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end_live();
    }
}

/// The norms of gradients in one line, if they are measured: `  gradient norm 1.234 (largest 5.678)`.
fn grad_norm(values: &Values) -> String {
    match (values.get("grad_norm"), values.get("grad_norm_max")) {
        (Some(mean), Some(max)) => format!("  gradient norm {} (largest {})", short(*mean), short(*max)),
        _ => String::new(),
    }
}

/// A number of four digits.
fn short(value: f64) -> String {
    match value == 0.0 || (1e-3..1e5).contains(&value) {
        true => format!("{value:.3}"),
        false => format!("{value:.3e}"),
    }
}
