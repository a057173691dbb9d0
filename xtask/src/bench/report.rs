//! The table, and the same as JSON.

use super::Times;
use super::peers::Peer;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// One bench: seconds of Kiln and of the peer, where each has it.
pub(super) struct Row {
    id: String,
    kiln: Option<f64>,
    peer: Option<f64>,
}

impl Row {
    /// Kiln's time over the peer's: below 1 Kiln is faster.
    fn ratio(&self) -> Option<f64> {
        Some(self.kiln? / self.peer?)
    }
}

pub(super) struct Report {
    threads: usize,
    quick: bool,
    peer: Option<String>,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(threads: usize, quick: bool, kiln: Times, peer: Option<Peer>) -> Self {
        let empty = Times::new();
        let others = peer.as_ref().map_or(&empty, |p| &p.times);
        let ids: BTreeSet<&String> = kiln.keys().chain(others.keys()).collect();
        let row = |id: &String| Row {
            id: id.clone(),
            kiln: kiln.get(id).copied(),
            peer: others.get(id).copied(),
        };
        Report {
            threads,
            quick,
            rows: ids.into_iter().map(row).collect(),
            peer: peer.map(|p| p.name),
        }
    }

    pub(super) fn json(&self) -> Value {
        let row = |r: &Row| json!({ "id": r.id, "kiln": r.kiln, "peer": r.peer, "ratio": r.ratio() });
        json!({
            "unit": "seconds, median of the samples",
            "machine": {
                "cpu": cpu(),
                "arch": std::env::consts::ARCH,
                "os": std::env::consts::OS,
                "cores": std::thread::available_parallelism().map_or(1, usize::from),
            },
            "threads": self.threads,
            "quick": self.quick,
            "kiln": env!("CARGO_PKG_VERSION"),
            "peer": self.peer,
            "benches": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.threads == 1 { "" } else { "s" };
        let quick = if self.quick { ", quick samples" } else { "" };
        writeln!(f, "{}, {} thread{plural}, median times{quick}", cpu(), self.threads)?;
        match &self.peer {
            Some(peer) => writeln!(f, "{:<32} {:>10} {peer:>20} {:>8}", "bench", "kiln", "ratio")?,
            None => writeln!(f, "{:<32} {:>10}", "bench", "kiln")?,
        }
        let cell = |t: Option<f64>| t.map_or("-".to_string(), time);
        for row in &self.rows {
            write!(f, "{:<32} {:>10}", row.id, cell(row.kiln))?;
            if self.peer.is_some() {
                let ratio = row.ratio().map_or("-".to_string(), |r| format!("{r:.2}x"));
                write!(f, " {:>20} {ratio:>8}", cell(row.peer))?;
            }
            writeln!(f)?;
        }
        if self.peer.is_some() {
            writeln!(f, "ratio: Kiln's time over the peer's; below 1 Kiln is faster")?;
        }
        Ok(())
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

/// What the processor calls itself, where the system says.
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
    fn rows_join_by_id() {
        let kiln = Times::from([("a".to_string(), 1.0), ("b".to_string(), 2.0)]);
        let peer = Peer {
            name: "torch".into(),
            times: Times::from([("b".to_string(), 4.0), ("c".to_string(), 1.0)]),
        };
        let report = Report::new(2, false, kiln, Some(peer));
        let ratios: Vec<_> = report.rows.iter().map(Row::ratio).collect();
        assert_eq!(ratios, [None, Some(0.5), None]);
        assert_eq!(report.json()["benches"][1]["ratio"], 0.5);
        assert!(report.to_string().contains("0.50x"), "{report}");
    }
}
