//! Kiln's worker process for `cargo xtask bench`. It reads commands and answers with JSON lines, as `benches/peers/worker.py`
//! describes them, with four more commands:
//!
//! ```text
//! write ROW FILE   writes the row's initial weights and 20 batches for every worker; answers {}
//! peak KEY         prepares the machine's fused multiply-adds; `run` then answers {"flops": F} of one repetition too
//! logits FILE      compares a network with its original, from a file of torch_logits.py; answers {"difference": D} of the logits
//! clips FOLDER     writes the clips that ship as folders of frames, for torch_video.py; answers {}
//! ```

mod clips;
mod inputs;
mod logits;
mod peak;
mod products;
mod row;
mod sequences;
mod work;
mod writing;

use kiln_models::Model;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

/// A result whose error becomes the text of an answer.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// The work that `run` repeats.
type Work = Box<dyn FnMut() -> kiln_core::Result<()>>;

fn main() -> Outcome<()> {
    let threads = std::env::args().skip_while(|a| a != "--threads").nth(1);
    let threads: usize = threads.ok_or("--threads N is missing")?.parse()?;
    // The pool is made as in `kiln train`: this thread belongs to it.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .use_current_thread();
    pool.build_global()?;
    let mut out = std::io::stdout().lock();
    let mut answer = |value: &Value| -> Outcome<()> {
        writeln!(out, "{value}")?;
        Ok(out.flush()?)
    };
    let name = format!("kiln {}", env!("CARGO_PKG_VERSION"));
    answer(&json!({ "peer": name, "settings": ["default"], "infer": ["default"] }))?;
    let mut works = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let result = command(&words, threads, &mut works);
        answer(&result.unwrap_or_else(|e| json!({ "error": e.to_string() })))?;
    }
    Ok(())
}

/// Carries out a command and returns the answer.
fn command(words: &[&str], threads: usize, works: &mut BTreeMap<String, Work>) -> Outcome<Value> {
    let mut keep = |key: &str, work: Work| works.insert(key.to_string(), work);
    match *words {
        ["once", model, batch] => once(model, batch),
        ["rss"] => Ok(json!({ "rss": peak_resident() })),
        ["write", row, file] => {
            inputs::write(row::Row::parse(row)?, file)?;
            Ok(json!({}))
        }
        ["load", key, setting, row, file] => {
            let (losses, work) = work::load(row::Row::parse(row)?, setting, file)?;
            keep(key, work);
            Ok(json!({ "losses": losses }))
        }
        ["gemm", key, m, k, n] => {
            keep(key, products::product(m.parse()?, k.parse()?, n.parse()?)?);
            Ok(json!({}))
        }
        ["peak", key] => {
            keep(key, peak::peak(threads));
            Ok(json!({ "flops": peak::flops(threads) }))
        }
        ["logits", file] => Ok(json!({ "file": file, "difference": logits::difference(file)? })),
        ["clips", folder] => {
            clips::write(folder, Model::R3dSmall.input().shape)?;
            Ok(json!({}))
        }
        ["run", key, seconds] => repeat(
            works.get_mut(key).ok_or("nothing is loaded under this key")?,
            seconds.parse()?,
        ),
        ["drop", key] => {
            works.remove(key);
            Ok(json!({}))
        }
        _ => Err(format!("no command `{}`", words.join(" ")).into()),
    }
}

/// Runs `work` once untimed, then until the time is up.
fn repeat(work: &mut Work, seconds: f64) -> Outcome<Value> {
    work()?;
    let (start, mut count) = (Instant::now(), 0u64);
    loop {
        work()?;
        count += 1;
        let took = start.elapsed().as_secs_f64();
        if took >= seconds {
            return Ok(json!({ "count": count, "seconds": took }));
        }
    }
}

/// Makes a network and takes one step.
fn once(model: &str, batch: &str) -> Outcome<Value> {
    let mut step = work::fresh(row::Row::parse(&format!("net/{model}-b{batch}/train"))?)?;
    step()?;
    Ok(json!({}))
}

/// The peak resident memory of this process in bytes, if the system reports it.
fn peak_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(1024 * line.split_whitespace().next()?.parse::<u64>().ok()?)
}
