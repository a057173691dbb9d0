//! A forecast as text and as JSON.

use super::job::{Forecast, Job};
use crate::output::{bytes, energy, rate, table as lined_up};
use kiln_forecast::{Table, published};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The rates of a card at the job.
struct Rates {
    per_second: f64,
    /// Dollars for a million samples.
    dollars: Option<f64>,
    /// Joules for a million samples, at most.
    joules: f64,
}

fn rates(job: &Job, forecast: &Forecast) -> Rates {
    let per_second = job.batch as f64 / forecast.time.seconds;
    let seconds = 1e6 / per_second;
    Rates {
        per_second,
        dollars: forecast.price.map(|price| price * seconds / 3600.0),
        joules: forecast.gpu.card.watts * seconds,
    }
}

/// A time with three digits.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.3} ms", 1e3 * s),
        s if s < 0.1 => format!("{:.2} ms", 1e3 * s),
        s if s < 1.0 => format!("{:.0} ms", 1e3 * s),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

fn dollars(n: f64) -> String {
    if n < 1.0 {
        format!("${n:.4}")
    } else {
        format!("${n:.2}")
    }
}

pub(super) fn text(job: &Job, forecasts: &[Forecast], table: &Table, top: usize) -> String {
    let Job {
        model,
        batch,
        precision,
        noun,
        ..
    } = job;
    let mut out = format!(
        "{model}, batch {batch}, {precision}: a training step, modelled (kernels of nvcc {}); no time here was measured\n\n",
        table.compiler()
    );
    let header = [
        "card",
        "modelled step",
        "low",
        "high",
        "samples/s",
        "memory",
        "of",
        "largest batch",
        "bound by",
    ];
    let rows: Vec<Vec<String>> = forecasts
        .iter()
        .map(|f| {
            let bound = f.time.bounds.first();
            vec![
                f.gpu.card.title.clone(),
                duration(f.time.seconds),
                duration(f.time.seconds_low),
                duration(f.time.seconds_high),
                rate(rates(job, f).per_second),
                format!("{}{}", bytes(f.step.peak_bytes), if f.fits() { "" } else { "!" }),
                bytes(f.gpu.memory()),
                f.largest.map_or("-".to_string(), |n| n.to_string()),
                bound.map_or(String::new(), |(bound, seconds)| {
                    format!("{} {:.0} %", bound.name(), 100.0 * seconds / f.time.seconds)
                }),
            ]
        })
        .collect();
    let _ = writeln!(out, "{}", lined_up(&header, &rows));
    if forecasts.iter().any(|f| !f.fits()) {
        let _ = writeln!(
            out,
            "! more than nine tenths of the card's memory: this batch does not fit"
        );
    }
    out.push('\n');
    out += &costs(job, forecasts);
    for f in forecasts {
        let _ = writeln!(
            out,
            "\n{}: {} kernels, {} copies, {} fills; modelled, the most time first",
            f.gpu.card.title,
            f.step.launches.len(),
            f.step.copies.len(),
            f.step.fills.len()
        );
        let shares = f.time.shares.iter().take(top).map(|share| {
            vec![
                share.kernel.clone(),
                share.shape.clone(),
                share.launches.to_string(),
                duration(share.seconds),
                format!("{:.1} %", 100.0 * share.seconds / f.time.seconds),
                format!("{:.0} %", 100.0 * share.floor / share.seconds),
                share.bound.name().to_string(),
            ]
        });
        let header = [
            "kernel", "shape", "launches", "modelled", "of step", "floor", "bound by",
        ];
        let _ = writeln!(out, "{}", lined_up(&header, &shares.collect::<Vec<_>>()));
        if !f.time.unknown.is_empty() {
            let names: Vec<&str> = f.time.unknown.iter().map(String::as_str).collect();
            let _ = writeln!(
                out,
                "no machine code is known of {}: taken for streams of their bytes",
                names.join(", ")
            );
        }
    }
    let _ = write!(
        out,
        "\nlow and high: within {:.0} % of published kernels of other people, wider where constants of an architecture are assumed.\n\
         Energy is at most: the board's limit. floor: the part of the time that the busiest part of the GPU works. Samples are {noun}s.",
        100.0 * published::BAND
    );
    out
}

/// Costs and energy, and which card is best for what.
fn costs(job: &Job, forecasts: &[Forecast]) -> String {
    let epoch = job.samples.map(|samples| (samples, samples as f64 / job.batch as f64));
    let mut header = vec!["card", "$/h", "$ per 1M samples", "energy per 1M samples"];
    if epoch.is_some() {
        header.extend(["epoch", "$ per epoch", "energy per epoch", "whole job", "$ whole job"]);
    }
    let rows: Vec<Vec<String>> = forecasts
        .iter()
        .map(|f| {
            let of = rates(job, f);
            let money = |n: Option<f64>| n.map_or("-".to_string(), dollars);
            let mut row = vec![
                f.gpu.card.title.clone(),
                money(f.price),
                money(of.dollars),
                energy(of.joules),
            ];
            if let Some((samples, steps)) = epoch {
                let (seconds, share) = (steps * f.time.seconds, samples as f64 / 1e6);
                let epochs = job.epochs as f64;
                row.extend([
                    duration(seconds),
                    money(of.dollars.map(|d| d * share)),
                    energy(of.joules * share),
                    duration(seconds * epochs),
                    money(of.dollars.map(|d| d * share * epochs)),
                ]);
            }
            row
        })
        .collect();
    let mut out = lined_up(&header, &rows) + "\n";
    let fitting: Vec<&Forecast> = forecasts.iter().filter(|f| f.fits()).collect();
    let best = |of: &dyn Fn(&Forecast) -> Option<f64>| -> Option<&str> {
        let pairs = fitting.iter().filter_map(|f| Some((of(f)?, f.gpu.card.name.as_str())));
        pairs.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
    };
    let answers = [
        ("fastest", best(&|f| Some(f.time.seconds))),
        ("cheapest", best(&|f| rates(job, f).dollars)),
        ("most frugal", best(&|f| Some(rates(job, f).joules))),
    ];
    let said: Vec<String> = answers
        .iter()
        .filter_map(|(what, name)| name.map(|name| format!("{what}: {name}")))
        .collect();
    let _ = writeln!(out, "{} (modelled, among cards that this batch fits)", said.join(", "));
    let sources: Vec<String> = forecasts
        .iter()
        .filter(|f| f.price.is_some() && f.price == f.gpu.card.price)
        .map(|f| f.gpu.card.price_source.clone())
        .collect();
    let mut sources = sources;
    sources.dedup();
    if !sources.is_empty() {
        let _ = writeln!(out, "prices: {}", sources.join("; "));
    }
    out
}

pub(super) fn json(job: &Job, forecasts: &[Forecast], table: &Table) -> Value {
    let cards = forecasts.iter().map(|f| {
        let of = rates(job, f);
        let bounds = f
            .time
            .bounds
            .iter()
            .map(|(bound, seconds)| json!({ "bound": bound, "seconds": seconds }));
        json!({
            "name": f.gpu.card.name,
            "title": f.gpu.card.title,
            "kernels": f.step.launches.len(),
            "copies": f.step.copies.len(),
            "fills": f.step.fills.len(),
            "peak_bytes": f.step.peak_bytes,
            "memory_bytes": f.gpu.memory(),
            "fits": f.fits(),
            "largest_batch": f.largest,
            "seconds": f.time.seconds,
            "seconds_low": f.time.seconds_low,
            "seconds_high": f.time.seconds_high,
            "samples_per_second": of.per_second,
            "bounds": bounds.collect::<Vec<_>>(),
            "shares": f.time.shares,
            "unknown_kernels": f.time.unknown,
            "dollars_per_hour": f.price,
            "dollars_per_million_samples": of.dollars,
            "joules_per_million_samples": of.joules,
            "price_source": f.gpu.card.price_source,
        })
    });
    let cards: Vec<Value> = cards.collect();
    let mut all = json!({
        "model": job.model,
        "batch": job.batch,
        "precision": job.precision,
        "samples_per_epoch": job.samples,
        "epochs": job.epochs,
        "modelled": true,
        "sources": { "nvcc": table.compiler(), "band": published::BAND },
        "cards": cards,
    });
    // The first card's figures are those of the whole as well, for scripts with one card.
    if let (Some(Value::Object(first)), Value::Object(whole)) = (cards.first(), &mut all) {
        for key in [
            "kernels",
            "copies",
            "fills",
            "peak_bytes",
            "seconds",
            "seconds_low",
            "seconds_high",
        ] {
            whole.insert(key.to_string(), first[key].clone());
        }
    }
    all
}
