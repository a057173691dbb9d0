//! The seconds that a run's parts took, and the table of them at its end.

use std::fmt;
use std::time::Instant;

/// Suites that took less are one line of the table together.
const SHORT: f64 = 0.1;
/// Rows of the table of single tests.
const SLOWEST: usize = 10;

/// Seconds by the clock on the wall, of builds and checks, of suites and of single tests.
#[derive(Default, Debug)]
pub(crate) struct Times {
    pub(crate) steps: Vec<(String, f64)>,
    pub(super) suites: Vec<Suite>,
    /// The suite and the name of each test, and its seconds.
    pub(super) tests: Vec<(String, f64)>,
}

/// One test binary, or the examples in one crate's documentation.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Suite {
    pub(super) name: String,
    pub(super) tests: usize,
    pub(super) seconds: f64,
}

impl Times {
    /// Runs `work` and notes its time as that of a step.
    pub(crate) fn step<T>(&mut self, name: impl Into<String>, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.steps.push((name.into(), start.elapsed().as_secs_f64()));
        result
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>9}", "seconds")?;
        for (name, seconds) in &self.steps {
            writeln!(f, "{seconds:>9.1}  {name}")?;
        }
        if !self.suites.is_empty() {
            let mut suites = self.suites.clone();
            suites.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
            let (long, short): (Vec<_>, Vec<_>) = suites.into_iter().partition(|s| s.seconds >= SHORT);
            writeln!(f, "\n{:>9}  {:>5}  suite", "seconds", "tests")?;
            for Suite { name, tests, seconds } in &long {
                writeln!(f, "{seconds:>9.1}  {tests:>5}  {name}")?;
            }
            if !short.is_empty() {
                let (tests, seconds) = short.iter().fold((0, 0.0), |(n, s), x| (n + x.tests, s + x.seconds));
                writeln!(f, "{seconds:>9.1}  {tests:>5}  {} shorter ones", short.len())?;
            }
        }
        let mut tests = self.tests.clone();
        tests.sort_by(|a, b| b.1.total_cmp(&a.1));
        if !tests.is_empty() {
            writeln!(f, "\n{:>9}  slowest tests, each beside others of its suite", "seconds")?;
        }
        for (name, seconds) in tests.iter().take(SLOWEST) {
            writeln!(f, "{seconds:>9.1}  {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_come_first_and_the_short_ones_together() {
        let suite = |name: &str, seconds| Suite {
            name: name.to_string(),
            tests: 2,
            seconds,
        };
        let times = Times {
            steps: vec![("clippy".to_string(), 7.0)],
            suites: vec![suite("a", 0.01), suite("b", 1.0), suite("c", 0.02), suite("d", 3.0)],
            tests: (0..12).map(|i| (format!("d t{i}"), f64::from(i))).collect(),
        };
        let text = times.to_string();
        let ends: Vec<&str> = text.lines().filter_map(|l| l.split_whitespace().last()).collect();
        let slowest = ["t11", "t10", "t9", "t8", "t7", "t6", "t5", "t4", "t3", "t2"];
        let before = ["seconds", "clippy", "suite", "d", "b", "ones", "suite"];
        assert_eq!(ends, [&before[..], &slowest[..]].concat());
        assert!(text.contains("0.0      4  2 shorter ones"), "{text}");
    }
}
