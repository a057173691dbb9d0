//! The time of a training step by layer.

use crate::commands::profile::Report;
use crate::html::{Tag, tag};

/// The part of the page.
pub(super) fn section(report: &Report) -> Tag {
    let step = report.watched.max(f64::MIN_POSITIVE);
    let head = [
        "layer",
        "output",
        "calls",
        "forward ms",
        "backward ms",
        "share of the step",
    ];
    let mut rows: Vec<_> = report.rows.iter().collect();
    rows.sort_by(|a, b| b.seconds().total_cmp(&a.seconds()));
    let cells = rows.iter().map(|row| {
        let name = report.label(row);
        let output = row.output.map_or(String::new(), |s| format!("{:?}", s.dims()));
        let millis = |seconds: f64| format!("{:.3}", 1000.0 * seconds);
        let share = 100.0 * row.seconds() / step;
        let bar = tag("div")
            .class("bar")
            .attr("style", format!("width:{:.1}%", share.clamp(0.0, 100.0)));
        tag("tr")
            .with(tag("th").attr("scope", "row").text(name))
            .with(tag("td").text(output))
            .with(tag("td").text(row.calls))
            .with(tag("td").text(millis(row.forward.seconds)))
            .with(tag("td").text(millis(row.backward.seconds)))
            .with(tag("td").class("share").with(bar).text(format!("{share:.1} %")))
    });
    let description: Vec<&str> = report.description.iter().map(|(_, text)| text.as_str()).collect();
    let about = format!(
        "{}: a step takes {:.2} ms, {:.0} {}s a second. Medians of made-up batches, the layers inside of a layer left out.",
        description.join(", "),
        1000.0 * report.unwatched,
        report.batch as f64 / report.unwatched,
        report.sample,
    );
    let head = head.map(|title| tag("th").attr("scope", "col").text(title));
    let table = tag("table")
        .with(tag("thead").with(tag("tr").each(head)))
        .with(tag("tbody").each(cells));
    tag("section")
        .attr("id", "layers")
        .with(tag("h2").text("Time by layer"))
        .with(tag("p").text(about))
        .with(tag("div").class("scroll").with(table))
}
