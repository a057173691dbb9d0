//! Single ops: Kiln's criterion benches, then PyTorch on the same work.

use super::framework::Framework;
use super::peers::{Pythons, Times, torch};
use super::report::Entry;
use super::rounds::Ratio;
use crate::workspace::{cargo, passes, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The criterion benches that are compared here; products have rows of their own.
const FAMILIES: &str = "^(conv|max-pool|batch-norm|cross-entropy|attention|adam)";

/// Measures the ops whose ids contain one of the filters, or all without filters; `None` if the benches failed.
pub(super) fn measure(
    filters: &[String],
    threads: usize,
    quick: bool,
    pythons: Option<&Pythons>,
) -> Result<Option<Vec<Entry>>, String> {
    let Some(kiln) = kiln(filters, threads, quick)? else {
        return Ok(None);
    };
    let peer = match pythons.map(|p| torch(p, threads, quick, filters)) {
        Some(Ok(times)) => times,
        Some(Err(why)) => {
            println!("torch is left out: {why}");
            Times::new()
        }
        None => Times::new(),
    };
    Ok(Some(joined(&kiln, &peer)))
}

/// The rows by id, with the times that each side has.
fn joined(kiln: &Times, peer: &Times) -> Vec<Entry> {
    let ids: BTreeSet<&String> = kiln.keys().chain(peer.keys()).collect();
    let entry = |id: &String| {
        let mut entry = Entry::new(id);
        entry.kiln = kiln.get(id).copied();
        if let Some(&time) = peer.get(id) {
            entry.add_peer(Framework::Torch, "eager-nchw", time);
            entry.best = Some((Framework::Torch, "eager-nchw".into()));
            entry.ratio = entry.kiln.map(|kiln| Ratio {
                median: time / kiln,
                low: time / kiln,
                high: time / kiln,
            });
        }
        entry
    };
    ids.into_iter().map(entry).collect()
}

/// Runs the criterion benches and reads the medians from their files; `None` if they failed.
fn kiln(filters: &[String], threads: usize, quick: bool) -> Result<Option<Times>, String> {
    let home = root().join("target/bench/criterion");
    // Results of an earlier run must not be read.
    if home.exists() {
        std::fs::remove_dir_all(&home).map_err(|e| format!("cannot clear {}: {e}", home.display()))?;
    }
    let filter = match filters {
        [] => FAMILIES.to_string(),
        filters => filters.iter().map(|f| literal(f)).collect::<Vec<_>>().join("|"),
    };
    let mut words = vec![
        "bench",
        "--package",
        "kiln-benches",
        "--bench",
        "kiln",
        "--",
        "--noplot",
    ];
    if quick {
        words.push("--quick");
    }
    words.push(&filter);
    let mut command = cargo(words);
    command
        .env("CRITERION_HOME", &home)
        .env("RAYON_NUM_THREADS", threads.to_string());
    if !passes(&mut command)? {
        return Ok(None);
    }
    let mut times = Times::new();
    medians(&home, &mut times)?;
    Ok(Some(times))
}

/// A regular expression that matches `text` itself, for criterion's filter.
fn literal(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Reads every `new/{benchmark,estimates}.json` below `folder`.
fn medians(folder: &Path, times: &mut Times) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for path in entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()) {
        if !path.ends_with("new") {
            medians(&path, times)?;
            continue;
        }
        let (about, estimates) = (read(&path.join("benchmark.json"))?, read(&path.join("estimates.json"))?);
        let id = about["full_id"].as_str();
        let nanoseconds = estimates["median"]["point_estimate"].as_f64();
        let (Some(id), Some(nanoseconds)) = (id, nanoseconds) else {
            return Err(format!("{}: not what criterion 0.8 writes", path.display()));
        };
        times.insert(id.to_string(), nanoseconds * 1e-9);
    }
    Ok(())
}

fn read(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::write;
    use super::*;

    #[test]
    fn medians_are_read_from_criterions_folders() {
        let home = std::env::temp_dir().join(format!("kiln-xtask-medians-{}", std::process::id()));
        let new = home.join("gemm").join("8x8x8").join("new");
        write(
            &new.join("benchmark.json"),
            &serde_json::json!({ "full_id": "gemm/8x8x8" }),
        )
        .expect("written");
        let estimates = serde_json::json!({ "median": { "point_estimate": 1500.0 } });
        write(&new.join("estimates.json"), &estimates).expect("written");
        let mut times = Times::new();
        let read = medians(&home, &mut times);
        std::fs::remove_dir_all(&home).expect("removed");
        assert_eq!(read, Ok(()));
        assert_eq!(times, Times::from([("gemm/8x8x8".to_string(), 1.5e-6)]));
    }

    #[test]
    fn rows_join_by_id() {
        let kiln = Times::from([("a".to_string(), 1.0), ("b".to_string(), 2.0)]);
        let peer = Times::from([("b".to_string(), 4.0), ("c".to_string(), 1.0)]);
        let rows = joined(&kiln, &peer);
        let ratios: Vec<_> = rows.iter().map(|r| r.ratio.map(|r| r.median)).collect();
        assert_eq!(ratios, [None, Some(2.0), None]);
    }

    #[test]
    fn a_filter_means_itself() {
        assert_eq!(literal("conv-forward/mnist1"), "conv-forward/mnist1");
        assert_eq!(literal("a.b|c"), r"a\.b\|c");
    }
}
