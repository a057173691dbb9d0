//! Training steps and forward passes of whole networks. Kiln and the peers whose losses agree with Kiln's are measured in
//! turns.

use super::framework::Framework;
use super::plan::Plan;
use super::report::Entry;
use super::rounds::{Rounds, difference, median};
use super::rows::{NetRow, Pass};
use super::workers::Workers;
use crate::workspace::root;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The key of Kiln's work in f32 beside a row in mixed precision.
const SINGLE: &str = "f32";

/// A framework in one setting that has loaded the row and whose losses agree with Kiln's.
struct Contender {
    who: Framework,
    setting: String,
}

/// Measures a row; `None` if Kiln cannot be measured.
pub(super) fn measure(workers: &mut Workers, row: &NetRow, plan: &Plan) -> Option<Entry> {
    let id = row.id();
    println!("\n{id}");
    let file = written(workers, row, plan)
        .inspect_err(|e| println!("  kiln: {e}"))
        .ok()?;
    let mut entry = Entry::new(&id);
    entry.per_repetition = Some(row.made());
    let (contenders, reference) = load(workers, row, plan, &file, &mut entry)?;
    let mut single = Vec::new();
    let rounds = Rounds::play(contenders.len(), plan.rounds, &mut |i| {
        let Contender { who, .. } = contenders[i];
        if row.half && i == 0 {
            single.push(run(workers, who, plan.threads, SINGLE, plan.seconds)?);
        }
        run(workers, who, plan.threads, &format!("k{i}"), plan.seconds)
    });
    if row.half {
        let _ = workers.ask(Framework::Kiln, plan.threads, &format!("drop {SINGLE}"));
        let kiln = rounds.seconds[0].clone();
        entry.single = (Rounds {
            seconds: vec![kiln, single],
        })
        .ratio(1);
    }
    for (i, contender) in contenders.iter().enumerate() {
        let _ = workers.ask(contender.who, plan.threads, &format!("drop k{i}"));
        if i > 0 && !rounds.seconds[i].is_empty() {
            let time = median(&rounds.seconds[i]);
            entry.add_peer(contender.who, &contender.setting, time);
        }
    }
    entry.kiln = Some(median(&rounds.seconds[0])).filter(|s| s.is_finite());
    if let Some(best) = rounds.best() {
        let Contender { who, setting } = &contenders[best];
        entry.best = Some((*who, setting.clone()));
        entry.ratio = rounds.ratio(best);
    }
    entry.losses = reference;
    let _ = std::fs::remove_file(&file);
    println!("  {}", entry.line());
    Some(entry)
}

/// The file of a row, which Kiln's worker writes.
pub(super) fn written(workers: &mut Workers, row: &NetRow, plan: &Plan) -> Result<PathBuf, String> {
    let file = root().join("target/bench/row.safetensors");
    let words = file.to_string_lossy();
    if words.contains(char::is_whitespace) {
        return Err(format!("the path {words} has a space in it, which workers cannot read"));
    }
    if let Some(Err(e)) = file.parent().map(std::fs::create_dir_all) {
        return Err(format!("cannot create the folder of {words}: {e}"));
    }
    let command = format!("write {} {words}", row.id());
    workers.ask(Framework::Kiln, plan.threads, &command)?;
    Ok(file)
}

/// Has every framework load the row; returns those whose losses agree with Kiln's, Kiln first, and Kiln's losses.
fn load(
    workers: &mut Workers,
    row: &NetRow,
    plan: &Plan,
    file: &Path,
    entry: &mut Entry,
) -> Option<(Vec<Contender>, Vec<f64>)> {
    let command = |key: usize, setting: &str| format!("load k{key} {setting} {} {}", row.id(), file.display());
    let reference = match losses(workers, Framework::Kiln, plan.threads, &command(0, "default")) {
        Ok(losses) => losses,
        Err(e) => {
            println!("  kiln: {e}");
            return None;
        }
    };
    if row.half {
        let single = NetRow { half: false, ..*row };
        let command = format!("load {SINGLE} default {} {}", single.id(), file.display());
        if let Err(e) = losses(workers, Framework::Kiln, plan.threads, &command) {
            println!("  kiln in f32: {e}");
            return None;
        }
    }
    let mut contenders = vec![Contender {
        who: Framework::Kiln,
        setting: "default".into(),
    }];
    let peers: &[Framework] = match row.pass {
        Pass::Generate => plan.peers(&Framework::WRITERS),
        _ => plan.peers(&Framework::NETS),
    };
    for &who in peers {
        for setting in settings(workers, who, plan.threads, row.pass) {
            let key = contenders.len();
            let label = who.label();
            match losses(workers, who, plan.threads, &command(key, &setting)) {
                Err(e) => println!("  {label} {setting}: {e}"),
                Ok(losses) => {
                    let apart = difference(&losses, &reference);
                    entry.apart.push((format!("{label} {setting}"), apart));
                    if apart <= row.tolerance() {
                        contenders.push(Contender { who, setting });
                    } else {
                        println!("  {label} {setting}: its losses differ by {apart:.1e}, so its time does not count");
                        println!("    kiln {reference:?}\n    {label} {losses:?}");
                        let _ = workers.ask(who, plan.threads, &format!("drop k{key}"));
                    }
                }
            }
        }
    }
    Some((contenders, reference))
}

/// The losses in a worker's answer.
fn losses(workers: &mut Workers, who: Framework, threads: usize, command: &str) -> Result<Vec<f64>, String> {
    workers.ask(who, threads, command).map(|answer| losses_of(&answer))
}

/// The losses in the answer to `load`.
pub(super) fn losses_of(answer: &Value) -> Vec<f64> {
    let losses = answer["losses"].as_array().into_iter().flatten();
    losses.map(|l| l.as_f64().unwrap_or(f64::NAN)).collect()
}

/// The settings of a framework for training or what comes after it.
pub(super) fn settings(workers: &mut Workers, who: Framework, threads: usize, pass: Pass) -> Vec<String> {
    workers
        .get(who, threads)
        .map(|w| {
            if pass == Pass::Train {
                w.settings.clone()
            } else {
                w.infer.clone()
            }
        })
        .unwrap_or_default()
}

/// Runs one turn; returns the seconds of a repetition.
pub(super) fn run(
    workers: &mut Workers,
    who: Framework,
    threads: usize,
    key: &str,
    seconds: f64,
) -> Result<f64, String> {
    let answer = workers.ask(who, threads, &format!("run {key} {seconds}"))?;
    match (answer["seconds"].as_f64(), answer["count"].as_f64()) {
        (Some(took), Some(count)) if count > 0.0 => Ok(took / count),
        _ => Err("an answer without a time".into()),
    }
}
