//! The readings of a whole run, from the records of its epochs.

use kiln_train::{EpochRecord, Over, Values};

/// How a reading of this name is put together.
fn over(name: &str) -> Over {
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    match name {
        _ if ends(&["joules"]) => Over::Sum,
        _ if ends(&["_celsius", "_bytes", "_used_share"]) => Over::Max,
        _ => Over::Mean,
    }
}

/// The readings of a run by their names: the joules of all epochs, those of their validation by names of their own, the means over the
/// time for training, the largest temperatures and memory.
///
/// ```
/// use kiln_train::{EpochRecord, Execution, Values};
///
/// let epoch = |seconds, joules, watts| EpochRecord {
///     # epoch: 1, step: 1, skipped: 0, lr: 0.1, lrs: Values::new(), train: Values::new(), valid: None, best: false,
///     # samples: 1, waiting: 0.0, samples_per_second: 1.0, execution: Execution::default(),
///     seconds,
///     machine: Values::from([("joules".to_string(), joules), ("cpu_watts".to_string(), watts)]),
///     // …
/// };
/// let run = kiln_monitor::of_run(&[epoch(1.0, 40.0, 40.0), epoch(3.0, 240.0, 80.0)]);
/// assert_eq!((run["joules"], run["cpu_watts"]), (280.0, 70.0));
/// ```
pub fn of_run(epochs: &[EpochRecord]) -> Values {
    // The sum, largest or sum of values times seconds, and the seconds.
    let mut all: std::collections::BTreeMap<&String, (f64, f64)> = Default::default();
    for epoch in epochs {
        for (name, &value) in epoch.machine.iter().filter(|(_, v)| v.is_finite()) {
            let (sum, seconds) = all.entry(name).or_insert(match over(name) {
                Over::Max => (f64::NEG_INFINITY, 0.0),
                Over::Sum | Over::Mean => (0.0, 0.0),
            });
            *seconds += epoch.seconds;
            *sum = match over(name) {
                Over::Sum => *sum + value,
                Over::Mean => *sum + value * epoch.seconds,
                Over::Max => sum.max(value),
            };
        }
    }
    let values = all.into_iter().map(|(name, (sum, seconds))| match over(name) {
        Over::Mean => (name.clone(), sum / seconds),
        Over::Sum | Over::Max => (name.clone(), sum),
    });
    values.filter(|(_, value)| value.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lap;

    #[test]
    fn every_reading_is_put_together_in_one_way() {
        let some = Some(1.0);
        let lap = Lap {
            seconds: 1.0,
            cpu_utilisation: some,
            process_cores: some,
            process_memory: some,
            memory_used: some,
            cpu_celsius: some,
            cpu_joules: some,
            gpu_utilisation: some,
            gpu_memory: some,
            gpu_memory_used: some,
            gpu_celsius: some,
            gpu_joules: some,
            gpu_clock_mhz: some,
        };
        let readings = lap.readings();
        assert_eq!(readings.len(), 15);
        for reading in readings {
            assert_eq!(over(&reading.name), reading.over, "{}", reading.name);
        }
    }
}
