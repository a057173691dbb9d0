//! The memory of training: the most that a process has resident which loads a row of networks and takes its twenty steps.

use super::framework::Framework;
use super::nets::{losses_of, settings, written};
use super::plan::Plan;
use super::report::{Entry, Measure};
use super::rounds::{Rounds, difference};
use super::rows::NetRow;
use super::workers::Workers;
use std::path::Path;

/// Measures a row, each setting of each framework in a process of its own; `None` if Kiln cannot be measured.
pub(super) fn measure(workers: &mut Workers, row: &NetRow, plan: &Plan) -> Option<Entry> {
    let id = row.memory_id();
    let tell = |label: &str, e: String| println!("  {label}: {e}");
    println!("\n{id}");
    let file = written(workers, row, plan)
        .inspect_err(|e| tell("kiln", e.clone()))
        .ok()?;
    let mut entry = Entry::new(&id);
    entry.measure = Measure::Bytes;
    let kiln = resident(workers, Framework::Kiln, "default", row, plan, &file);
    let (bytes, reference) = kiln.map_err(|e| tell("kiln", e)).ok()?;
    entry.kiln = Some(bytes);
    let mut least: Option<f64> = None;
    for &who in plan.peers(&Framework::NETS) {
        let mut settings = settings(workers, who, plan.threads, row.pass);
        settings.truncate(if plan.quick { 1 } else { settings.len() });
        for setting in settings {
            let label = format!("{} {setting}", who.label());
            match resident(workers, who, &setting, row, plan, &file) {
                Err(e) => tell(&label, e),
                Ok((bytes, losses)) => {
                    let apart = difference(&losses, &reference);
                    entry.apart.push((label.clone(), apart));
                    if apart > row.tolerance() {
                        tell(
                            &label,
                            format!("its losses differ by {apart:.1e}, so its memory does not count"),
                        );
                        continue;
                    }
                    entry.add_peer(who, &setting, bytes);
                    if least.is_none_or(|b| bytes < b) {
                        least = Some(bytes);
                        entry.best = Some((who, setting));
                    }
                }
            }
        }
    }
    let sides = Rounds {
        seconds: vec![vec![entry.kiln?], least.into_iter().collect()],
    };
    entry.ratio = sides.ratio(1);
    let _ = std::fs::remove_file(&file);
    println!("  {}", entry.line());
    Some(entry)
}

/// The peak resident memory in bytes of a new process, and the losses of its steps.
fn resident(
    workers: &Workers,
    who: Framework,
    setting: &str,
    row: &NetRow,
    plan: &Plan,
    file: &Path,
) -> Result<(f64, Vec<f64>), String> {
    let mut worker = workers.fresh(who, plan.threads)?;
    let loaded = worker.ask(&format!("load k {setting} {} {}", row.id(), file.display()))?;
    let bytes = worker.ask("rss")?["rss"].as_f64().ok_or("the system does not tell")?;
    Ok((bytes, losses_of(&loaded)))
}
