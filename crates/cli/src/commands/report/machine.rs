//! The bottleneck of the run, and how busy the machine was.

use crate::chart::{Chart, Series};
use crate::html::{Tag, tag};
use crate::machine::is_gpu;
use crate::output::{bytes, energy};
use crate::record::RunRecord;
use kiln_monitor::{Facts, of_run, verdict};
use kiln_train::EpochRecord;

/// A reading: its name, its title, and how its value is shown.
type Row = (&'static str, &'static str, fn(f64) -> String);

/// A line of a chart: its name, and its value in an epoch.
type Line<'a> = (&'a str, &'a dyn Fn(&EpochRecord) -> Option<f64>);

/// The readings of a run, by their names in the history: titles, and how their values are shown.
const ROWS: [Row; 18] = [
    ("cpu_utilisation", "processor busy", percent),
    ("process_cores", "processors kept busy by the run", |v| {
        format!("{v:.1}")
    }),
    ("process_memory_bytes", "memory of the run, at most", |v| {
        bytes(v as u64)
    }),
    ("memory_used_share", "memory in use by all programs, at most", percent),
    ("cpu_celsius", "processor, at most", celsius),
    ("cpu_watts", "power of the processor", watts),
    ("cpu_joules", "energy of the processor in training", energy),
    ("valid_cpu_joules", "and in validation", energy),
    ("gpu_utilisation", "GPU busy", percent),
    ("gpu_memory_bytes", "memory of the GPU in use, at most", |v| {
        bytes(v as u64)
    }),
    ("gpu_memory_used_share", "share of that memory, at most", percent),
    ("gpu_celsius", "GPU, at most", celsius),
    ("gpu_clock_mhz", "clock of the GPU", |v| format!("{v:.0} MHz")),
    ("gpu_watts", "power of the GPU", watts),
    ("gpu_joules", "energy of the GPU in training", energy),
    ("valid_gpu_joules", "and in validation", energy),
    ("joules", "energy of training, all", energy),
    ("valid_joules", "and of validation", energy),
];

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn celsius(degrees: f64) -> String {
    format!("{degrees:.0} °C")
}

fn watts(watts: f64) -> String {
    format!("{watts:.0} W")
}

/// A chart of values of each epoch; `None` if there are none.
fn chart(title: &str, epochs: &[EpochRecord], lines: &[Line<'_>]) -> Option<Tag> {
    let series = lines.iter().map(|(name, of)| Series {
        name: name.to_string(),
        points: epochs.iter().filter_map(|e| Some((e.epoch as f64, of(e)?))).collect(),
    });
    let series: Vec<Series> = series.filter(|s| !s.points.is_empty()).collect();
    let chart = Chart {
        title: title.to_string(),
        x: "epoch",
        log: false,
        series,
    };
    (!chart.series.is_empty()).then(|| chart.figure())
}

/// The part of the page.
pub(super) fn section(record: &RunRecord) -> Tag {
    let epochs = &record.epochs;
    let on_gpu = record.summary["environment"]["device"].as_str().is_some_and(is_gpu);
    let facts = Facts::of_run(epochs, on_gpu);
    let of = |name: &'static str, times: f64| move |e: &EpochRecord| e.machine.get(name).map(|v| times * v);
    let waits = |e: &EpochRecord| Some(100.0 * e.waiting_share());
    let shares = chart(
        "percent of the time",
        epochs,
        &[
            ("waiting for data", &waits),
            ("processor busy", &of("cpu_utilisation", 100.0)),
            ("GPU busy", &of("gpu_utilisation", 100.0)),
        ],
    );
    let power = chart(
        "watts",
        epochs,
        &[("processor", &of("cpu_watts", 1.0)), ("GPU", &of("gpu_watts", 1.0))],
    );
    let used = chart(
        "joules of an epoch",
        epochs,
        &[
            ("training", &of("joules", 1.0)),
            ("validation", &of("valid_joules", 1.0)),
        ],
    );
    let all = of_run(epochs);
    let known = ROWS
        .iter()
        .filter_map(|(name, title, show)| Some((*title, show(*all.get(*name)?))));
    let rows = std::iter::once(("waiting for data", percent(facts.waiting))).chain(known);
    let row = |(title, value): (&str, String)| {
        tag("tr")
            .with(tag("th").attr("scope", "row").text(title))
            .with(tag("td").text(value))
    };
    let table = tag("table").class("pairs").with(tag("tbody").each(rows.map(row)));
    let missing = record.summary["environment"]["not_measured"].as_array();
    let missing = missing.into_iter().flatten().filter_map(|why| why.as_str());
    let missing = missing.map(|why| tag("p").text(format!("Not measured: {why}.")));
    tag("section")
        .attr("id", "speed")
        .with(tag("h2").text("Speed"))
        .with(tag("p").text(format!("Over the run: {}.", verdict(&facts))))
        .with(
            tag("div")
                .class("curves")
                .each([shares, power, used].into_iter().flatten()),
        )
        .with(table)
        .each(missing)
}
