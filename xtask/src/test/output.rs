//! The output of `cargo test`, line by line as it comes: what passed, how long suites and tests took, and which tests failed.
//!
//! The stable libtest does not print the time of a test. It can be told all the same: libtest starts as many tests as it has
//! threads, in the order of their names, and one more whenever one ends, and it prints a line as soon as a test ends. So the
//! `k`-th test began when the line of the `k - threads`-th came. A time found so is that between begin and end, with the other
//! threads' tests running beside it. Where lines are missing or do not agree with that order, a suite's tests have no times.

use super::times::{Suite, Times};
use std::collections::HashMap;
use std::fmt;

/// The sum of libtest's result lines, and the tests that failed.
#[derive(Default, Debug, PartialEq)]
pub(super) struct Total {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    pub(super) failures: Vec<Failure>,
}

/// A test that failed.
#[derive(Debug, PartialEq)]
pub(super) struct Failure {
    /// Its suite and its name.
    pub(super) test: String,
    /// What it wrote: the first [`Failure::LINES`] lines from its last panic on, or of all where there is none.
    pub(super) wrote: Vec<String>,
}

impl Failure {
    const LINES: usize = 12;

    fn take(&mut self, line: &str) {
        if line.starts_with("thread '") && line.contains(" panicked at ") {
            self.wrote.clear();
        }
        if self.wrote.len() < Self::LINES && !line.trim().is_empty() {
            self.wrote.push(line.to_string());
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FAILED: {}", self.test)?;
        self.wrote.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl Total {
    /// Adds `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn read(&mut self, text: &str) {
        let Some(rest) = text.strip_prefix("test result: ") else {
            return;
        };
        let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let count = words.next().and_then(|n| n.parse().ok()).unwrap_or(0);
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                Some("ignored") => self.skipped += count,
                _ => {}
            }
        }
    }

    /// The place of a test among those that failed.
    fn failure(&mut self, test: String) -> usize {
        let known = self.failures.iter().position(|failure| failure.test == test);
        known.unwrap_or_else(|| {
            let wrote = Vec::new();
            self.failures.push(Failure { test, wrote });
            self.failures.len() - 1
        })
    }
}

/// A reader of one `cargo test`.
pub(super) struct Output<'a> {
    /// The suites' names by those of their programs.
    pub(super) names: HashMap<String, String>,
    /// Written before each name.
    pub(super) label: &'a str,
    /// The tests that run at once.
    pub(super) threads: usize,
    pub(super) total: &'a mut Total,
    pub(super) times: &'a mut Times,
    pub(super) open: Option<Open>,
}

/// The suite that runs.
pub(super) struct Open {
    name: String,
    begun: f64,
    tests: usize,
    /// When libtest said how many tests there are, and how many.
    listed: Option<(f64, usize)>,
    /// The tests that have ended since, and when.
    ended: Vec<(String, f64)>,
    /// Where in [`Total::failures`] the test stands whose output comes now.
    writer: Option<usize>,
}

impl Output<'_> {
    /// Takes a line that came at a time, in seconds.
    pub(super) fn line(&mut self, text: &str, now: f64) {
        self.total.read(text);
        let trimmed = text.trim_start();
        if let Some(what) = trimmed.strip_prefix("Running ").filter(|_| text.starts_with(' ')) {
            let program = what.trim_end_matches(')').rsplit(['/', '\\']).next().unwrap_or(what);
            let name = self.names.get(program).map_or(what, String::as_str).to_string();
            self.begin(name, now);
        } else if let Some(name) = trimmed.strip_prefix("Doc-tests ").filter(|_| text.starts_with(' ')) {
            self.begin(format!("{name} --doc"), now);
        } else if let Some(open) = &mut self.open {
            if let Some(rest) = text.strip_prefix("running ") {
                let count = rest.split(' ').next().and_then(|n| n.parse().ok());
                open.listed = count.map(|count| (now, count));
                open.ended.clear();
            } else if text.starts_with("test result: ") {
                open.tests += open.ended.len();
                let named = |(test, seconds)| (format!("{}{} {test}", self.label, open.name), seconds);
                let tests = open.listed.take().map(|l| durations(l, &open.ended, self.threads));
                self.times
                    .tests
                    .extend(tests.unwrap_or_default().into_iter().map(named));
            } else if let Some((name, how)) = text.strip_prefix("test ").and_then(|t| t.rsplit_once(" ... ")) {
                let name = name.trim_end_matches(" - should panic");
                open.ended.push((name.to_string(), now));
                if how == "FAILED" {
                    self.total.failure(format!("{}{} {name}", self.label, open.name));
                }
            } else if let Some(name) = text.strip_prefix("---- ").and_then(|t| t.strip_suffix(" stdout ----")) {
                let at = self.total.failure(format!("{}{} {name}", self.label, open.name));
                open.writer = Some(at);
            } else if text == "failures:" {
                open.writer = None;
            } else if let Some(at) = open.writer {
                self.total.failures[at].take(text);
            }
        }
    }

    fn begin(&mut self, name: String, now: f64) {
        self.end(now);
        self.open = Some(Open {
            name,
            begun: now,
            tests: 0,
            listed: None,
            ended: Vec::new(),
            writer: None,
        });
    }

    /// Ends the suite that runs.
    pub(super) fn end(&mut self, now: f64) {
        if let Some(open) = self.open.take() {
            self.times.suites.push(Suite {
                name: format!("{}{}", self.label, open.name),
                tests: open.tests,
                seconds: now - open.begun,
            });
        }
    }
}

/// The tests' times from when they ended; none if the lines cannot be those of tests begun in order.
fn durations((begun, count): (f64, usize), ended: &[(String, f64)], threads: usize) -> Vec<(String, f64)> {
    let mut order: Vec<_> = (0..ended.len()).collect();
    order.sort_by_key(|&line| &ended[line].0);
    // A test cannot have ended before the one that made room for it.
    let fits = |(k, &line): (usize, &usize)| k < line + threads;
    if ended.len() != count || !order.iter().enumerate().all(fits) {
        return Vec::new();
    }
    let start = |k: usize| k.checked_sub(threads).map_or(begun, |end| ended[end].1);
    let time = |(k, line): (usize, usize)| (ended[line].0.clone(), ended[line].1 - start(k));
    order.into_iter().enumerate().map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(f64, &str)], threads: usize) -> (Total, Times) {
        let (mut total, mut times) = (Total::default(), Times::default());
        let mut output = Output {
            names: HashMap::from([("a-12".to_string(), "kiln-a --test a".to_string())]),
            label: "seed 7: ",
            threads,
            total: &mut total,
            times: &mut times,
            open: None,
        };
        for (now, text) in lines {
            output.line(text, *now);
        }
        output.end(lines[lines.len() - 1].0);
        (total, times)
    }

    #[test]
    fn result_lines_add_up() {
        let (total, times) = read(
            &[
                (
                    0.0,
                    "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s",
                ),
                (
                    0.0,
                    "test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.0s",
                ),
            ],
            1,
        );
        let expected = Total {
            passed: 5,
            failed: 4,
            skipped: 1,
            failures: Vec::new(),
        };
        assert_eq!(total, expected);
        assert!(times.suites.is_empty() && times.tests.is_empty());
    }

    const SUITE: [(f64, &str); 9] = [
        (1.0, "     Running tests/a.rs (target/debug/deps/a-12)"),
        (2.0, ""),
        (2.0, "running 4 tests"),
        // `b` and `a` run; `c` begins after `b`, `d` after `a`.
        (3.0, "test b - should panic ... ok"),
        (5.0, "test a ... ok"),
        (5.5, "test c has been running for over 60 seconds"),
        (6.0, "test d ... ignored, not here"),
        (9.0, "test c ... FAILED"),
        (
            9.5,
            "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 7.0s",
        ),
    ];

    #[test]
    fn a_test_begins_when_one_before_it_ends() {
        let doc = [(10.0, "   Doc-tests kiln_a"), (12.0, "running 0 tests")];
        let (_, times) = read(&[&SUITE[..], &doc[..]].concat(), 2);
        let suite = |name: &str, tests, seconds| Suite {
            name: format!("seed 7: {name}"),
            tests,
            seconds,
        };
        assert_eq!(
            times.suites,
            [suite("kiln-a --test a", 4, 9.0), suite("kiln_a --doc", 0, 2.0)]
        );
        let test = |name: &str, seconds| (format!("seed 7: kiln-a --test a {name}"), seconds);
        assert_eq!(
            times.tests,
            [test("a", 3.0), test("b", 1.0), test("c", 6.0), test("d", 1.0)]
        );
    }

    #[test]
    fn failures_are_named_with_what_they_wrote() {
        let (total, _) = read(
            &[
                (1.0, "     Running tests/a.rs (target/debug/deps/a-12)"),
                (1.0, "running 3 tests"),
                (2.0, "test silent ... FAILED"),
                // Torn by a line of another writer.
                (2.0, "hello test b - should panic ... FAILED"),
                (2.0, "test fine ... ok"),
                (3.0, "failures:"),
                (3.0, ""),
                (3.0, "---- b stdout ----"),
                (3.0, "what it wrote before"),
                (3.0, "thread 'b' panicked at a.rs:1:2:"),
                (3.0, "one"),
                (3.0, ""),
                (3.0, "failures:"),
                (3.0, "    b"),
                (3.0, "    silent"),
                (
                    3.0,
                    "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
                ),
            ],
            1,
        );
        let failure = |test: &str, wrote: &[&str]| Failure {
            test: format!("seed 7: kiln-a --test a {test}"),
            wrote: wrote.iter().map(|line| line.to_string()).collect(),
        };
        let wrote = ["thread 'b' panicked at a.rs:1:2:", "one"];
        assert_eq!(total.failures, [failure("silent", &[]), failure("b", &wrote)]);
        let shown = "FAILED: seed 7: kiln-a --test a b\n  thread 'b' panicked at a.rs:1:2:\n  one";
        assert_eq!(total.failures[1].to_string(), shown);
    }

    #[test]
    fn lines_that_do_not_fit_give_no_times() {
        // A line that another one was mixed into.
        let mut torn = SUITE;
        torn[4].1 = "hello test a ... ok";
        // With one thread `a` comes before `b`.
        for (lines, threads) in [(torn, 2), (SUITE, 1)] {
            let (_, times) = read(&lines, threads);
            assert!(times.tests.is_empty() && times.suites.len() == 1, "{times:?}");
        }
    }
}
