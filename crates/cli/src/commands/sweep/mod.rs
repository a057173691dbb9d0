//! `kiln sweep`: runs over a grid or random draws of settings, and a table of their results.

mod choices;

use crate::args::SweepArgs;
use crate::child::ChildRun;
use crate::config::{self, RunConfig, Settings};
use crate::error::{Error, Result, code};
use crate::output::{self, counted, line, number, table};
use crate::record::{RunRecord, value};
use crate::signals::Signals;
use choices::{Choice, Varied};
use kiln_files::{shown_path, write_atomic};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Settings on which no result depends, which may differ when a sweep goes on.
const FREE: [&str; 2] = ["device.name", "device.threads"];

/// A run of the sweep.
struct Run {
    name: String,
    choice: Choice,
    config: RunConfig,
}

/// The results of a run: the best value of the monitored metric, its epoch, and the seconds of training.
struct Ended {
    best: Option<f64>,
    epoch: Option<u64>,
    seconds: f64,
}

/// The runs of a sweep, in the order of their names.
fn runs(args: &SweepArgs, varied: &[Varied]) -> Result<Vec<Run>> {
    let base = config::combined(&args.config)?;
    let choices = match args.random {
        Some(count) => choices::random(varied, count.get(), args.draw_seed),
        None => choices::grid(varied)?,
    };
    let digits = choices.len().to_string().len();
    let jobs = args.jobs.get().min(choices.len().max(1) as u64);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let run = |(i, choice): (usize, Choice)| {
        let mut config = base.clone();
        if jobs > 1 && config.device.threads.is_none() {
            // Runs that go on at the same time share the cores.
            config.device.threads = (cores / jobs).max(1).try_into().ok();
        }
        for (setting, value) in varied.iter().zip(&choice) {
            config = config::changed(&config, &config::set(&format!("{}={value}", setting.key))?)?.0;
        }
        // Settings that do not fit together are errors before the first run.
        let settings = Settings::of(config)?;
        let device = settings.device.name.unwrap_or_default();
        Ok(Run {
            name: format!("{:0digits$}", i + 1),
            config: settings.config(&String::from(device)),
            choice,
        })
    };
    choices.into_iter().enumerate().map(run).collect()
}

/// Runs to the end in a folder of `parent`: anew, or from where it stopped if the sweep was stopped.
fn execute(run: &Run, parent: &Path, signals: &Signals) -> Result<Ended> {
    let folder = parent.join(&run.name);
    let settings = folder.with_extension("json");
    let child = match folder.is_dir() {
        true => {
            let saved = RunRecord::read(&folder)?;
            let (_, changed) = config::changed(&saved.config, &run.config)?;
            if let Some(key) = changed.iter().find(|key| !FREE.contains(&key.as_str())) {
                return Err(
                    Error::failure(format!("{}: a run with another `{key}`", shown_path(&folder)))
                        .help("name another folder with --out"),
                );
            }
            ChildRun::resume(&folder, &signals.stop_handle())?
        }
        false => {
            config::write(&settings, &run.config)?;
            ChildRun::start(&settings, &folder, &signals.stop_handle())?
        }
    };
    let ended = child.end();
    if ended.is_ok() {
        let _ = std::fs::remove_file(&settings);
    }
    ended?;
    let record = RunRecord::read(&folder)?;
    let best = record.best();
    Ok(Ended {
        best: best.and_then(|best| value(best, record.monitored())),
        epoch: best.map(|best| best.epoch),
        seconds: record.epochs.iter().map(|epoch| epoch.seconds).sum(),
    })
}

/// Carries out all runs, so many at a time, and tells of each at its end. A request to stop ends those that go on, and begins no other.
fn executed<'r>(
    runs: &'r [Run],
    jobs: usize,
    parent: &Path,
    signals: &Signals,
    tell: &(dyn Fn(&Run, &Result<Ended>) + Sync),
) -> Vec<(&'r Run, Result<Ended>)> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let ended = execute(run, parent, signals);
            if signals.exit_code().is_some() {
                return;
            }
            // A worker that panicked has left whole results behind.
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            tell(run, &ended);
            results.push((run, ended));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.min(runs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    results
}

/// A text with commas and quotes as a field of CSV (RFC 4180).
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

pub(crate) fn run(args: SweepArgs) -> Result<u8> {
    let varied = args
        .over
        .iter()
        .map(|text| Varied::parse(text))
        .collect::<Result<Vec<_>>>()?;
    let runs = runs(&args, &varied)?;
    let Some(model) = runs.first().and_then(|run| run.config.model) else {
        return Err(Error::usage("a sweep of no runs"));
    };
    let (metric, larger) = model.card().monitor;
    let signals = Signals::install()?;
    let parent = match &args.config.flags.out {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("runs/sweep-{model}")),
    };
    std::fs::create_dir_all(&parent).map_err(|e| Error::failure(format!("{}: {e}", shown_path(&parent))))?;
    if !args.json {
        line(&format!(
            "{} in {}",
            counted(runs.len() as u64, "run"),
            shown_path(&parent)
        ));
    }
    let tell = |run: &Run, ended: &Result<Ended>| match args.json {
        true => output::json(&event(run, &varied, ended, metric)),
        false => line(&format!(
            "run {} of {}: {}",
            run.name,
            runs.len(),
            told(run, ended, metric)
        )),
    };
    let mut results = executed(&runs, args.jobs.get() as usize, &parent, &signals, &tell);
    if let Some(code) = signals.exit_code() {
        return Ok(code);
    }
    let failed = results.iter().filter(|(_, ended)| ended.is_err()).count();
    let order = |ended: &Result<Ended>| {
        let best = ended.as_ref().ok().and_then(|e| e.best).unwrap_or(f64::NAN);
        match (best.is_nan(), larger) {
            (true, _) => f64::INFINITY,
            (false, true) => -best,
            (false, false) => best,
        }
    };
    results.sort_by(|a, b| order(&a.1).total_cmp(&order(&b.1)));
    let mut header: Vec<&str> = vec!["run"];
    header.extend(varied.iter().map(|setting| setting.key.as_str()));
    header.extend([metric, "epoch", "seconds"]);
    let rows: Vec<Vec<String>> = results.iter().map(|(run, ended)| row(run, ended)).collect();
    let lines = std::iter::once(header.iter().map(|h| field(h)).collect::<Vec<_>>())
        .chain(rows.iter().map(|row| row.iter().map(|cell| field(cell)).collect()));
    let csv: String = lines.map(|cells| cells.join(",") + "\r\n").collect();
    write_atomic(parent.join("sweep.csv"), csv.as_bytes())?;
    if !args.json {
        line("");
        line(&table(&header, &rows));
        line(&format!("saved: {}", shown_path(&parent.join("sweep.csv"))));
    }
    Ok(if failed > 0 { code::FAILURE } else { 0 })
}

fn told(run: &Run, ended: &Result<Ended>, metric: &str) -> String {
    let choice = run.choice.join(" ");
    match ended {
        Ok(Ended {
            best: Some(best),
            epoch,
            ..
        }) => {
            format!("{choice}: {metric} {best:.4} in epoch {}", epoch.unwrap_or_default())
        }
        Ok(_) => format!("{choice}: no best epoch"),
        Err(error) => format!("{choice}: {}", error.message),
    }
}

fn event(run: &Run, varied: &[Varied], ended: &Result<Ended>, metric: &str) -> serde_json::Value {
    let settings = varied
        .iter()
        .zip(&run.choice)
        .map(|(s, value)| (s.key.clone(), value.clone().into()));
    json!({
        "run": run.name,
        "settings": settings.collect::<serde_json::Map<_, _>>(),
        "metric": metric,
        "best": ended.as_ref().ok().and_then(|e| e.best),
        "epoch": ended.as_ref().ok().and_then(|e| e.epoch),
        "seconds": ended.as_ref().ok().map(|e| e.seconds),
        "error": ended.as_ref().err().map(|e| &e.message),
    })
}

fn row(run: &Run, ended: &Result<Ended>) -> Vec<String> {
    let mut row = vec![run.name.clone()];
    row.extend(run.choice.clone());
    row.extend(match ended {
        Ok(ended) => [
            ended.best.map_or("-".to_string(), |best| format!("{best:.4}")),
            ended.epoch.map_or("-".to_string(), |epoch| epoch.to_string()),
            number((ended.seconds * 10.0).round() / 10.0),
        ],
        Err(_) => ["failed", "-", "-"].map(str::to_string),
    });
    row
}
