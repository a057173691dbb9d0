//! Measurements of Kiln and its peers side by side.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of JSON lines; the first is Kiln's
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where the JSON goes
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The day of the measurement, for the record
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
}

/// One bench: seconds by who and variant, and what a call does.
#[derive(Default)]
struct Row {
    kiln: BTreeMap<String, f64>,
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
            let side = if i == 0 { &mut row.kiln } else { &mut row.peers };
            side.insert(variant, seconds);
        }
    }
    let copy = rows
        .iter()
        .filter(|(id, _)| id.starts_with("copy/"))
        .filter_map(|(_, row)| Some(row.bytes / best(&row.kiln)?.1))
        .fold(0.0, f64::max);
    let mut list = Vec::new();
    for (id, row) in &rows {
        list.push(entry(id, row, copy));
    }
    if let Some(out) = &args.out {
        let all = json!({ "date": args.date, "about": about, "copy_bytes_per_second": copy, "results": list });
        std::fs::write(out, format!("{all:#}\n")).map_err(|e| format!("cannot write {}: {e}", out.display()))?;
    }
    Ok(())
}

fn best(side: &BTreeMap<String, f64>) -> Option<(&str, f64)> {
    let fastest = side.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
    Some((fastest.0, *fastest.1))
}

/// Prints a row of the table and gives it as JSON.
fn entry(id: &str, row: &Row, copy: f64) -> Value {
    let mut out = Map::new();
    out.insert("id".into(), json!(id));
    out.insert("kiln_seconds".into(), json!(row.kiln));
    out.insert("peer_seconds".into(), json!(row.peers));
    let Some((variant, seconds)) = best(&row.kiln) else {
        return Value::Object(out);
    };
    let mut text = format!("{id:<42} {variant:<16} {:>10.1} us", seconds * 1e6);
    if row.flops > 0.0 {
        out.insert("gflops".into(), json!(row.flops / seconds * 1e-9));
        text += &format!(" {:>9.0} GFLOP/s", row.flops / seconds * 1e-9);
    }
    if row.bytes > 0.0 && copy > 0.0 {
        out.insert("share_of_copy_rate".into(), json!(row.bytes / seconds / copy));
        text += &format!(" {:>5.0} % of copy", 100.0 * row.bytes / seconds / copy);
    }
    if row.images > 0.0 {
        out.insert("images_per_second".into(), json!(row.images / seconds));
        text += &format!(" {:>9.0} images/s", row.images / seconds);
    }
    if let Some((peer, theirs)) = best(&row.peers) {
        out.insert("ratio_to_best_peer".into(), json!(seconds / theirs));
        text += &format!("   {:.2} of {peer}", seconds / theirs);
    }
    println!("{text}");
    Value::Object(out)
}
