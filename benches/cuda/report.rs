//! The table of measurements of Kiln and its peers.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of JSON lines; the first is Kiln's
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// File for the JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The day of the measurement, for the record
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
}

/// One bench: seconds by framework and variant, and the cost of a call.
#[derive(Default)]
struct Row {
    kiln: BTreeMap<String, f64>,
    /// The modelled seconds of Kiln's variants, with the least and the most that they may be.
    modelled: BTreeMap<String, [f64; 3]>,
    peers: BTreeMap<String, f64>,
    flops: f64,
    bytes: f64,
    images: f64,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut about = Vec::new();
    for (i, path) in args.files.iter().enumerate() {
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        for line in text.lines().filter(|l| l.starts_with('{')) {
            let line: Value = serde_json::from_str(line).map_err(|e| format!("{}: {e}", path.display()))?;
            let (Some(id), Some(seconds)) = (line["id"].as_str(), line["seconds"].as_f64()) else {
                about.push(line);
                continue;
            };
            let row = rows.entry(id.to_string()).or_default();
            let variant = line["variant"].as_str().unwrap_or("").to_string();
            let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
            row.flops = row.flops.max(number("flops"));
            row.bytes = row.bytes.max(number("bytes"));
            row.images = row.images.max(number("images"));
            let modelled = ["modelled_seconds", "modelled_low", "modelled_high"].map(|name| line[name].as_f64());
            if let ([Some(seconds), Some(low), Some(high)], 0) = (modelled, i) {
                row.modelled.insert(variant.clone(), [seconds, low, high]);
            }
            let side = if i == 0 { &mut row.kiln } else { &mut row.peers };
            side.insert(variant, seconds);
        }
    }
    // The rate of memory: that of the largest copy, which is larger than any cache.
    let copies = rows
        .iter()
        .filter(|(id, row)| id.starts_with("copy/") && !row.kiln.is_empty());
    let copy = copies
        .max_by(|a, b| a.1.bytes.total_cmp(&b.1.bytes))
        .and_then(|(_, row)| Some(row.bytes / best(&row.kiln)?.1))
        .unwrap_or(0.0);
    let mut list = Vec::new();
    for (id, row) in &rows {
        list.push(entry(id, row, copy));
    }
    if let Some(out) = &args.out {
        let rate = (copy > 0.0).then_some(copy);
        let all = json!({ "date": args.date, "about": about, "copy_bytes_per_second": rate, "results": list });
        std::fs::write(out, format!("{all:#}\n")).map_err(|e| format!("cannot write {}: {e}", out.display()))?;
    }
    Ok(())
}

fn best(side: &BTreeMap<String, f64>) -> Option<(&str, f64)> {
    let fastest = side.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
    Some((fastest.0, *fastest.1))
}

/// The variant that users get: Kiln's choice among kernels, or the whole step as a graph; else the fastest.
fn headline(side: &BTreeMap<String, f64>) -> Option<&str> {
    let chosen = ["auto", "graph"].into_iter().find(|v| side.contains_key(*v));
    chosen.or_else(|| Some(best(side)?.0))
}

/// Prints a row of the table for every variant, the [`headline`] first, and returns the bench as JSON.
fn entry(id: &str, row: &Row, copy: f64) -> Value {
    let peer = best(&row.peers);
    let head = headline(&row.kiln);
    let mut variants = Map::new();
    let others = row.kiln.keys().map(String::as_str).filter(|v| Some(*v) != head);
    for (i, variant) in head.into_iter().chain(others).enumerate() {
        let seconds = row.kiln[variant];
        let mut one = json!({ "seconds": seconds });
        let name = if i == 0 { id } else { "" };
        let mut text = format!("{name:<42} {variant:<18} {:>10.1} us", seconds * 1e6);
        let mut rate = |name: &str, value: f64, shown: String| {
            one[name] = json!(value);
            text += &shown;
        };
        if row.flops > 0.0 {
            let gflops = row.flops / seconds * 1e-9;
            rate("gflops", gflops, format!(" {gflops:>9.0} GFLOP/s"));
        }
        if row.bytes > 0.0 && copy > 0.0 {
            let share = row.bytes / seconds / copy;
            rate(
                "share_of_copy_rate",
                share,
                format!(" {:>4.0} % of copy", 100.0 * share),
            );
        }
        if row.images > 0.0 {
            let images = row.images / seconds;
            rate("images_per_second", images, format!(" {images:>9.0} images/s"));
        }
        if let Some((peer, theirs)) = peer {
            let share = theirs / seconds;
            rate(
                "share_of_best_peer",
                share,
                format!(" {:>5.0} % of {peer}", 100.0 * share),
            );
        }
        if let Some([modelled, low, high]) = row.modelled.get(variant) {
            text += &format!(" {:>8.1} us modelled", modelled * 1e6);
            if !(low..=high).contains(&&seconds) {
                text += ", outside of its band";
            }
            one["modelled_seconds"] = json!(modelled);
            one["modelled_band"] = json!([low, high]);
            one["measured_by_modelled"] = json!(seconds / modelled);
        }
        println!("{text}");
        variants.insert(variant.to_string(), one);
    }
    json!({ "id": id, "headline": head, "kiln": variants, "best_peer": peer.map(|p| p.0), "peer_seconds": row.peers })
}
