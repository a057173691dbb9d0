//! The monitored metric, and the count of epochs without improvement.

use crate::{EpochRecord, Result, TrainError, Values};

/// The direction in which a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Smaller is better: losses.
    Min,
    /// Larger is better: accuracies.
    Max,
}

/// The metric that decides which weights are kept as best and when a run stops early.
///
/// The value on the validation set counts or, without a validation set, the value in training.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitor {
    /// The metric's name.
    pub metric: String,
    /// The direction in which the metric is better.
    pub goal: Goal,
    /// The smallest improvement that counts, exclusive.
    pub min_delta: f64,
}

impl Default for Monitor {
    /// Monitors the loss.
    fn default() -> Self {
        Monitor::new("loss", Goal::Min)
    }
}

impl Monitor {
    /// Monitors `metric`; every improvement counts.
    pub fn new(metric: &str, goal: Goal) -> Self {
        Monitor {
            metric: metric.to_string(),
            goal,
            min_delta: 0.0,
        }
    }

    /// The monitored value of an epoch.
    ///
    /// # Errors
    /// [`TrainError::UnknownMetric`] when no metric has that name.
    pub fn value(&self, record: &EpochRecord) -> Result<f64> {
        self.value_of(record.valid.as_ref().unwrap_or(&record.train))
    }

    fn value_of(&self, values: &Values) -> Result<f64> {
        values
            .get(&self.metric)
            .copied()
            .ok_or_else(|| TrainError::UnknownMetric {
                asked: self.metric.clone(),
                found: values.keys().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", "),
            })
    }

    /// True if `value` is better than `best`, or is the first. NaN is never better.
    pub fn improves(&self, value: f64, best: Option<f64>) -> bool {
        match (self.goal, best) {
            _ if value.is_nan() => false,
            (_, None) => true,
            (Goal::Min, Some(best)) => value < best - self.min_delta,
            (Goal::Max, Some(best)) => value > best + self.min_delta,
        }
    }
}

/// Counts epochs without improvement.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    pub(crate) best: Option<f64>,
    pub(crate) stale: u64,
}

impl Progress {
    /// Adds the value of an epoch; true if it is the best so far.
    pub(crate) fn update(&mut self, monitor: &Monitor, value: f64) -> bool {
        let better = monitor.improves(value, self.best);
        if better {
            self.best = Some(value);
            self.stale = 0;
        } else {
            self.stale += 1;
        }
        better
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_never_improves_and_deltas_count() {
        let mut monitor = Monitor::new("accuracy", Goal::Max);
        assert!(!monitor.improves(f64::NAN, None));
        assert!(monitor.improves(0.1, None));
        assert!(!monitor.improves(0.5, Some(0.5)));
        monitor.min_delta = 0.1;
        assert!(!monitor.improves(0.55, Some(0.5)));
        assert!(monitor.improves(0.65, Some(0.5)));
        assert!(Monitor::default().improves(0.4, Some(0.5)));
    }

    #[test]
    fn stale_epochs_are_counted_from_the_best() {
        let (monitor, mut progress) = (Monitor::default(), Progress::default());
        let seen: Vec<(bool, u64)> = [1.0, 0.5, 0.6, f64::NAN, 0.4]
            .into_iter()
            .map(|v| (progress.update(&monitor, v), progress.stale))
            .collect();
        assert_eq!(seen, [(true, 0), (true, 0), (false, 1), (false, 2), (true, 0)]);
    }

    #[test]
    fn an_unknown_metric_names_those_there_are() {
        let values = Values::from([("loss".to_string(), 1.0), ("top5".to_string(), 0.5)]);
        let error = Monitor::new("acuracy", Goal::Max).value_of(&values).unwrap_err();
        assert!(
            error.to_string().contains("`acuracy`") && error.to_string().contains("`loss`, `top5`"),
            "{error}"
        );
    }
}
