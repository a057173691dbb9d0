//! The state that the live view draws.

use crate::output::{bytes, counted, energy_of, number, rate, thousands};
use crate::shown::{is_loss, losses};
use kiln_models::Shown;
use kiln_monitor::{Facts, Judge, Sample};
use kiln_train::{EpochRecord, Plan, StepInfo, Values};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The largest number of points of a curve.
const POINTS: usize = 1024;

/// The number of messages that are remembered.
const MESSAGES: usize = 5;

/// The time over which throughput and waiting are measured.
const WINDOW: f64 = 1.0;

/// A point of a curve: epochs so far, and a value.
pub(super) type Point = (f64, f64);

/// A curve that keeps every point of a short run, and of a long one every second, every fourth, ….
#[derive(Debug, Default)]
pub(super) struct Curve {
    points: Vec<Point>,
    /// Of so many points one is kept.
    stride: u64,
    seen: u64,
}

impl Curve {
    pub(super) fn push(&mut self, point: Point) {
        let stride = self.stride.max(1);
        if self.seen.is_multiple_of(stride) && point.1.is_finite() {
            self.points.push(point);
        }
        self.seen += 1;
        if self.points.len() >= POINTS {
            let mut kept = false;
            self.points.retain(|_| {
                kept = !kept;
                kept
            });
            self.stride = 2 * stride;
        }
    }

    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }
}

/// The facts about a run that do not change while it goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    /// Model, settings and device on one line.
    pub(crate) title: String,
    /// The metric that is drawn beside the loss.
    pub(crate) metric: Option<&'static Shown>,
    /// The word for samples: `images`.
    pub(crate) samples: String,
    /// The number of batches after which the run ends, if that is before its last epoch does.
    pub(crate) limit: Option<u64>,
    /// True if a GPU computes.
    pub(crate) on_gpu: bool,
    /// The name of the GPU whose state is known.
    pub(crate) gpu: Option<String>,
}

/// Seconds of training, those of them spent waiting, and samples.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    seconds: f64,
    waiting: f64,
    samples: u64,
}

impl Mark {
    fn plus(self, other: Mark) -> Mark {
        Mark {
            seconds: self.seconds + other.seconds,
            waiting: self.waiting + other.waiting,
            samples: self.samples + other.samples,
        }
    }
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) about: About,
    plan: Plan,
    /// The number of batches that the run had used when this process began.
    before: u64,
    began: Instant,
    /// The epoch in progress, counted from 1, and its batches so far.
    epoch: u64,
    batch: u64,
    step: u64,
    /// The losses as last read, in words.
    losses: Option<String>,
    lr: f64,
    /// Of the epochs that have ended, of the one in progress, and of all at the beginning of the window.
    ended: Mark,
    current: Mark,
    mark: Mark,
    /// Samples a second and the share of waiting, over the last window.
    speed: Option<(f64, f64)>,
    /// The verdict on what limits the speed.
    judge: Judge,
    /// The losses by their names: one, or one of each phase.
    pub(super) train_losses: BTreeMap<String, Curve>,
    pub(super) valid_losses: BTreeMap<String, Curve>,
    pub(super) train_metric: Curve,
    pub(super) valid_metric: Curve,
    pub(super) lrs: Curve,
    pub(super) machine: Sample,
    /// The energy of the last epoch in words.
    energy: Option<String>,
    messages: VecDeque<String>,
    pub(super) helps: bool,
    pub(super) stops: bool,
}

/// A time in hours, minutes and seconds.
pub(super) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 86_400 {
        0 => format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
        days => format!(
            "{} {:02}:{:02} h",
            counted(days, "day"),
            seconds / 3600 % 24,
            seconds / 60 % 60
        ),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Adds the losses among values to their curves.
fn add(curves: &mut BTreeMap<String, Curve>, at: f64, values: &Values) {
    for (name, value) in values.iter().filter(|(name, _)| is_loss(name)) {
        curves.entry(name.clone()).or_default().push((at, *value));
    }
}

impl Model {
    pub(super) fn new(about: About, plan: Plan) -> Self {
        let (epoch, batch) = plan.resumed.map_or((0, 0), |at| (at.epoch, at.batch));
        Model {
            about,
            before: epoch * plan.batches + batch,
            plan,
            began: Instant::now(),
            epoch: epoch + 1,
            batch,
            step: plan.step,
            losses: None,
            lr: f64::NAN,
            ended: Mark::default(),
            current: Mark::default(),
            mark: Mark::default(),
            speed: None,
            judge: Judge::new(),
            train_losses: BTreeMap::new(),
            valid_losses: BTreeMap::new(),
            train_metric: Curve::default(),
            valid_metric: Curve::default(),
            lrs: Curve::default(),
            machine: Sample::default(),
            energy: None,
            messages: VecDeque::new(),
            helps: false,
            stops: false,
        }
    }

    /// The epochs so far, with the part of the one in progress.
    fn at(&self) -> f64 {
        (self.epoch - 1) as f64 + self.batch as f64 / self.plan.batches.max(1) as f64
    }

    pub(super) fn step(&mut self, info: &StepInfo) {
        if info.epoch != self.epoch {
            self.end_epoch(self.current);
        }
        (self.epoch, self.batch, self.step, self.lr) = (info.epoch, info.batch, info.step, info.lr);
        self.current = Mark {
            seconds: info.seconds,
            waiting: info.waiting,
            samples: info.samples,
        };
        self.measure();
        if let Some(read) = losses(info) {
            self.losses = Some(read);
            let at = self.at();
            add(&mut self.train_losses, at, &info.values);
            self.lrs.push((at, info.lr));
        }
    }

    /// Measures throughput and waiting over the last window, which may have begun in an epoch before.
    fn measure(&mut self) {
        let (now, mark) = (self.ended.plus(self.current), self.mark);
        let window = now.seconds - mark.seconds;
        if window < 0.0 || now.samples < mark.samples {
            // The run went back.
            self.mark = now;
            return;
        }
        if window >= WINDOW || (self.speed.is_none() && window > 0.0) {
            let speed = (now.samples - mark.samples) as f64 / window;
            let waiting = ((now.waiting - mark.waiting) / window).clamp(0.0, 1.0);
            self.speed = Some((speed, waiting));
            if window >= WINDOW {
                self.judge.add(window, &self.facts(waiting));
                self.mark = now;
            }
        }
    }

    fn end_epoch(&mut self, whole: Mark) {
        self.ended = self.ended.plus(whole);
        self.current = Mark::default();
    }

    pub(super) fn epoch(&mut self, record: &EpochRecord) {
        let at = record.epoch as f64;
        let push = |curve: &mut Curve, values: Option<f64>| values.into_iter().for_each(|v| curve.push((at, v)));
        if let Some(valid) = &record.valid {
            add(&mut self.valid_losses, at, valid);
        }
        if let Some(metric) = self.about.metric {
            push(&mut self.train_metric, metric.of(&record.train));
            push(
                &mut self.valid_metric,
                record.valid.as_ref().and_then(|valid| metric.of(valid)),
            );
        }
        self.lrs.push((at, record.lr));
        self.energy = energy_of(&record.machine);
        if record.epoch < self.plan.epochs {
            (self.epoch, self.batch) = (record.epoch + 1, 0);
        }
        self.end_epoch(Mark {
            seconds: record.seconds,
            waiting: record.waiting,
            samples: record.samples,
        });
        self.measure();
    }

    pub(super) fn say(&mut self, message: impl Into<String>) {
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(message.into());
    }

    /// The last messages, at most so many.
    pub(super) fn messages(&self, most: usize) -> impl Iterator<Item = &str> {
        let skipped = self.messages.len().saturating_sub(most);
        self.messages.iter().skip(skipped).map(String::as_str)
    }

    /// The batches of the run, and those that are done.
    fn batches(&self) -> (u64, u64) {
        let all = self.plan.epochs.saturating_mul(self.plan.batches);
        let all = all.min(self.about.limit.unwrap_or(u64::MAX));
        (all, (self.epoch - 1) * self.plan.batches + self.batch)
    }

    /// The part of the run that is done, 0 to 1.
    pub(super) fn done(&self) -> f64 {
        let (all, done) = self.batches();
        (done as f64 / all.max(1) as f64).clamp(0.0, 1.0)
    }

    /// The time that is left if the run goes on as it did in this process, at a time after its start.
    fn left(&self, since: Duration) -> Option<Duration> {
        let (all, done) = self.batches();
        let here = done.saturating_sub(self.before);
        let per_batch = (here > 0).then(|| since.as_secs_f64() / here as f64)?;
        Duration::try_from_secs_f64(per_batch * all.saturating_sub(done) as f64).ok()
    }

    /// Where the run is: `epoch 3/10  batch 45/200  23 %  00:01:10, 00:03:21 left`.
    pub(super) fn progress(&self) -> String {
        let since = self.began.elapsed();
        let left = self
            .left(since)
            .map_or(String::new(), |left| format!(", {} left", clock(left)));
        let what = match (self.stops, self.plan.validates && self.batch == self.plan.batches) {
            (true, _) => "  stopping",
            (false, true) => "  validating",
            (false, false) => "",
        };
        format!(
            "epoch {}/{}  batch {}/{}  {}  {}{left}{what}",
            self.epoch,
            self.plan.epochs,
            thousands(self.batch),
            thousands(self.plan.batches),
            percent(self.done()),
            clock(since),
        )
    }

    /// The loss, the speed and the learning rate.
    pub(super) fn training(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.losses.clone());
        if let Some((speed, waiting)) = self.speed {
            parts.push(format!("{} {}/s", rate(speed), self.about.samples));
            parts.push(format!("waiting for data {}", percent(waiting)));
        }
        if self.lr.is_finite() {
            parts.push(format!("lr {}", lr(self.lr)));
        }
        parts.push(format!("step {}", thousands(self.step)));
        parts.join("   ")
    }

    /// The processor and the memory.
    pub(super) fn processor(&self) -> String {
        let lap = &self.machine.lap;
        let mut parts = Vec::new();
        parts.extend(lap.cpu_utilisation.map(|share| format!("cpu {} busy", percent(share))));
        parts.extend(lap.process_cores.map(|cores| format!("{cores:.1} cores by this run")));
        if let Some(held) = lap.process_memory {
            let peak = self.machine.process_peak;
            let peak = peak.map_or(String::new(), |peak| format!(", {} at most", bytes(peak)));
            parts.push(format!("memory {}{peak}", bytes(held as u64)));
        }
        let memory = self.machine.memory;
        parts.extend(memory.map(|m| format!("{} of {} free", bytes(m.available), bytes(m.total))));
        parts.extend(lap.cpu_celsius.map(|degrees| format!("{degrees:.0} °C")));
        parts.extend(lap.cpu_watts().map(|watts| format!("{watts:.0} W")));
        parts.extend(self.energy.iter().map(|energy| format!("last epoch {energy}")));
        parts.join("   ")
    }

    /// The GPU; empty if nothing is known of one.
    pub(super) fn gpu(&self) -> String {
        let (Some(gpu), Some(name)) = (self.machine.gpu, &self.about.gpu) else {
            return String::new();
        };
        let mut parts = vec![name.clone()];
        let busy = self.machine.lap.gpu_utilisation.or(gpu.utilisation);
        parts.extend(busy.map(|share| format!("{} busy", percent(share))));
        if let (Some(used), Some(total)) = (gpu.memory_used, gpu.memory_total) {
            parts.push(format!("{} of {} used", bytes(used), bytes(total)));
        }
        parts.extend(gpu.celsius.map(|degrees| format!("{degrees:.0} °C")));
        parts.extend(
            self.machine
                .lap
                .gpu_watts()
                .or(gpu.watts)
                .map(|watts| format!("{watts:.0} W")),
        );
        parts.extend(gpu.clock_mhz.map(|mhz| format!("{mhz:.0} MHz")));
        parts.join("   ")
    }

    /// The verdict on the bottleneck; empty before anything is known.
    pub(super) fn verdict(&self) -> String {
        self.judge.verdict().map(ToString::to_string).unwrap_or_default()
    }

    /// The facts of the last window, in which the loop waited for this share of the time.
    fn facts(&self, waiting: f64) -> Facts {
        let lap = &self.machine.lap;
        Facts {
            waiting,
            on_gpu: self.about.on_gpu,
            cpu_utilisation: lap.cpu_utilisation,
            gpu_utilisation: lap.gpu_utilisation,
            memory_used: lap.memory_used,
            gpu_memory_used: lap.gpu_memory_used,
        }
    }
}

/// A learning rate with four digits.
fn lr(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if size >= 1e-3 => number((value * 1e6).round() / 1e6),
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn plan() -> Plan {
        Plan {
            epochs: 4,
            batches: 50,
            samples: 1600,
            validates: true,
            resumed: None,
            step: 0,
            told: false,
        }
    }

    pub(crate) fn info(epoch: u64, batch: u64, seconds: f64, waiting: f64, loss: Option<f64>) -> StepInfo {
        StepInfo {
            epoch,
            batch,
            step: 50 * (epoch - 1) + batch,
            samples: 32 * batch,
            seconds,
            waiting,
            lr: 0.00125,
            loss,
            values: loss.map(|loss| ("loss".to_string(), loss)).into_iter().collect(),
        }
    }

    #[test]
    fn a_long_curve_is_thinned_and_keeps_its_ends() {
        let mut curve = Curve::default();
        (0..100_000).for_each(|i| curve.push((f64::from(i), 1.0)));
        let points = curve.points();
        assert!(points.len() < POINTS && points.len() > POINTS / 4, "{}", points.len());
        assert!(points[0].0 == 0.0 && points.last().unwrap().0 > 99_000.0);
        let apart: Vec<f64> = points.windows(2).map(|w| w[1].0 - w[0].0).collect();
        assert!(apart.iter().all(|d| *d == apart[0]));
        curve.push((0.0, f64::NAN));
        assert!(curve.points().iter().all(|p| p.1 == 1.0));
    }

    #[test]
    fn speed_and_waiting_are_those_of_the_last_window() {
        let mut model = Model::new(
            About {
                samples: "images".to_string(),
                ..Default::default()
            },
            plan(),
        );
        assert_eq!(
            (model.training(), model.verdict()),
            ("step 0".to_string(), String::new())
        );
        model.step(&info(1, 1, 0.5, 0.1, Some(2.0)));
        assert!(
            model.training().contains("64 images/s   waiting for data 20 %"),
            "{}",
            model.training()
        );
        model.step(&info(1, 11, 2.5, 0.1, None));
        model.step(&info(1, 31, 4.5, 1.1, None));
        let text = model.training();
        assert!(
            text.contains("loss 2.0000   320 images/s   waiting for data 50 %   lr 0.00125   step 31"),
            "{text}"
        );
        // The verdict stands for longer.
        assert!(
            model
                .verdict()
                .starts_with("the loader keeps up: data is waited for 4 %")
        );
        // The next epoch begins with seconds of its own.
        model.step(&info(2, 10, 1.0, 0.0, None));
        assert!(model.training().contains("320 images/s   waiting for data 0 %"));
        // Epochs that are shorter than a window are measured together.
        for epoch in 3..5 {
            model.step(&info(epoch, 16, 0.5, 0.1, None));
        }
        assert!(
            model.training().contains("1,024 images/s   waiting for data 20 %"),
            "{}",
            model.training()
        );
    }

    #[test]
    fn the_time_left_is_that_of_the_batches_left() {
        let resumed = Plan {
            resumed: Some(kiln_data::Position { epoch: 1, batch: 0 }),
            ..plan()
        };
        let mut model = Model::new(About::default(), resumed);
        assert_eq!(model.left(Duration::from_secs(9)), None);
        model.step(&info(2, 30, 1.0, 0.0, None));
        // 30 batches in 15 seconds, 120 are left.
        assert_eq!(model.left(Duration::from_secs(15)), Some(Duration::from_secs(60)));
        assert_eq!(model.done(), 0.4);
        model.about.limit = Some(90);
        assert_eq!(model.left(Duration::from_secs(15)), Some(Duration::from_secs(5)));
        assert_eq!(clock(Duration::from_secs(3725)), "01:02:05");
        assert_eq!(clock(Duration::from_secs(200_000)), "2 days 07:33 h");
    }
}
