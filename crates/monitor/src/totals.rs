//! Readings added up over time.

use crate::machine::Raw;
use kiln_train::{Over, Reading};

/// A machine between two moments: means of what changes, sums of what is used, the largest of what must not grow too large. A
/// value that the machine does not tell is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lap {
    /// The time between the two, in seconds.
    pub seconds: f64,
    /// The share of the processors' time in which they worked, for all programs, 0 to 1.
    pub cpu_utilisation: Option<f64>,
    /// The number of processors that this process kept busy.
    pub process_cores: Option<f64>,
    /// The memory that this process held, in bytes: the largest.
    pub process_memory: Option<f64>,
    /// The share of the memory in use by all programs: the largest.
    pub memory_used: Option<f64>,
    /// The temperature of the processor: the highest.
    pub cpu_celsius: Option<f64>,
    /// The energy of the processors' packages.
    pub cpu_joules: Option<f64>,
    /// The share of the time in which a kernel ran on the GPU, 0 to 1.
    pub gpu_utilisation: Option<f64>,
    /// The memory in use on the GPU, in bytes: the largest.
    pub gpu_memory: Option<f64>,
    /// The share of the GPU's memory in use: the largest.
    pub gpu_memory_used: Option<f64>,
    /// The temperature of the GPU: the highest.
    pub gpu_celsius: Option<f64>,
    /// The energy of the GPU.
    pub gpu_joules: Option<f64>,
    /// The clock of the GPU's multiprocessors.
    pub gpu_clock_mhz: Option<f64>,
}

impl Lap {
    /// The energy of processors and GPU, as far as it is known.
    pub fn joules(&self) -> Option<f64> {
        match (self.cpu_joules, self.gpu_joules) {
            (None, None) => None,
            (cpu, gpu) => Some(cpu.unwrap_or(0.0) + gpu.unwrap_or(0.0)),
        }
    }

    fn watts(&self, joules: Option<f64>) -> Option<f64> {
        joules.filter(|_| self.seconds > 0.0).map(|j| j / self.seconds)
    }

    /// The power of the processors' packages.
    pub fn cpu_watts(&self) -> Option<f64> {
        self.watts(self.cpu_joules)
    }

    /// The power of the GPU.
    pub fn gpu_watts(&self) -> Option<f64> {
        self.watts(self.gpu_joules)
    }

    /// The values that are known, by name, for the record of an epoch.
    pub fn readings(&self) -> Vec<Reading> {
        let all = [
            ("cpu_utilisation", self.cpu_utilisation, Over::Mean),
            ("process_cores", self.process_cores, Over::Mean),
            ("process_memory_bytes", self.process_memory, Over::Max),
            ("memory_used_share", self.memory_used, Over::Max),
            ("cpu_celsius", self.cpu_celsius, Over::Max),
            ("cpu_joules", self.cpu_joules, Over::Sum),
            ("cpu_watts", self.cpu_watts(), Over::Mean),
            ("gpu_utilisation", self.gpu_utilisation, Over::Mean),
            ("gpu_memory_bytes", self.gpu_memory, Over::Max),
            ("gpu_memory_used_share", self.gpu_memory_used, Over::Max),
            ("gpu_celsius", self.gpu_celsius, Over::Max),
            ("gpu_joules", self.gpu_joules, Over::Sum),
            ("gpu_watts", self.gpu_watts(), Over::Mean),
            ("gpu_clock_mhz", self.gpu_clock_mhz, Over::Mean),
            ("joules", self.joules(), Over::Sum),
        ];
        let known = all.into_iter().filter_map(|(name, value, over)| {
            value.map(|value| Reading {
                name: name.to_string(),
                value,
                over,
            })
        });
        known.collect()
    }
}

/// A mean over the seconds in which there were values.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    seconds: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, seconds: f64) {
        if let Some(value) = value {
            self.sum += value * seconds;
            self.seconds += seconds;
        }
    }

    fn value(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}

/// The larger of two values; `None` is smaller than any.
fn larger(a: &mut Option<f64>, b: Option<f64>) {
    *a = match (*a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
}

/// Adds to a sum, which there is from its first value on.
fn increase(sum: &mut Option<f64>, by: Option<f64>) {
    if let Some(by) = by {
        *sum = Some(sum.unwrap_or(0.0) + by);
    }
}

/// Readings since a moment.
#[derive(Debug, Clone)]
pub(crate) struct Totals {
    last: Raw,
    seconds: f64,
    busy: f64,
    ticks: f64,
    process_seconds: Option<f64>,
    cpu_joules: Option<f64>,
    gpu_joules: Option<f64>,
    gpu_utilisation: Mean,
    gpu_clock: Mean,
    /// Those whose largest value counts.
    largest: Lap,
}

/// What a counter has grown by; `None` if it is not known, or has begun anew.
fn growth(before: Option<f64>, now: Option<f64>) -> Option<f64> {
    Some(now? - before?).filter(|by| *by >= 0.0)
}

impl Totals {
    pub(crate) fn new(first: Raw) -> Self {
        let mut totals = Totals {
            last: first,
            seconds: 0.0,
            busy: 0.0,
            ticks: 0.0,
            process_seconds: None,
            cpu_joules: None,
            gpu_joules: None,
            gpu_utilisation: Mean::default(),
            gpu_clock: Mean::default(),
            largest: Lap::default(),
        };
        totals.see(&first);
        totals
    }

    /// Takes what counts by its largest value.
    fn see(&mut self, now: &Raw) {
        let gpu = now.gpu.unwrap_or_default();
        let share = gpu.memory_used.zip(gpu.memory_total).filter(|(_, total)| *total > 0);
        let largest = &mut self.largest;
        larger(
            &mut largest.process_memory,
            now.process_memory.map(|(held, _)| held as f64),
        );
        larger(&mut largest.memory_used, now.memory.map(|m| m.used_share()));
        larger(&mut largest.cpu_celsius, now.celsius);
        larger(&mut largest.gpu_memory, gpu.memory_used.map(|bytes| bytes as f64));
        larger(
            &mut largest.gpu_memory_used,
            share.map(|(used, total)| used as f64 / total as f64),
        );
        larger(&mut largest.gpu_celsius, gpu.celsius);
    }

    /// Adds what was read later.
    pub(crate) fn add(&mut self, now: Raw) {
        let before = std::mem::replace(&mut self.last, now);
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
        self.seconds += seconds;
        if let (Some(a), Some(b)) = (before.ticks, now.ticks) {
            self.busy += (b.busy - a.busy).max(0.0);
            self.ticks += (b.all - a.all).max(0.0);
        }
        let process = growth(before.process_seconds, now.process_seconds);
        increase(&mut self.process_seconds, process);
        increase(&mut self.cpu_joules, growth(before.joules, now.joules));
        let gpu = now.gpu.unwrap_or_default();
        let by_counter = growth(before.gpu.unwrap_or_default().joules, gpu.joules);
        // Older GPUs tell their power alone.
        increase(&mut self.gpu_joules, by_counter.or(gpu.watts.map(|w| w * seconds)));
        self.gpu_utilisation.add(gpu.utilisation, seconds);
        self.gpu_clock.add(gpu.clock_mhz, seconds);
        self.see(&now);
    }

    /// What was read since the beginning.
    pub(crate) fn lap(&self) -> Lap {
        Lap {
            seconds: self.seconds,
            // A lap that is shorter than a tick has none.
            cpu_utilisation: (self.ticks > 0.0).then(|| (self.busy / self.ticks).clamp(0.0, 1.0)),
            process_cores: self
                .process_seconds
                .filter(|_| self.seconds > 0.0)
                .map(|s| s / self.seconds),
            cpu_joules: self.cpu_joules,
            gpu_joules: self.gpu_joules,
            gpu_utilisation: self.gpu_utilisation.value(),
            gpu_clock_mhz: self.gpu_clock.value(),
            ..self.largest
        }
    }

    /// What was read last.
    pub(crate) fn last(&self) -> Raw {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::GpuState;
    use crate::system::{Memory, Ticks};
    use std::time::{Duration, Instant};

    fn raw(at: Instant, gpu: Option<GpuState>) -> Raw {
        Raw {
            at,
            ticks: None,
            process_seconds: None,
            process_memory: None,
            memory: None,
            celsius: None,
            joules: None,
            gpu,
        }
    }

    #[test]
    fn counters_are_subtracted_and_the_largest_kept() {
        let begin = Instant::now();
        let at = |seconds: u64, busy: f64, all: f64, process: f64, held: u64, available: u64, joules: f64| Raw {
            ticks: Some(Ticks { busy, all }),
            process_seconds: Some(process),
            process_memory: Some((held, 900)),
            memory: Some(Memory { total: 100, available }),
            celsius: Some(held as f64),
            joules: Some(joules),
            ..raw(begin + Duration::from_secs(seconds), None)
        };
        let mut totals = Totals::new(at(0, 50.0, 100.0, 7.0, 10, 90, 1000.0));
        assert_eq!(totals.lap().cpu_utilisation, None);
        totals.add(at(1, 60.0, 140.0, 9.0, 60, 40, 1100.0));
        totals.add(at(4, 80.0, 180.0, 10.0, 20, 80, 1200.0));
        let lap = totals.lap();
        assert_eq!(
            (lap.seconds, lap.cpu_utilisation, lap.process_cores),
            (4.0, Some(0.375), Some(0.75))
        );
        assert_eq!((lap.process_memory, lap.memory_used), (Some(60.0), Some(0.6)));
        assert_eq!(
            (lap.cpu_joules, lap.cpu_watts(), lap.joules()),
            (Some(200.0), Some(50.0), Some(200.0))
        );
        assert_eq!(
            (lap.cpu_celsius, lap.gpu_joules, totals.last().process_memory),
            (Some(60.0), None, Some((20, 900)))
        );
        let names: Vec<String> = lap.readings().into_iter().map(|r| r.name).collect();
        let expected = [
            "cpu_utilisation",
            "process_cores",
            "process_memory_bytes",
            "memory_used_share",
            "cpu_celsius",
            "cpu_joules",
            "cpu_watts",
            "joules",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_gpu_is_measured_by_its_counter_or_else_by_its_power() {
        let begin = Instant::now();
        let run = |joules: [Option<f64>; 3]| {
            let state = |i: usize| GpuState {
                utilisation: Some([0.0, 1.0, 0.5][i]),
                memory_used: Some([1, 3, 2][i]),
                memory_total: Some(4),
                watts: Some(100.0),
                joules: joules[i],
                celsius: Some(40.0),
                clock_mhz: None,
            };
            let at = |i: usize| raw(begin + Duration::from_secs([0, 1, 3][i]), Some(state(i)));
            let mut totals = Totals::new(at(0));
            totals.add(at(1));
            totals.add(at(2));
            totals.lap()
        };
        let counted = run([Some(5.0), Some(55.0), Some(85.0)]);
        assert_eq!(
            (counted.gpu_joules, counted.gpu_utilisation),
            (Some(80.0), Some(2.0 / 3.0))
        );
        assert_eq!((counted.gpu_memory, counted.gpu_memory_used), (Some(3.0), Some(0.75)));
        assert_eq!((counted.gpu_clock_mhz, counted.gpu_celsius), (None, Some(40.0)));
        assert_eq!(run([None; 3]).gpu_joules, Some(300.0));
        // A counter that begins anew, as after a reset of the driver, is passed over.
        assert_eq!(run([Some(5.0), Some(0.0), Some(40.0)]).gpu_joules, Some(140.0));
        let empty = Totals::new(raw(begin, None)).lap();
        assert_eq!(empty, Lap::default());
        assert!(empty.readings().is_empty());
    }
}
