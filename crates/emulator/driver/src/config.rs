//! Options, from environment variables, read once.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt};

/// The time at which work on streams is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In the call that issues it.
    Eager,
    /// Once something waits for it; only the work that the wait needs is done.
    Lazy,
    /// Once something waits, in an order that the seed chooses among all that streams and events allow.
    Random(u64),
}

/// The options.
#[derive(Clone, Debug)]
pub struct Config {
    /// `KILN_EMULATOR_DEVICES`: the number of devices.
    pub devices: u32,
    /// `KILN_EMULATOR_CHECK`: true if the checker watches kernels.
    pub check: bool,
    /// `KILN_EMULATOR_EXECUTE`: false if kernels, fills and copies are accepted and not done, so that a step of any size takes
    /// the time of its calls alone. What the host reads back is zero.
    pub execute: bool,
    /// `KILN_EMULATOR_SKIP`: kernels with this in their name are accepted and not done, as on a device that computes wrongly. For tests
    /// of what is to notice it.
    pub skip: Option<String>,
    /// `KILN_EMULATOR_TRACE`: a file that gets a line of JSON for each kernel, copy, fill, allocation and freeing.
    pub trace: Option<PathBuf>,
    /// `KILN_EMULATOR_COUNTERS`: a file that gets a line of JSON for each launch, with what it asked of memory.
    pub counters: Option<PathBuf>,
    /// `KILN_EMULATOR_CHECK=report`: races and uninitialised reads are reported and counted, and are no errors of the context.
    pub go_on: bool,
    /// `KILN_EMULATOR_STREAMS`: the time at which work is done.
    pub order: Order,
    /// `KILN_EMULATOR_MEMORY`: bytes on each device.
    pub memory: u64,
    /// `KILN_EMULATOR_SM`: the compute capability, ten times.
    pub sm: u32,
    /// `KILN_EMULATOR_MULTIPROCESSORS`: how many the device says it has, by which programs choose kernels and grids.
    pub multiprocessors: u32,
    /// `KILN_EMULATOR_WATCHDOG`: the time that a launch may go on without the end of a block.
    pub watchdog: Option<Duration>,
    /// `KILN_EMULATOR_LOG`: the file that messages go to instead of stderr.
    pub log: Option<PathBuf>,
    /// `KILN_EMULATOR_FINDINGS`: a file that findings also go to, a line each.
    pub findings: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            check: false,
            execute: true,
            skip: None,
            trace: None,
            counters: None,
            go_on: false,
            order: Order::Eager,
            memory: 4 << 30,
            sm: 80,
            multiprocessors: 108,
            watchdog: Some(Duration::from_secs(600)),
            log: None,
            findings: None,
        }
    }
}

impl Config {
    /// The options in the environment, and a line for each variable that cannot be read.
    pub fn from_env() -> (Self, Vec<String>) {
        Self::from(|name| env::var(name).ok().filter(|v| !v.is_empty()))
    }

    fn from(var: impl Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut config = Self::default();
        let mut wrong = Vec::new();
        let mut read = |name: &str, wants: &str, set: &mut dyn FnMut(&str) -> Option<()>| {
            if let Some(text) = var(name)
                && set(text.trim()).is_none()
            {
                wrong.push(format!("{name} is `{text}`: {wants}"));
            }
        };
        let c = &mut config;
        read("KILN_EMULATOR_DEVICES", "a number of devices from 0 to 64", &mut |t| {
            c.devices = t.parse().ok().filter(|n| *n <= 64)?;
            Some(())
        });
        read("KILN_EMULATOR_CHECK", "0, 1 or report", &mut |t| {
            (c.check, c.go_on) = match t {
                "0" => (false, false),
                "1" => (true, false),
                "report" => (true, true),
                _ => return None,
            };
            Some(())
        });
        read("KILN_EMULATOR_EXECUTE", "0 or 1", &mut |t| {
            c.execute = match t {
                "0" => false,
                "1" => true,
                _ => return None,
            };
            Some(())
        });
        read("KILN_EMULATOR_STREAMS", "eager, lazy or random:SEED", &mut |t| {
            c.order = match t {
                "eager" => Order::Eager,
                "lazy" => Order::Lazy,
                _ => Order::Random(t.strip_prefix("random:")?.parse().ok()?),
            };
            Some(())
        });
        read("KILN_EMULATOR_MEMORY", "bytes for each device", &mut |t| {
            c.memory = t.parse().ok()?;
            Some(())
        });
        read(
            "KILN_EMULATOR_SM",
            "a compute capability from 50 to 129, as 80 for 8.0",
            &mut |t| {
                c.sm = t.parse().ok().filter(|n| (50..130).contains(n))?;
                Some(())
            },
        );
        read("KILN_EMULATOR_MULTIPROCESSORS", "a number from 1 to 1024", &mut |t| {
            c.multiprocessors = t.parse().ok().filter(|n| (1..=1024).contains(n))?;
            Some(())
        });
        read("KILN_EMULATOR_WATCHDOG", "seconds, or 0 for no limit", &mut |t| {
            let seconds = Duration::try_from_secs_f64(t.parse().ok()?).ok()?;
            c.watchdog = Some(seconds).filter(|s| !s.is_zero());
            Some(())
        });
        c.skip = var("KILN_EMULATOR_SKIP");
        c.log = var("KILN_EMULATOR_LOG").map(PathBuf::from);
        c.findings = var("KILN_EMULATOR_FINDINGS").map(PathBuf::from);
        c.trace = var("KILN_EMULATOR_TRACE").map(PathBuf::from);
        c.counters = var("KILN_EMULATOR_COUNTERS").map(PathBuf::from);
        (config, wrong)
    }

    /// Writes one line to the log.
    pub fn say(&self, line: impl fmt::Display) {
        let line = format!("kiln-emulator: {line}\n");
        if !self.log.as_ref().is_some_and(|path| append(path, &line)) {
            // When stderr is closed, the line is lost.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// Makes the file for findings where the checker is on: one that stays empty says that it watched and found nothing.
    pub fn begin_findings(&self) {
        if let Some(path) = self.findings.as_ref().filter(|_| self.check)
            && !append(path, "")
        {
            self.say(format_args!("cannot write {}, which is for findings", path.display()));
        }
    }

    /// Writes a finding to the log, and as one line to the file for findings.
    pub fn finding(&self, finding: impl fmt::Display) {
        let text = finding.to_string();
        if let Some(path) = &self.findings
            && !append(path, &(text.replace('\n', " ") + "\n"))
        {
            self.say(format_args!("cannot write the next finding to {}", path.display()));
        }
        self.say(text);
    }
}

/// Appends `line` in one write, so that processes can share the file; true if that could be done.
fn append(path: &Path, line: &str) -> bool {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut f| f.write_all(line.as_bytes())).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> (Config, Vec<String>) {
        Config::from(|n| (n == name).then(|| value.to_string()))
    }

    #[test]
    fn variables_are_read() {
        assert_eq!(with("KILN_EMULATOR_DEVICES", "3").0.devices, 3);
        assert_eq!(with("KILN_EMULATOR_STREAMS", "random:17").0.order, Order::Random(17));
        assert_eq!(with("KILN_EMULATOR_STREAMS", "lazy").0.order, Order::Lazy);
        assert_eq!(with("KILN_EMULATOR_MEMORY", "1048576").0.memory, 1 << 20);
        let check = |value| with("KILN_EMULATOR_CHECK", value).0;
        assert!(check("1").check && !check("1").go_on && check("report").check && check("report").go_on);
        assert_eq!(with("KILN_EMULATOR_SM", "90").0.sm, 90);
        assert_eq!(with("KILN_EMULATOR_MULTIPROCESSORS", "132").0.multiprocessors, 132);
        let execute = |value| with("KILN_EMULATOR_EXECUTE", value).0.execute;
        assert!(!execute("0") && execute("1") && Config::default().execute);
        assert_eq!(
            with("KILN_EMULATOR_SKIP", "softmax").0.skip,
            Some("softmax".to_string())
        );
        assert_eq!(
            with("KILN_EMULATOR_TRACE", "/tmp/t").0.trace,
            Some(PathBuf::from("/tmp/t"))
        );
        let counters = with("KILN_EMULATOR_COUNTERS", "/tmp/c").0.counters;
        assert_eq!(counters, Some(PathBuf::from("/tmp/c")));
        let watchdog = |t| with("KILN_EMULATOR_WATCHDOG", t).0.watchdog;
        assert_eq!(
            (watchdog("1.5"), watchdog("0")),
            (Some(Duration::from_millis(1500)), None)
        );
    }

    #[test]
    fn findings_are_a_line_each_in_their_file() {
        let file = std::env::temp_dir().join(format!("kiln-emulator-findings-{}", std::process::id()));
        let config = Config {
            log: Some(PathBuf::from("/dev/null")),
            findings: Some(file.clone()),
            ..Config::default()
        };
        config.begin_findings();
        assert!(!file.exists(), "nothing is watched");
        let checked = Config {
            check: true,
            ..config.clone()
        };
        checked.begin_findings();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
        config.finding("a race");
        config.say("no finding");
        config.finding("two\nlines");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(text, "a race\ntwo lines\n");
        let named = with("KILN_EMULATOR_FINDINGS", "/tmp/f").0.findings;
        assert_eq!(named, Some(PathBuf::from("/tmp/f")));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (name, value) in [
            ("KILN_EMULATOR_DEVICES", "-1"),
            ("KILN_EMULATOR_DEVICES", "65"),
            ("KILN_EMULATOR_CHECK", "yes"),
            ("KILN_EMULATOR_EXECUTE", "no"),
            ("KILN_EMULATOR_STREAMS", "random"),
            ("KILN_EMULATOR_STREAMS", "random:x"),
            ("KILN_EMULATOR_MEMORY", "4G"),
            ("KILN_EMULATOR_SM", "8.0"),
            ("KILN_EMULATOR_MULTIPROCESSORS", "0"),
            ("KILN_EMULATOR_WATCHDOG", "-1"),
            ("KILN_EMULATOR_WATCHDOG", "soon"),
        ] {
            let (_, wrong) = with(name, value);
            assert!(wrong.len() == 1 && wrong[0].starts_with(name), "{wrong:?}");
        }
    }
}
