//! Measurements by callbacks beside the training, such as the state of the machine, for the records of epochs.

use crate::Values;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How readings of the parts of an epoch become the reading of the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// They are added: joules.
    Sum,
    /// Their mean over the time: watts, utilisation.
    Mean,
    /// The largest counts: temperatures, memory.
    Max,
}

/// A value that a callback has measured since it was last asked ([`Callback::readings`](crate::Callback::readings)).
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The name, with the unit at its end: `gpu_watts`.
    pub name: String,
    /// The value.
    pub value: f64,
    /// How it is put together with others of the epoch.
    pub over: Over,
}

/// The readings of one name in the epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tally {
    over: Over,
    /// The sum or the largest; for a mean the sum of values times seconds.
    value: f64,
    seconds: f64,
}

impl Tally {
    fn value(&self) -> f64 {
        match self.over {
            Over::Mean => self.value / self.seconds,
            Over::Sum | Over::Max => self.value,
        }
    }
}

/// The readings of an epoch by their names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Readings(BTreeMap<String, Tally>);

impl Readings {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the readings of a part of the epoch that took so many seconds; those that are not finite are left out.
    pub(crate) fn add(&mut self, readings: Vec<Reading>, seconds: f64) {
        for Reading { name, value, over } in readings {
            if !value.is_finite() || (over == Over::Mean && seconds <= 0.0) {
                continue;
            }
            let first = Tally {
                over,
                value: if over == Over::Max { value } else { 0.0 },
                seconds: 0.0,
            };
            let tally = self.0.entry(name).or_insert(first);
            match over {
                Over::Sum => tally.value += value,
                Over::Mean => tally.value += value * seconds,
                Over::Max => tally.value = tally.value.max(value),
            }
            tally.seconds += seconds;
        }
    }

    /// Adds what was used (sums, such as joules) while the epoch was validated, under names of its own: `valid_joules`.
    pub(crate) fn add_of_validation(&mut self, readings: Vec<Reading>, seconds: f64) {
        let used = readings.into_iter().filter(|reading| reading.over == Over::Sum);
        let named = used.map(|reading| Reading {
            name: format!("valid_{}", reading.name),
            ..reading
        });
        self.add(named.collect(), seconds);
    }

    pub(crate) fn values(&self) -> Values {
        self.0
            .iter()
            .map(|(name, tally)| (name.clone(), tally.value()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_epoch_are_put_together() {
        let part = |joules, watts, celsius| {
            let of = |name: &str, value, over| Reading {
                name: name.to_string(),
                value,
                over,
            };
            vec![
                of("joules", joules, Over::Sum),
                of("watts", watts, Over::Mean),
                of("celsius", celsius, Over::Max),
            ]
        };
        let mut all = Readings::default();
        all.add(part(10.0, 100.0, -5.0), 1.0);
        all.add(part(20.0, 40.0, -7.0), 3.0);
        all.add(part(f64::NAN, f64::INFINITY, f64::NAN), 1.0);
        all.add(part(0.0, 7.0, -6.0), 0.0);
        all.add_of_validation(part(4.0, 900.0, 90.0), 1.0);
        all.add_of_validation(part(1.5, 900.0, 90.0), 1.0);
        let expected = [
            ("celsius", -5.0),
            ("joules", 30.0),
            ("valid_joules", 5.5),
            ("watts", 55.0),
        ];
        assert_eq!(all.values(), expected.map(|(name, v)| (name.to_string(), v)).into());
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Readings>(&text).unwrap(), all);
    }
}
