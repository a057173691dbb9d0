//! `cargo xtask bench`: measures Kiln and its peers on the same work, in one table.

mod candle;
mod framework;
mod memory;
mod nets;
mod ops;
mod peers;
mod plan;
mod products;
mod report;
mod rounds;
mod rows;
mod scaling;
mod start;
mod worker;
mod workers;

use crate::workspace::{Outcome, root};
use peers::Pythons;
use plan::Plan;
use report::{Entry, Report};
use serde_json::Value;
use std::path::{Path, PathBuf};
use workers::Workers;

#[derive(clap::Args)]
#[command(after_help = "\
  cargo xtask bench --setup-peers      once: PyTorch, TensorFlow and JAX into .venv-peers (some GB of downloads), and candle
  cargo xtask bench                    everything; takes an hour or more, wants a quiet machine
  cargo xtask bench --quick net/lenet  a first impression of some rows
Ids: net/NAME-bN/train, /infer and /generate, net-bf16/… (mixed precision, beside Kiln in f32 too), gemm/MxKxN/tT, scaling/…, start/…,
memory/NAME-bN/train (with --quick the first setting of each peer), and ops such as conv-forward/mnist2-b32.

Nets and products take turns, Kiln then every peer in each of its settings, round after round, and the ratio is the median of
the rounds'. A net counts once twenty training steps (or forward passes) from the same weights on the same batches have
given the same losses. Peers more than 1.3 times slower than the fastest after two rounds sit out. A worker computes
alone: the others are stopped (SIGSTOP) until their turn. A peer that cannot be found is left out and named.")]
pub(crate) struct Args {
    /// Run only benches whose id contains one of these
    filters: Vec<String>,
    /// Fewer and shorter samples
    #[arg(long)]
    quick: bool,
    /// Threads for Kiln and for its peers
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// File for the JSON
    #[arg(long, value_name = "FILE", default_value = "target/bench/report.json")]
    out: PathBuf,
    /// A Python with peers; may be given several times [default: that of .venv-peers, then python3]
    #[arg(long, value_name = "FILE")]
    python: Vec<PathBuf>,
    /// Measure Kiln alone
    #[arg(long)]
    no_peers: bool,
    /// Install the packages of benches/peers/requirements*.txt into .venv-peers and build benches/peers/candle, then stop
    #[arg(long)]
    setup_peers: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.setup_peers {
        return peers::set_up(args.python.first().map(PathBuf::as_path));
    }
    if args.threads == 0 {
        return Err("--threads 0: at least 1".into());
    }
    let plan = Plan {
        threads: args.threads,
        quick: args.quick,
        peers: !args.no_peers,
        rounds: if args.quick { 3 } else { 9 },
        seconds: if args.quick { 0.4 } else { 1.5 },
    };
    let pythons = Pythons::new(&args.python);
    let ids = rows::ids(plan.threads);
    // A filter that matches no row here is for ops.
    let of_ops = |f: &&String| !ids.iter().any(|id| id.contains(f.as_str()));
    let ops: Vec<String> = args.filters.iter().filter(of_ops).cloned().collect();
    let mut report = Report {
        threads: plan.threads,
        quick: plan.quick,
        names: Default::default(),
        entries: Vec::new(),
    };
    if ops.len() < args.filters.len() || args.filters.is_empty() {
        let mut workers = Workers::new(pythons.clone())?;
        report.entries = in_turns(args, plan, &mut workers);
        report.names = workers.names();
    }
    if args.filters.is_empty() || !ops.is_empty() {
        let pythons = plan.peers.then_some(&pythons);
        let Some(entries) = ops::measure(&ops, plan.threads, plan.quick, pythons)? else {
            return Ok(false);
        };
        report.entries.extend(entries);
    }
    if report.entries.is_empty() {
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

/// Measures the rows in which Kiln and the peers take turns.
fn in_turns(args: &Args, plan: Plan, workers: &mut Workers) -> Vec<Entry> {
    let wanted = |id: &str| args.filters.is_empty() || args.filters.iter().any(|f| id.contains(f));
    let mut entries = Vec::new();
    for row in rows::nets().iter().filter(|row| wanted(&row.id())) {
        entries.extend(nets::measure(workers, row, &plan));
    }
    if wanted(rows::SCALING) && plan.threads > 1 {
        entries.extend(scaling::measure(workers, &plan));
    }
    for threads in rows::thread_counts(plan.threads) {
        let plan = Plan { threads, ..plan };
        for &size in rows::PRODUCTS
            .iter()
            .filter(|&&p| wanted(&rows::product_id(p, threads)))
        {
            entries.extend(products::measure(workers, size, &plan));
        }
    }
    if wanted(rows::START) {
        entries.push(start::measure(workers, &plan));
    }
    for row in rows::memory().iter().filter(|row| wanted(&row.memory_id())) {
        entries.extend(memory::measure(workers, row, &plan));
    }
    entries
}

fn write(path: &Path, value: &Value) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    std::fs::write(path, format!("{value:#}\n")).map_err(fail)
}
