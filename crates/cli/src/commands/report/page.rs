//! The page of a run.

use super::layers;
use super::machine;
use super::measure::Measured;
use crate::chart::{Chart, Series, label};
use crate::config::{Settings, flat};
use crate::html::{Tag, tag};
use crate::output::{counted, rate, thousands};
use crate::record::{RunRecord, value};
use crate::shown;
use crate::weights;
use kiln_files::shown_path;
use kiln_train::{EpochRecord, Execution, RunFolder, Values};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const STYLE: &str = include_str!("style.css");

pub(super) struct Page<'a> {
    pub(super) folder: &'a Path,
    pub(super) record: &'a RunRecord,
    pub(super) settings: &'a Settings,
    pub(super) measured: Option<&'a Measured>,
}

/// A part of the page with a heading.
fn section(id: &str, title: &str) -> Tag {
    tag("section").attr("id", id).with(tag("h2").text(title))
}

/// A table of names and values.
fn pairs(rows: impl IntoIterator<Item = (String, String)>) -> Tag {
    let row = |(name, value)| {
        tag("tr")
            .with(tag("th").attr("scope", "row").text(name))
            .with(tag("td").text(value))
    };
    tag("table")
        .class("pairs")
        .with(tag("tbody").each(rows.into_iter().map(row)))
}

/// A value of JSON as a reader sees it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A time in words: `1.5 s`, `12 min`, `3.2 h`.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A measured value in a table.
fn number(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{value:.4}"),
        Some(_) => "not finite".to_string(),
        None => String::new(),
    }
}

impl Page<'_> {
    fn epochs(&self) -> &[EpochRecord] {
        &self.record.epochs
    }

    /// The names of the measured values: the loss first.
    fn names(&self) -> Vec<String> {
        let of = |e: &EpochRecord| -> Vec<String> {
            let valid = e.valid.iter().flat_map(|v| v.keys());
            e.train.keys().chain(valid).cloned().collect()
        };
        let mut names: Vec<String> = self
            .epochs()
            .iter()
            .flat_map(of)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        names.sort_by_key(|name| name != "loss");
        names
    }

    pub(super) fn html(&self) -> String {
        let title = format!("{}: {}", self.settings.model, shown_path(self.folder));
        let head = tag("head")
            .with(tag("meta").attr("charset", "utf-8"))
            .with(
                tag("meta")
                    .attr("name", "viewport")
                    .attr("content", "width=device-width, initial-scale=1"),
            )
            .with(tag("title").text(&title))
            // The style has no character that markup would change.
            .with(tag("style").text(STYLE));
        let mut body = tag("body")
            .with(self.header())
            .with(self.warnings())
            .with(self.curves())
            .with(self.table());
        if let Some(measured) = self.measured {
            if let Some(Ok(classes)) = &measured.classes {
                body = body.each(classes.sections());
            }
            if let Some(Ok(pictures)) = &measured.pictures {
                body = body.each(pictures.sections());
            }
            if let Ok(report) = &measured.layers {
                body = body.with(layers::section(report));
            }
        }
        let body = body
            .with(machine::section(self.record))
            .with(self.steps())
            .with(self.environment())
            .with(self.configuration());
        format!(
            "<!DOCTYPE html>\n{}\n",
            tag("html").attr("lang", "en").with(head).with(body)
        )
    }

    fn header(&self) -> Tag {
        // A page is made without the facts of a run whose configuration cannot be read.
        let facts = weights::facts(&self.folder.join(RunFolder::CONFIG)).unwrap_or_default();
        let card = self.settings.model.card_for(&facts);
        let best = self.record.best();
        let name = self.record.monitored();
        let form = card.values.iter().find(|shown| shown.name == name);
        let reached = best.and_then(|b| value(b, name)).map(|v| match form {
            Some(form) => shown::text(form, v),
            None => format!("{v:.4}"),
        });
        let seconds: f64 = self.epochs().iter().map(|e| e.seconds).sum();
        let samples: u64 = self.epochs().iter().map(|e| e.samples).sum();
        let last = self.epochs().last();
        let tiles = [
            (
                format!("best validation {name}"),
                reached.unwrap_or_else(|| "-".to_string()),
            ),
            (
                "in epoch".to_string(),
                best.map_or("-".to_string(), |b| b.epoch.to_string()),
            ),
            (
                "epochs".to_string(),
                format!("{} of {}", self.epochs().len(), self.settings.epochs),
            ),
            ("updates".to_string(), thousands(last.map_or(0, |e| e.step))),
            ("training time".to_string(), duration(seconds)),
            ("samples per second".to_string(), rate(samples as f64 / seconds)),
        ];
        let tile =
            |(name, value): (String, String)| tag("div").with(tag("span").text(name)).with(tag("strong").text(value));
        tag("header")
            .with(tag("h1").text(self.settings.model))
            .with(tag("p").text(shown_path(self.folder)))
            .with(tag("div").class("tiles").each(tiles.map(tile)))
    }

    fn warnings(&self) -> Tag {
        let summary = &self.record.summary;
        let mut all: Vec<String> = Vec::new();
        all.extend(
            self.record
                .end(self.folder)
                .map(|end| format!("How the run ended: {end}")),
        );
        all.extend(summary["warnings"].as_array().into_iter().flatten().map(plain));
        if let Some(obstacle) = summary["not_captured"].as_str() {
            all.push(format!("Steps ran op by op: {obstacle}"));
        }
        let skipped: u64 = self.epochs().iter().map(|e| e.skipped).sum();
        if skipped > 0 {
            let steps = counted(skipped, "step");
            all.push(format!(
                "{steps} skipped, because their loss or gradient was not finite."
            ));
        }
        for (part, error) in self.missing() {
            all.push(format!("Without {part}: {error}"));
        }
        let section = section("warnings", "Warnings");
        match all.is_empty() {
            true => section.with(tag("p").text("None.")),
            false => section.with(tag("ul").each(all.iter().map(|text| tag("li").text(text)))),
        }
    }

    /// The parts that could not be measured, with the reasons.
    fn missing(&self) -> Vec<(&'static str, &str)> {
        let mut missing = Vec::new();
        if let Some(Some(Err(error))) = self.measured.map(|m| &m.classes) {
            missing.push(("confusion matrix and samples", error.message.as_str()));
        }
        if let Some(Some(Err(error))) = self.measured.map(|m| &m.pictures) {
            missing.push(("samples", error.message.as_str()));
        }
        if let Some(Err(error)) = self.measured.map(|m| &m.layers) {
            missing.push(("time by layer", error.message.as_str()));
        }
        missing
    }

    fn curves(&self) -> Tag {
        let line = |name: &str, of: &dyn Fn(&EpochRecord) -> Option<f64>| Series {
            name: name.to_string(),
            points: self
                .epochs()
                .iter()
                .filter_map(|e| Some((e.epoch as f64, of(e)?)))
                .collect(),
        };
        let chart = |title: &str, series: Vec<Series>| Chart {
            title: title.to_string(),
            x: "epoch",
            log: title == "loss",
            series: series.into_iter().filter(|s| !s.points.is_empty()).collect(),
        };
        let both = |title: &str, of: &dyn Fn(&Values) -> Option<f64>| {
            let train = line("training", &|e| of(&e.train));
            let valid = line("validation", &|e| of(e.valid.as_ref()?));
            chart(title, vec![train, valid])
        };
        let mut charts: Vec<Chart> = self
            .names()
            .iter()
            .map(|name| both(name, &|values| values.get(name).copied()))
            .collect();
        for computed in self.settings.model.card().computed() {
            charts.push(both(computed.name, &|values| computed.of(values)));
        }
        let phases: BTreeSet<&String> = self.epochs().iter().flat_map(|e| e.lrs.keys()).collect();
        let rates = match phases.is_empty() {
            true => vec![line("learning rate", &|e| Some(e.lr))],
            false => phases.iter().map(|p| line(p, &|e| e.lrs.get(*p).copied())).collect(),
        };
        charts.push(chart("learning rate", rates));
        let throughput = line("samples per second", &|e| Some(e.samples_per_second));
        charts.push(chart("samples per second", vec![throughput]));
        section("curves", "Curves").with(tag("div").class("curves").each(charts.iter().map(Chart::figure)))
    }

    fn table(&self) -> Tag {
        let names = self.names();
        let training = |e: &EpochRecord, name: &String| e.train.get(name).copied();
        let validation = |e: &EpochRecord, name: &String| e.valid.as_ref().and_then(|v| v.get(name).copied());
        // Not every value is measured in both: a loss of a phase in training alone, say.
        let mut trained = names.clone();
        trained.retain(|name| self.epochs().iter().any(|e| training(e, name).is_some()));
        let mut validated = names;
        validated.retain(|name| self.epochs().iter().any(|e| validation(e, name).is_some()));
        let mut head: Vec<String> = vec!["epoch".into(), "updates".into(), "lr".into()];
        head.extend(trained.iter().map(|name| format!("training {name}")));
        head.extend(validated.iter().map(|name| format!("validation {name}")));
        head.extend(["samples/s".to_string(), "time".to_string()]);
        let row = |e: &EpochRecord| {
            let mut cells = vec![e.epoch.to_string(), thousands(e.step), label(e.lr)];
            cells.extend(trained.iter().map(|name| number(training(e, name))));
            cells.extend(validated.iter().map(|name| number(validation(e, name))));
            cells.extend([rate(e.samples_per_second), duration(e.seconds)]);
            let cells = cells.into_iter().map(|cell| tag("td").text(cell));
            match e.best {
                true => tag("tr").class("best").each(cells),
                false => tag("tr").each(cells),
            }
        };
        let head = head.iter().map(|title| tag("th").attr("scope", "col").text(title));
        let table = tag("table")
            .with(tag("thead").with(tag("tr").each(head)))
            .with(tag("tbody").each(self.epochs().iter().map(row)));
        section("epochs", "Epochs")
            .with(tag("p").text("Epochs in bold were the best until then."))
            .with(tag("div").class("scroll").with(table))
    }

    fn steps(&self) -> Tag {
        let sum = |of: fn(&Execution) -> u64| thousands(self.epochs().iter().map(|e| of(&e.execution)).sum());
        let launches = self
            .epochs()
            .iter()
            .rev()
            .map(|e| e.execution.launches)
            .find(|n| *n > 0);
        let rows = [
            ("op by op".to_string(), sum(|e| e.eager)),
            ("recorded".to_string(), sum(|e| e.recorded)),
            ("replayed".to_string(), sum(|e| e.replayed)),
            ("kernels in a replay".to_string(), thousands(launches.unwrap_or(0))),
            ("allocations in replays".to_string(), sum(|e| e.allocations)),
        ];
        section("steps", "Steps").with(pairs(rows))
    }

    fn environment(&self) -> Tag {
        let section = section("environment", "Machine");
        match self.record.summary["environment"].as_object() {
            Some(facts) => section.with(pairs(facts.iter().map(|(name, fact)| (name.clone(), plain(fact))))),
            None => section.with(tag("p").text("Not known: it is noted when a run ends.")),
        }
    }

    fn configuration(&self) -> Tag {
        let rows = flat(&self.record.config).into_iter();
        section("configuration", "Configuration").with(pairs(rows.map(|(key, value)| (key, plain(&value)))))
    }
}
