//! `cargo xtask gpu-gates`: what training steps at full size and the machine code of kernels ask of a GPU, counted without one and held
//! against what they asked last.
//!
//! The program trains on the emulated driver, which computes nothing (`KILN_EMULATOR_EXECUTE=0`) and writes a launch trace. The last step of
//! the run is one launch of a recorded graph, or what it has more than a run of one step less; its kernels, copies and fills are counted. The
//! memory is the most that was allocated on the device, up to the end of that step and in the whole run, whose validation is computed op by op
//! beside the recording.
//! kernels/gates.toml has a row for each step. `streamed_bytes` are those that kernels beside products read and write: divided by the bytes of all
//! results of convolutions they are the passes over activations beside them.

use crate::counters;
use crate::emulated::{forecast, programs, trained};
use crate::machine_code::gates::Gates;
use crate::machine_code::{self, figures};
use crate::parallel::in_order;
use crate::toolkit::{self, Toolkit};
use crate::workspace::{Outcome, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

#[derive(clap::Args)]
#[command(after_help = "\
A count above that of kernels/gates.toml is a failure, and so is a figure of the machine code that is worse. Where a change is meant to
have that cost, or has made a step or a kernel better, --write puts today's values there, for the change's reviewer to see.
A new step is a row with `id` and `train`, the arguments of `kiln train`, and --write. modelled_h100_ns is what `kiln forecast` says of it,
modelled and not measured; it may grow by 2 %. crates/forecast/data/kernels.tsv, the figures of kernels that it stands on, must be of today's
machine code; --write writes it too.")]
pub(crate) struct Args {
    /// Write today's counts to kernels/gates.toml
    #[arg(long)]
    write: bool,
    /// Only steps and kernels whose id has this in it
    #[arg(value_name = "WORD")]
    filter: Option<String>,
}

impl Args {
    /// Every step, and nothing is written.
    pub(crate) fn all() -> Self {
        Self {
            write: false,
            filter: None,
        }
    }
}

const FILE: &str = "kernels/gates.toml";

/// The comment at the top of the file.
const HEADER: &str = "\
# What training steps at full size ask of a GPU, counted by `cargo xtask gpu-gates` with the emulated driver, which is part of `cargo
# xtask test`: a count that grows fails by its name. `train` is what `kiln train` is given; `goal` is what a count should come down to.
";

/// Steps of a run: one op by op, one recorded, one replayed, and one more whose memory is that of any later one.
const STEPS: u32 = 4;

/// The modelled time of a step: not a count, and it may grow by a fiftieth.
const MODELLED: &str = "modelled_h100_ns";

/// The bytes that pass through kernels beside products, convolutions and attention, which are those whose names begin so.
const STREAMED: &str = "streamed_bytes";
const PRODUCTS: [&str; 4] = ["matmul_", "linear_", "conv_", "attention_"];

/// The most memory of a run.
const RUN_PEAK: &str = "run_peak_bytes";

/// The counts of a step by name.
type Counts = BTreeMap<String, u64>;

#[derive(Clone, Debug, PartialEq)]
struct Step {
    id: String,
    train: String,
    today: Counts,
    goal: Counts,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let path = root().join(FILE);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("cannot read {FILE}: {e}"))?;
    let mut steps = parse(&text)?;
    let mut code = Gates::parse(&table(&text)?)?;
    let mut small = counters::Gates::parse(&table(&text)?)?;
    if let Toolkit::Missing(why) = toolkit::ensure() {
        println!("gates of the GPU were left out: {why}");
        return Ok(true);
    }
    let mut well = code.check(args.filter.as_deref())? || args.write;
    if args.filter.as_deref().is_none_or(|word| figures::FILE.contains(word)) {
        well &= table_of_kernels(args.write)?;
    }
    let chosen = |step: &Step| args.filter.as_ref().is_none_or(|word| step.id.contains(word));
    if steps.iter().any(chosen) {
        well &= count_all(&mut steps, chosen)? || args.write;
    }
    well &= small.check(args.filter.as_deref())? || args.write;
    if args.write {
        let text = shown(&steps) + &code.shown() + &small.shown();
        std::fs::write(&path, text).map_err(|e| format!("cannot write {FILE}: {e}"))?;
    }
    Ok(well)
}

/// True if the table of kernels that `kiln forecast` has is of today's machine code, which it is after it was written.
fn table_of_kernels(write: bool) -> Outcome {
    // Where nvdisasm cannot be had, the gates of machine code have said so.
    let Ok(tool) = machine_code::disassembler() else {
        return Ok(true);
    };
    let all = machine_code::read(&tool, &machine_code::ARCHS)?;
    match write {
        true => figures::write(&all).map(|()| true),
        false => figures::is_current(&all),
    }
}

/// Counts the chosen steps, several at once; false if a count has grown. The steps have today's counts afterwards.
fn count_all(steps: &mut [Step], chosen: impl Fn(&Step) -> bool) -> Outcome {
    let Some(programs) = programs()? else { return Ok(false) };
    let mut steps: Vec<&mut Step> = steps.iter_mut().filter(|step| chosen(step)).collect();
    let trains: Vec<String> = steps.iter().map(|step| step.train.clone()).collect();
    let mut well = true;
    let count = |train: &String| measure(&programs, train);
    in_order(&trains, count, |at, counts| -> Result<(), String> {
        let step = &mut *steps[at];
        let counts = counts.map_err(|e| format!("{}: {e}", step.id))?;
        println!("{}", row(step, &counts));
        for (name, was, is) in grown(&step.today, &counts) {
            println!("  {}: {name} grew from {was} to {is}", step.id);
            well = false;
        }
        for name in lost(&step.today, &counts) {
            println!("  {}: {name} could not be counted; steps may run op by op", step.id);
            well = false;
        }
        step.today = counts;
        Ok(())
    })?;
    Ok(well)
}

/// One line about a step: each count, what it was and what it should come down to.
fn row(step: &Step, counts: &Counts) -> String {
    let mut line = format!("{:28}", step.id);
    for (name, is) in counts {
        let _ = write!(line, "  {name} {is}");
        if let Some(was) = step.today.get(name).filter(|was| *was != is) {
            let _ = write!(line, " (was {was})");
        }
        if let Some(goal) = step.goal.get(name) {
            let _ = write!(line, " (goal {goal})");
        }
    }
    line
}

/// The counts that are larger than they were: name, before, now.
fn grown<'a>(before: &'a Counts, now: &'a Counts) -> impl Iterator<Item = (&'a str, u64, u64)> {
    let pairs = now
        .iter()
        .filter_map(|(name, is)| Some((name.as_str(), *before.get(name)?, *is)));
    pairs.filter(|(name, was, is)| *is > was + if *name == MODELLED { was / 50 } else { 0 })
}

/// The names of counts that are there no more, such as those of recorded steps alone.
fn lost<'a>(before: &'a Counts, now: &'a Counts) -> impl Iterator<Item = &'a str> {
    before
        .keys()
        .map(String::as_str)
        .filter(|name| !now.contains_key(*name))
}

/// Trains a few steps of a network on the device that computes nothing, and counts the last one; and what it would take, modelled. Of a
/// network whose steps run op by op, for what the host decides by their values, which are zeros here, the last step is what a run of one
/// step less lacks.
fn measure(programs: &Path, train: &str) -> Result<Counts, String> {
    let run = trained(programs, train, STEPS, false)?;
    let counted = count(&run.trace)?;
    let Some(mut counts) = counted.step else {
        let before = count(&trained(programs, train, STEPS - 1, false)?.trace)?.run;
        return Ok(difference(&counted.run, &before));
    };
    counts.insert(STREAMED.to_string(), streamed(&run.launches)?);
    counts.insert(MODELLED.to_string(), forecast(programs, train)?);
    Ok(counts)
}

/// The counts of the last step of a run by those of the run and of one that is a step shorter. The memory is the run's.
fn difference(run: &Counts, before: &Counts) -> Counts {
    let less = |name: &str| match name {
        RUN_PEAK => 0,
        _ => before.get(name).copied().unwrap_or(0),
    };
    let each = run.iter().map(|(name, n)| (name.clone(), n.saturating_sub(less(name))));
    each.collect()
}

/// The bytes that the kernels of the last recorded step are given, read or written, but for products, convolutions and attention.
fn streamed(log: &str) -> Result<u64, String> {
    let mut bytes = 0;
    for line in log.lines() {
        let launch: Value = serde_json::from_str(line).map_err(|e| format!("`{line}` in the launch log: {e}"))?;
        let Some(kernel) = launch["kernel"].as_str() else {
            bytes = 0;
            continue;
        };
        if PRODUCTS.iter().any(|start| kernel.starts_with(start)) {
            continue;
        }
        let given = ["args", "kept"].into_iter().filter_map(|key| launch[key].as_array());
        bytes += given.flatten().filter_map(Value::as_u64).sum::<u64>();
    }
    Ok(bytes)
}

/// The counts of a trace.
#[derive(Debug, PartialEq)]
struct Counted {
    /// Those of the last recorded step, and the most memory up to its end and of the whole; `None` if every step ran op by op.
    step: Option<Counts>,
    /// Those of the whole.
    run: Counts,
}

/// Counts a trace.
fn count(trace: &str) -> Result<Counted, String> {
    let (mut last, mut open, mut run) = (None, None, Counts::new());
    let (mut peak, mut in_steps) = (0, 0);
    for line in trace.lines() {
        let event: Value = serde_json::from_str(line).map_err(|e| format!("`{line}` in the launch trace: {e}"))?;
        match event["graph"].as_str() {
            Some("begin") => open = Some(Counts::new()),
            Some(_) => {
                last = open.take().or(last);
                in_steps = peak;
            }
            None => {}
        }
        peak = event["used"].as_u64().map_or(peak, |used| peak.max(used));
        for counts in open.iter_mut().chain([&mut run]) {
            for (key, name) in [("kernel", "kernels"), ("copy", "copies"), ("fill", "fills")] {
                *counts.entry(name.to_string()).or_default() += u64::from(!event[key].is_null());
            }
        }
    }
    run.insert(RUN_PEAK.to_string(), peak);
    let step = last.map(|mut counts: Counts| {
        counts.insert("peak_bytes".to_string(), in_steps);
        counts.insert(RUN_PEAK.to_string(), peak);
        counts
    });
    Ok(Counted { step, run })
}

fn table(text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|e| format!("{FILE}: {e}"))
}

fn parse(text: &str) -> Result<Vec<Step>, String> {
    let wrong = |what: &str| format!("{FILE}: {what}");
    let table = table(text)?;
    let numbers = |value: Option<&toml::Value>| -> Counts {
        let table = value.and_then(toml::Value::as_table).into_iter().flatten();
        table
            .filter_map(|(name, n)| Some((name.clone(), u64::try_from(n.as_integer()?).ok()?)))
            .collect()
    };
    let rows = table.get("step").and_then(toml::Value::as_array);
    let rows = rows.ok_or_else(|| wrong("there is no [[step]]"))?;
    rows.iter()
        .map(|row| {
            let text = |key: &str| {
                let found = row.get(key).and_then(toml::Value::as_str).map(String::from);
                found.ok_or_else(|| wrong(&format!("a step has no `{key}`")))
            };
            Ok(Step {
                id: text("id")?,
                train: text("train")?,
                today: numbers(row.get("today")),
                goal: numbers(row.get("goal")),
            })
        })
        .collect()
}

fn shown(steps: &[Step]) -> String {
    let mut out = HEADER.to_string();
    for step in steps {
        let _ = write!(out, "\n[[step]]\nid = \"{}\"\ntrain = \"{}\"\n", step.id, step.train);
        for (key, counts) in [("today", &step.today), ("goal", &step.goal)] {
            if !counts.is_empty() {
                let list: Vec<_> = counts.iter().map(|(name, n)| format!("{name} = {n}")).collect();
                let _ = writeln!(out, "{key} = {{ {} }}", list.join(", "));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(list: &[(&str, u64)]) -> Counts {
        list.iter().map(|(name, n)| (name.to_string(), *n)).collect()
    }

    #[test]
    fn the_last_graph_of_a_trace_is_counted() {
        let trace = r#"
            {"allocate":100,"at":"0x10","device":0,"used":100}
            {"kernel":"a","grid":[1,1,1],"block":[1,1,1],"shared":0,"device":0,"params":[]}
            {"graph":"begin"}
            {"kernel":"a","grid":[1,1,1],"block":[1,1,1],"shared":0,"device":0,"params":[]}
            {"graph":"end"}
            {"allocate":50,"at":"0x20","device":0,"used":150}
            {"free":50,"at":"0x20","device":0,"used":100}
            {"graph":"begin"}
            {"kernel":"a","grid":[1,1,1],"block":[1,1,1],"shared":0,"device":0,"params":[]}
            {"copy":"device to device","bytes":4}
            {"kernel":"b","grid":[1,1,1],"block":[1,1,1],"shared":0,"device":0,"params":[]}
            {"fill":4}
            {"graph":"end"}
            {"allocate":90,"at":"0x30","device":0,"used":190}
            {"copy":"device to host","bytes":4}"#;
        let trace: String = trace.trim().lines().map(|line| format!("{}\n", line.trim())).collect();
        let wanted = counts(&[
            ("kernels", 2),
            ("copies", 1),
            ("fills", 1),
            ("peak_bytes", 150),
            ("run_peak_bytes", 190),
        ]);
        let counted = count(&trace).unwrap();
        assert_eq!(counted.step, Some(wanted));
        let run = [("kernels", 4), ("copies", 2), ("fills", 1), ("run_peak_bytes", 190)];
        assert_eq!(counted.run, counts(&run));
        assert_eq!(count("{\"fill\":4}").unwrap().step, None);
        assert!(count("no json").is_err());
    }

    #[test]
    fn a_step_that_is_not_recorded_is_what_a_shorter_run_lacks() {
        let run = counts(&[("kernels", 50), ("copies", 7), ("run_peak_bytes", 190)]);
        let before = counts(&[("kernels", 30), ("copies", 7), ("run_peak_bytes", 180)]);
        let step = counts(&[("kernels", 20), ("copies", 0), ("run_peak_bytes", 190)]);
        assert_eq!(difference(&run, &before), step);
    }

    #[test]
    fn bytes_beside_products_are_those_of_the_last_capture() {
        let log = r#"{"capture":"begin"}
{"kernel":"a","grid":[1,1,1],"block":[1,1,1],"shared":0,"args":[5],"kept":[]}
{"capture":"begin"}
{"kernel":"norm_apply_f32","grid":[1,1,1],"block":[1,1,1],"shared":0,"args":["0100",100,null,50],"kept":[7]}
{"kernel":"conv_naive_f32","grid":[1,1,1],"block":[1,1,1],"shared":0,"args":[1000],"kept":[]}"#;
        assert_eq!(streamed(log), Ok(157));
        assert!(streamed("no json").is_err());
    }

    #[test]
    fn what_grew_is_named_and_what_shrank_is_not() {
        let (before, now) = (
            counts(&[("a", 3), ("b", 5), ("c", 1)]),
            counts(&[("a", 4), ("b", 4), ("c", 1), ("d", 9)]),
        );
        assert_eq!(grown(&before, &now).collect::<Vec<_>>(), [("a", 3, 4)]);
        assert_eq!(lost(&before, &now).count(), 0);
        assert_eq!(lost(&now, &before).collect::<Vec<_>>(), ["d"]);
        // What is modelled may grow by two in a hundred.
        let at = |n| counts(&[(MODELLED, n)]);
        assert_eq!(grown(&at(1000), &at(1020)).count(), 0);
        assert_eq!(grown(&at(1000), &at(1021)).count(), 1);
    }

    #[test]
    fn rows_are_written_as_they_are_read() {
        let steps = vec![
            Step {
                id: "net/b4".into(),
                train: "net --batch 4".into(),
                today: counts(&[("kernels", 7), ("peak_bytes", 1 << 40)]),
                goal: counts(&[("kernels", 3)]),
            },
            Step {
                id: "other".into(),
                train: "other".into(),
                today: Counts::new(),
                goal: Counts::new(),
            },
        ];
        assert_eq!(parse(&shown(&steps)), Ok(steps));
        assert!(parse("[[step]]\nid = \"a\"").is_err() && parse("nothing").is_err());
    }

    #[test]
    fn the_file_of_the_workspace_has_counts_for_every_step() {
        let text = std::fs::read_to_string(root().join(FILE)).unwrap();
        let steps = parse(&text).unwrap();
        let code = Gates::parse(&table(&text).unwrap()).unwrap();
        let small = counters::Gates::parse(&table(&text).unwrap()).unwrap();
        assert_eq!(
            shown(&steps) + &code.shown() + &small.shown(),
            text,
            "written by --write"
        );
        assert!(steps.iter().all(|step| step.today.contains_key("kernels")), "{steps:?}");
    }
}
