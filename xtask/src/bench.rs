//! `cargo xtask bench`: Kiln's criterion benches beside the peers' scripts, in one table.

mod peers;
mod report;

use crate::workspace::{Outcome, cargo, passes, root};
use report::Report;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "\
  cargo xtask bench --setup-peers   once: PyTorch into .venv-peers (some GB of downloads)
  cargo xtask bench                 everything; takes minutes, wants a quiet machine
  cargo xtask bench --quick gemm    a first impression of one family
Ids are family/size, such as conv-forward/mnist2-b32. Without Python or PyTorch the table has Kiln's column alone.")]
pub(crate) struct Args {
    /// Benches whose id contains one of these; all when none is given
    filters: Vec<String>,
    /// Fewer and shorter samples
    #[arg(long)]
    quick: bool,
    /// Threads for Kiln and for its peers [default: all]
    #[arg(long)]
    threads: Option<usize>,
    /// Where the JSON goes
    #[arg(long, value_name = "FILE", default_value = "target/bench/report.json")]
    out: PathBuf,
    /// A Python with PyTorch [default: that of .venv-peers, else python3]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Measure Kiln alone
    #[arg(long)]
    no_peers: bool,
    /// Install what benches/peers/requirements.txt names into .venv-peers, then stop
    #[arg(long)]
    setup_peers: bool,
}

/// Seconds by bench id.
type Times = BTreeMap<String, f64>;

pub(crate) fn run(args: &Args) -> Outcome {
    if args.setup_peers {
        return peers::set_up(args.python.as_deref());
    }
    let threads = match args.threads {
        Some(0) => return Err("--threads 0: at least 1".into()),
        Some(n) => n,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let Some(kiln) = kiln(args, threads)? else {
        return Ok(false);
    };
    let peer = if args.no_peers {
        None
    } else {
        match peers::torch(args.python.as_deref(), threads, args.quick, &args.filters) {
            Ok(peer) => Some(peer),
            Err(why) => {
                println!("peers: {why}");
                None
            }
        }
    };
    let report = Report::new(threads, args.quick, kiln, peer);
    if report.rows.is_empty() {
        return Err(format!(
            "no bench has an id that contains {}",
            args.filters.join(" or ")
        ));
    }
    println!("\n{report}");
    let out = if args.out.is_relative() {
        root().join(&args.out)
    } else {
        args.out.clone()
    };
    write(&out, &report.json())?;
    println!("written to {}", out.display());
    Ok(true)
}

/// Runs the criterion benches and reads the medians they leave; `None` when they failed.
fn kiln(args: &Args, threads: usize) -> Result<Option<Times>, String> {
    let home = root().join("target/bench/criterion");
    // What an earlier run measured is not part of this one.
    if home.exists() {
        std::fs::remove_dir_all(&home).map_err(|e| format!("cannot clear {}: {e}", home.display()))?;
    }
    let filter = args.filters.iter().map(|f| literal(f)).collect::<Vec<_>>().join("|");
    let mut words = vec![
        "bench",
        "--package",
        "kiln-benches",
        "--bench",
        "kiln",
        "--",
        "--noplot",
    ];
    if args.quick {
        words.push("--quick");
    }
    if !filter.is_empty() {
        words.push(&filter);
    }
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

fn write(path: &Path, value: &Value) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    std::fs::write(path, format!("{value:#}\n")).map_err(fail)
}

#[cfg(test)]
mod tests {
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
    fn a_filter_means_itself() {
        assert_eq!(literal("conv-forward/mnist1"), "conv-forward/mnist1");
        assert_eq!(literal("a.b|c"), r"a\.b\|c");
    }
}
