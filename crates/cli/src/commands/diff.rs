//! `kiln diff`: two runs side by side.

use crate::args::DiffArgs;
use crate::config::flat;
use crate::error::{Error, Result};
use crate::output::{self, line, number, table};
use crate::record::{RunRecord, value};
use kiln_cpu::Cpu;
use kiln_files::shown_path;
use kiln_nn::module::StateDict;
use kiln_train::RunFolder;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// A difference of the weights of two runs.
struct Weights {
    tensors: usize,
    differing: usize,
    /// The tensor with the largest difference, and that.
    most: Option<(String, f64)>,
    /// The 2-norm of the difference over that of the first.
    relative: f64,
}

/// Compares the last weights of two runs; `None` if they are of different models.
fn weights_of(a: &Path, b: &Path) -> Result<Option<Weights>> {
    let open = |folder: &Path| -> Result<StateDict<Cpu>> {
        let path = folder.join(RunFolder::LAST);
        let read = kiln_nn::weights::read(&path, &Cpu::new());
        Ok(read.map_err(|e| Error::failure(e.to_string()))?.0)
    };
    let (a, b) = (open(a)?, open(b)?);
    let names = |dict: &StateDict<Cpu>| dict.names().map(str::to_string).collect::<BTreeSet<_>>();
    if names(&a) != names(&b) {
        return Ok(None);
    }
    let mut found = Weights {
        tensors: 0,
        differing: 0,
        most: None,
        relative: 0.0,
    };
    let (mut squares, mut of) = (0.0, 0.0);
    for name in names(&a) {
        let (Some(a), Some(b)) = (a.float(&name), b.float(&name)) else {
            continue;
        };
        if a.shape() != b.shape() {
            return Ok(None);
        }
        let pairs = a.to_f64()?.into_iter().zip(b.to_f64()?);
        let mut largest = 0.0f64;
        for (a, b) in pairs {
            largest = largest.max((a - b).abs());
            squares += (a - b) * (a - b);
            of += a * a;
        }
        found.tensors += 1;
        found.differing += usize::from(largest > 0.0);
        if largest > found.most.as_ref().map_or(0.0, |(_, most)| *most) {
            found.most = Some((name, largest));
        }
    }
    found.relative = if squares == 0.0 { 0.0 } else { (squares / of).sqrt() };
    Ok(Some(found))
}

/// The settings that differ: key and the two values.
fn settings(a: &RunRecord, b: &RunRecord) -> Vec<(String, Option<Value>, Option<Value>)> {
    let (a, b) = (flat(&a.config), flat(&b.config));
    let find = |of: &[(String, Value)], key: &str| of.iter().find(|(k, _)| k == key).map(|(_, value)| value.clone());
    let keys: BTreeSet<&String> = a.iter().chain(&b).map(|(key, _)| key).collect();
    let rows = keys.into_iter().map(|key| (key.clone(), find(&a, key), find(&b, key)));
    rows.filter(|(_, a, b)| a != b).collect()
}

pub(crate) fn run(args: DiffArgs) -> Result<u8> {
    let (a, b) = (RunRecord::read(&args.a)?, RunRecord::read(&args.b)?);
    let settings = settings(&a, &b);
    let weights = weights_of(&args.a, &args.b)?;
    if args.json {
        let epochs = |run: &RunRecord| serde_json::to_value(&run.epochs).unwrap_or_default();
        let different = settings.iter().map(|(key, a, b)| (key.clone(), json!([a, b])));
        output::json(&json!({
            "settings": different.collect::<serde_json::Map<_, _>>(),
            "ends": [&a.summary["reason"], &b.summary["reason"]],
            "epochs": [epochs(&a), epochs(&b)],
            "weights": weights.map(|w| json!({
                "tensors": w.tensors,
                "differing": w.differing,
                "largest": w.most.map(|(name, difference)| json!({ "tensor": name, "difference": difference })),
                "relative": w.relative,
            })),
        }));
        return Ok(0);
    }
    let names = [&args.a, &args.b].map(|path| shown_path(path).to_string());
    for ((run, path), name) in [(&a, &args.a), (&b, &args.b)].into_iter().zip(&names) {
        run.end(path).iter().for_each(|end| line(&format!("{name}: {end}")));
    }
    match settings.is_empty() {
        true => line("settings: all equal"),
        false => {
            let shown = |value: &Option<Value>| value.as_ref().map_or("-".to_string(), Value::to_string);
            let rows: Vec<_> = settings
                .iter()
                .map(|(key, a, b)| vec![key.clone(), shown(a), shown(b)])
                .collect();
            line(&table(&["setting", &names[0], &names[1]], &rows));
        }
    }
    line("");
    line(&epochs(&a, &b, &names));
    line("");
    line(&match weights {
        None => "weights: of different models".to_string(),
        Some(Weights {
            most: None, tensors, ..
        }) => format!("weights: all {tensors} tensors are equal"),
        Some(Weights {
            tensors,
            differing,
            most: Some((name, largest)),
            relative,
        }) => format!(
            "weights: {differing} of {tensors} tensors differ, by {} of their norm, `{name}` the most: by up to {}",
            number(round(relative)),
            number(round(largest))
        ),
    });
    Ok(0)
}

/// A number with three digits.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// A table of the epochs: the loss and the monitored metric of both runs, on the validation set if there is one.
fn epochs(a: &RunRecord, b: &RunRecord, names: &[String; 2]) -> String {
    let mut measured = vec!["loss"];
    measured.extend(
        [a.monitored(), b.monitored()]
            .into_iter()
            .filter(|name| *name != "loss"),
    );
    measured.dedup();
    let mut header = vec!["epoch".to_string()];
    for name in &measured {
        header.extend(names.iter().map(|run| format!("{name} {run}")));
    }
    let cell = |run: &RunRecord, at: usize, name: &str| {
        let value = run.epochs.get(at).and_then(|epoch| value(epoch, name));
        let best = name == run.monitored() && run.best().is_some_and(|best| best.epoch == at as u64 + 1);
        value.map_or("-".to_string(), |v| format!("{v:.4}{}", if best { "*" } else { " " }))
    };
    let rows: Vec<Vec<String>> = (0..a.epochs.len().max(b.epochs.len()))
        .map(|at| {
            let mut row = vec![(at + 1).to_string()];
            for name in &measured {
                row.extend([cell(a, at, name), cell(b, at, name)]);
            }
            row
        })
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table(&header, &rows)
}
