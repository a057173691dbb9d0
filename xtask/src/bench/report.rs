//! The report, as a table and as JSON.

use super::framework::Framework;
use super::rounds::Ratio;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// The quantity of an entry; less is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Measure {
    Seconds,
    Bytes,
}

/// One row: Kiln's number, the peers' numbers, and the ratio of the best peer's number to Kiln's.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) measure: Measure,
    pub(super) kiln: Option<f64>,
    /// Every setting of every peer that was measured.
    pub(super) peers: Vec<(Framework, String, f64)>,
    pub(super) best: Option<(Framework, String)>,
    pub(super) ratio: Option<Ratio>,
    /// In mixed precision: Kiln's time in f32 divided by the row's.
    pub(super) single: Option<Ratio>,
    /// The work of one repetition, in images or FLOP.
    pub(super) per_repetition: Option<(f64, &'static str)>,
    /// Kiln's share of the peak rate, and the peak rate per second.
    pub(super) of_peak: Option<(f64, f64)>,
    /// Kiln's losses of twenty steps. `apart` has the difference of each peer's from them.
    pub(super) losses: Vec<f64>,
    pub(super) apart: Vec<(String, f64)>,
    pub(super) notes: Vec<String>,
}

impl Entry {
    pub(super) fn new(id: &str) -> Entry {
        Entry {
            id: id.to_string(),
            measure: Measure::Seconds,
            kiln: None,
            peers: Vec::new(),
            best: None,
            ratio: None,
            single: None,
            per_repetition: None,
            of_peak: None,
            losses: Vec::new(),
            apart: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn add_peer(&mut self, who: Framework, setting: &str, value: f64) {
        self.peers.push((who, setting.to_string(), value));
    }

    /// The least number of a peer over its settings.
    fn least(&self, who: Framework) -> Option<f64> {
        let own = self.peers.iter().filter(|(w, ..)| *w == who).map(|&(.., v)| v);
        own.min_by(f64::total_cmp)
    }

    fn show(&self, value: f64) -> String {
        match self.measure {
            Measure::Seconds => time(value),
            Measure::Bytes => format!("{:.1} MB", value * 1e-6),
        }
    }

    /// The work per second, in images or FLOP.
    fn rate(&self, seconds: f64) -> Option<String> {
        let (amount, unit) = self.per_repetition?;
        let rate = amount / seconds;
        Some(match unit {
            "FLOP" => format!("{:.1} GFLOP/s", rate * 1e-9),
            _ if rate < 100.0 => format!("{rate:.1} {unit}/s"),
            _ => format!("{rate:.0} {unit}/s"),
        })
    }

    /// The row in words, printed when it has been measured.
    pub(super) fn line(&self) -> String {
        let Some(kiln) = self.kiln else {
            return "not measured".into();
        };
        let mut parts = vec![format!("kiln {}", self.show(kiln))];
        for (who, setting, value) in &self.peers {
            let space = if setting.is_empty() { "" } else { " " };
            parts.push(format!("{}{space}{setting} {}", who.label(), self.show(*value)));
        }
        if let Some(ratio) = self.ratio {
            parts.push(format!("{:.2}x ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high));
        }
        if let Some(single) = self.single {
            let Ratio { median, low, high } = single;
            parts.push(format!("{median:.2}x as fast as in f32 ({low:.2} to {high:.2})"));
        }
        parts.join(", ")
    }

    fn json(&self) -> Value {
        let of = |r: Ratio| json!({ "median": r.median, "low": r.low, "high": r.high });
        let mut peers = Map::new();
        for (who, setting, value) in &self.peers {
            let own = peers.entry(who.label()).or_insert_with(|| json!({}));
            own[if setting.is_empty() { "default" } else { setting }] = json!(value);
        }
        let apart: BTreeMap<_, _> = self.apart.iter().cloned().collect();
        json!({
            "id": self.id,
            "unit": match self.measure { Measure::Seconds => "seconds", Measure::Bytes => "bytes" },
            "kiln": self.kiln,
            "peers": peers,
            "best": self.best.as_ref().map(|(who, setting)| format!("{} {setting}", who.label()).trim().to_string()),
            "ratio": self.ratio.map(of),
            "over_f32": self.single.map(of),
            "repetition": self.per_repetition.map(|(amount, unit)| json!({ "amount": amount, "unit": unit })),
            "share_of_peak": self.of_peak.map(|(share, _)| share),
            "peak_flops": self.of_peak.map(|(_, peak)| peak),
            "losses": self.losses,
            "loss_differences": apart,
            "notes": self.notes,
        })
    }
}

/// Everything that was measured.
pub(super) struct Report {
    pub(super) threads: usize,
    pub(super) quick: bool,
    /// Names and versions of the frameworks.
    pub(super) names: BTreeMap<Framework, String>,
    pub(super) entries: Vec<Entry>,
}

impl Report {
    pub(super) fn json(&self) -> Value {
        let names: Map<_, _> = self
            .names
            .iter()
            .map(|(w, n)| (w.label().to_string(), json!(n)))
            .collect();
        json!({
            "machine": {
                "cpu": cpu(),
                "arch": std::env::consts::ARCH,
                "os": std::env::consts::OS,
                "cores": std::thread::available_parallelism().map_or(1, usize::from),
            },
            "threads": self.threads,
            "quick": self.quick,
            "kiln": env!("CARGO_PKG_VERSION"),
            "names": names,
            "ratio": "how many times as good as the best peer: median, least and most of the rounds",
            "benches": self.entries.iter().map(Entry::json).collect::<Vec<_>>(),
        })
    }

    /// The peers that have a number in any row.
    fn columns(&self) -> Vec<Framework> {
        let all = [
            Framework::Torch,
            Framework::TensorFlow,
            Framework::Jax,
            Framework::NumPy,
            Framework::Candle,
        ];
        let measured = |&who: &Framework| self.entries.iter().any(|e| e.least(who).is_some());
        all.into_iter().filter(measured).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.threads == 1 { "" } else { "s" };
        let quick = if self.quick { ", quick" } else { "" };
        writeln!(f, "{}, {} thread{plural}{quick}", cpu(), self.threads)?;
        for name in self.names.values() {
            writeln!(f, "  {name}")?;
        }
        let columns = self.columns();
        write!(f, "{:<34} {:>9}", "bench", "kiln")?;
        for who in &columns {
            write!(f, " {:>10}", who.label())?;
        }
        writeln!(
            f,
            "  {:>6} {:>13}  {:<22} kiln's rate",
            "ratio", "least to most", "best peer"
        )?;
        for entry in &self.entries {
            let cell = |v: Option<f64>| v.map_or("-".to_string(), |v| entry.show(v));
            write!(f, "{:<34} {:>9}", entry.id, cell(entry.kiln))?;
            for &who in &columns {
                write!(f, " {:>10}", cell(entry.least(who)))?;
            }
            let (ratio, spread) = match entry.ratio {
                Some(r) => (format!("{:.2}x", r.median), format!("{:.2} to {:.2}", r.low, r.high)),
                None => ("-".into(), String::new()),
            };
            let best = entry.best.as_ref().map_or(String::new(), |(who, setting)| {
                format!("{} {setting}", who.label()).trim().to_string()
            });
            let rate = entry.kiln.and_then(|s| entry.rate(s)).unwrap_or_default();
            let peak = entry.of_peak.map_or(String::new(), |(share, peak)| {
                format!(", {:.0} % of {:.0}", 100.0 * share, peak * 1e-9)
            });
            let single = entry
                .single
                .map_or(String::new(), |r| format!(", {:.2}x f32", r.median));
            let line = format!("  {ratio:>6} {spread:>13}  {best:<22} {rate}{peak}{single}");
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(
            f,
            "a peer's time is that of its best setting; ratio: how many times as fast Kiln is as the best peer (or"
        )?;
        writeln!(
            f,
            "how many times less memory it takes), the median of rounds in which everyone has a turn"
        )
    }
}

/// A time with three significant digits and its unit.
pub(super) fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "us"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// The name of the processor, if the system has it.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(
        || std::env::consts::ARCH.to_string(),
        |(_, name)| name.trim().to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let cases = [
            (4.39e-5, "43.9 us"),
            (2.7e-3, "2.70 ms"),
            (0.1234, "123 ms"),
            (1.5, "1.50 s"),
            (9e-9, "9.00 ns"),
        ];
        for (seconds, text) in cases {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn a_row_shows_the_best_of_each_peer() {
        let mut entry = Entry::new("net/lenet-b4/train");
        (entry.kiln, entry.per_repetition) = (Some(0.002), Some((4.0, "images")));
        entry.add_peer(Framework::Torch, "eager-nchw", 0.008);
        entry.add_peer(Framework::Torch, "compile-nchw", 0.005);
        entry.best = Some((Framework::Torch, "compile-nchw".into()));
        entry.ratio = Some(Ratio {
            median: 2.5,
            low: 2.25,
            high: 2.75,
        });
        let mut product = Entry::new("gemm/8x8x8/t1");
        (product.kiln, product.of_peak) = (Some(1e-6), Some((0.5, 2e9)));
        product.per_repetition = Some((1024.0, "FLOP"));
        let report = Report {
            threads: 2,
            quick: true,
            names: BTreeMap::from([(Framework::Torch, "torch 2".to_string())]),
            entries: vec![entry, product],
        };
        let text = report.to_string();
        for part in [
            "5.00 ms",
            "2.50x",
            "2.25 to 2.75",
            "torch compile-nchw",
            "2000 images/s",
            "50 % of 2",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("8.00 ms") && !text.contains("jax"), "{text}");
        let json = report.json();
        assert_eq!(json["benches"][0]["peers"]["torch"]["eager-nchw"], 0.008);
        assert_eq!(json["benches"][0]["ratio"]["median"], 2.5);
    }
}
