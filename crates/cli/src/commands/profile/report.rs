//! The output of a profile: a table for the terminal, a Markdown table, or JSON.

use crate::output::{bytes, line, operations, table, thousands};
use kiln_core::Cost;
use kiln_profile::{Rates, Row, Share};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The parts of a step that have no gradient: their time is neither forward nor backward.
const ONE_WAY: [&str; 4] = ["input", "backward", "optimizer", "step"];

/// The results of a profile.
pub(crate) struct Report {
    /// Model, batch, device.
    pub(crate) description: Vec<(&'static str, String)>,
    pub(crate) batch: u64,
    pub(crate) steps: u64,
    pub(crate) parameters: u64,
    pub(crate) rates: Rates,
    /// The rows, by falling gap between time and least time.
    pub(crate) rows: Vec<Row>,
    /// Seconds of a step: `watched` with profiling, `unwatched` without.
    pub(crate) watched: f64,
    pub(crate) unwatched: f64,
    /// The names of the updates of a step, if there are several.
    pub(crate) phases: Vec<&'static str>,
    /// The word for a sample: `image`, `sequence`.
    pub(crate) sample: &'static str,
}

fn millis(seconds: f64) -> String {
    format!("{:.3}", 1000.0 * seconds)
}

/// The ratio of a time to its floor; `-` for a floor that is shown as zero.
fn ratio(seconds: f64, floor: f64) -> String {
    match floor >= 0.5e-6 {
        true => format!("{:.1}", seconds / floor),
        false => "-".to_string(),
    }
}

fn rate(per_second: f64, unit: &str) -> String {
    format!("{:.1} {unit}", per_second * 1e-9)
}

const HEADER: [&str; 12] = [
    "layer", "output", "calls", "forward", "backward", "time", "share", "FLOPs", "bytes", "floor", "x floor", "gap",
];

fn cells(row: &Row, label: String, step: f64) -> Vec<String> {
    let one_way = !row.is_layer() && ONE_WAY.contains(&row.name.as_str());
    let way = |share: &Share| match one_way {
        true => String::new(),
        false => millis(share.seconds),
    };
    let cost = row.cost();
    vec![
        label,
        row.output.map_or(String::new(), |s| format!("{:?}", s.dims())),
        row.calls.to_string(),
        way(&row.forward),
        way(&row.backward),
        millis(row.seconds()),
        format!("{:.1} %", 100.0 * row.seconds() / step),
        operations(cost.flops),
        bytes(cost.bytes),
        millis(row.floor()),
        ratio(row.seconds(), row.floor()),
        millis(row.gap()),
    ]
}

/// The algorithms of each op, as JSON.
fn by_op(algorithms: &[(&str, &str)]) -> Map<String, Value> {
    let mut ops = BTreeMap::<&str, Vec<&str>>::new();
    for (op, algorithm) in algorithms {
        ops.entry(op).or_default().push(algorithm);
    }
    ops.into_iter()
        .map(|(op, a)| (op.to_string(), json!(a.join(", "))))
        .collect()
}

/// The columns of the table of algorithms.
const ALGORITHMS: [&str; 2] = ["layer", "algorithms of its products and convolutions"];

impl Report {
    /// The update that a row belongs to, if a step has several; empty if none.
    fn phase(&self, row: &Row) -> &'static str {
        let of = |name: &str| self.phases.iter().find(|phase| **phase == name);
        of(&row.inside).copied().unwrap_or_default()
    }

    /// The label of a row: `conv1 (Conv2d)`, or `(optimizer)` for a part of the step; of several updates `generator/fc1 (Linear)` and
    /// `(generator/optimizer)`.
    pub(crate) fn label(&self, row: &Row) -> String {
        let phase = match self.phase(row) {
            "" => String::new(),
            phase => format!("{phase}/"),
        };
        match row.is_layer() {
            true => format!("{phase}{} ({})", row.name, row.kind),
            false => format!("({phase}{})", row.name),
        }
    }

    fn sum(&self, of: impl Fn(&Row) -> f64) -> f64 {
        self.rows.iter().map(of).sum()
    }

    fn total(&self) -> Vec<String> {
        let cost: Cost = self.rows.iter().map(Row::cost).sum();
        let seconds = self.sum(Row::seconds);
        vec![
            "sum of all rows".to_string(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            millis(seconds),
            format!("{:.1} %", 100.0 * seconds / self.watched),
            operations(cost.flops),
            bytes(cost.bytes),
            millis(self.sum(Row::floor)),
            ratio(seconds, self.sum(Row::floor)),
            millis(self.sum(Row::gap)),
        ]
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let rows = self.rows.iter().map(|r| cells(r, self.label(r), self.watched));
        rows.chain([self.total()]).collect()
    }

    fn title(&self) -> String {
        let description: Vec<&str> = self.description.iter().map(|(_, text)| text.as_str()).collect();
        format!("{} ({} parameters)", description.join(", "), thousands(self.parameters))
    }

    fn floors(&self) -> String {
        let (largest, slow) = self.rates.largest();
        let fast = self.rates.memory.iter().map(|m| m.1).fold(0.0, f64::max);
        format!(
            "floors: {} ({}), {} over {}, up to {} where it fits a cache ({})",
            rate(self.rates.flops, "GFLOP/s"),
            self.rates.how,
            rate(slow, "GB/s"),
            bytes(largest as u64),
            rate(fast, "GB/s"),
            self.rates.moved,
        )
    }

    fn summary(&self) -> Vec<String> {
        let sum = self.sum(Row::seconds);
        let rest = self.watched - sum;
        let in_ops = self.sum(|r| r.forward.in_ops + r.backward.in_ops);
        let per_second = self.batch as f64 / self.unwatched;
        vec![
            format!(
                "step: {} ms, the median of {}; the medians of the rows add up to {} ms, which leaves {} ms ({:.1} %) unaccounted for",
                millis(self.watched),
                self.steps,
                millis(sum),
                millis(rest),
                100.0 * rest / self.watched,
            ),
            format!(
                "of that {} ms are spent inside of ops and {} ms by the host between them",
                millis(in_ops),
                millis(sum - in_ops),
            ),
            format!(
                "unwatched: {} ms, {:.0} {}s/s; the floors add up to {} ms, the step takes {} times that",
                millis(self.unwatched),
                per_second,
                self.sample,
                millis(self.sum(Row::floor)),
                ratio(self.unwatched, self.sum(Row::floor)),
            ),
        ]
    }

    /// A row for each layer with products or convolutions, in the order of the table: the layer, and its ops with their
    /// algorithms.
    fn algorithms(&self) -> Vec<Vec<String>> {
        let row = |r: &Row| {
            let ops = r.algorithms.iter().map(|(op, algorithm)| format!("{op}: {algorithm}"));
            vec![self.label(r), ops.collect::<Vec<_>>().join(", ")]
        };
        self.rows.iter().filter(|r| !r.algorithms.is_empty()).map(row).collect()
    }

    /// Prints the profile as a table for the terminal.
    pub(crate) fn print(&self) {
        line(&self.title());
        line(&self.floors());
        line("times in milliseconds, medians; sorted by gap = time - floor");
        line("");
        line(&table(&HEADER, &self.rows()));
        line("");
        let algorithms = self.algorithms();
        if !algorithms.is_empty() {
            line(&table(&ALGORITHMS, &algorithms));
            line("");
        }
        self.summary().iter().for_each(|text| line(text));
    }

    /// Prints the profile as a Markdown table.
    pub(crate) fn print_markdown(&self) {
        let row = |cells: &[String]| format!("| {} |", cells.join(" | "));
        line(&format!("**{}**", self.title()));
        line("");
        line(&row(&HEADER.map(String::from)));
        line(&format!("|---|---|{}", "---:|".repeat(HEADER.len() - 2)));
        self.rows().iter().for_each(|cells| line(&row(cells)));
        line("");
        line(&format!("- {}", self.floors()));
        self.summary().iter().for_each(|text| line(&format!("- {text}")));
    }

    /// The profile as JSON, with times in seconds.
    pub(crate) fn json(&self) -> Value {
        let share = |s: &Share| {
            json!({
                "seconds": s.seconds,
                "seconds_in_ops": s.in_ops,
                "ops": s.ops,
                "flops": s.cost.flops,
                "bytes": s.cost.bytes,
                "floor_seconds": s.floor,
            })
        };
        let row = |r: &Row| {
            json!({
                "name": r.name,
                "phase": Some(self.phase(r)).filter(|phase| !phase.is_empty()),
                "kind": r.kind,
                "layer": r.is_layer(),
                "input": r.input.map(|s| s.dims().to_vec()),
                "output": r.output.map(|s| s.dims().to_vec()),
                "calls": r.calls,
                "forward": share(&r.forward),
                "backward": share(&r.backward),
                "seconds": r.seconds(),
                "floor_seconds": r.floor(),
                "gap_seconds": r.gap(),
                "algorithms": by_op(&r.algorithms),
            })
        };
        let cost: Cost = self.rows.iter().map(Row::cost).sum();
        let mut all = json!({
            "steps": self.steps,
            "batch": self.batch,
            "parameters": self.parameters,
            "machine": measured(&self.rates),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "flops": cost.flops,
            "bytes": cost.bytes,
            "sum_seconds": self.sum(Row::seconds),
            "floor_seconds": self.sum(Row::floor),
            "step_seconds": self.watched,
            "unwatched_step_seconds": self.unwatched,
            "samples_per_second": self.batch as f64 / self.unwatched,
        });
        for (name, text) in self.description.iter().filter(|(name, _)| *name != "batch") {
            all[*name] = text.as_str().into();
        }
        all
    }
}

/// The rates that floors are computed from, as JSON.
fn measured(rates: &Rates) -> Value {
    let memory = rates.memory.iter();
    json!({
        "flops_per_second": rates.flops,
        "flops_measured_by": rates.how,
        "bytes_measured_by": rates.moved,
        "memory": memory.map(|(size, rate)| json!({ "bytes": size, "bytes_per_second": rate })).collect::<Vec<_>>(),
    })
}
