//! `cargo xtask counters`: what kernels ask of memory, counted by the emulated driver while it computes, per kernel and readable.
//!
//! The rows `[[counters]]` of kernels/gates.toml hold some small runs to what they asked last.

use crate::emulated::{Trained, programs, trained};
use crate::parallel::in_order;
use crate::toolkit::{self, Toolkit};
use crate::workspace::Outcome;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(clap::Args)]
#[command(after_help = "\
A row is a kernel: launches; statements of PTX that its warps carried out; of 32 lanes those that took part; branches that split a warp;
sectors of global memory over the fewest that hold the bytes of each request; wavefronts of shared memory over the fewest; what a
warp has under way when it waits for copies; and the place with the most sectors or wavefronts above the fewest.
  cargo xtask counters lenet --synthetic 20 --batch 4
  cargo xtask counters --kernel matmul gpt-mini --synthetic 20 --batch 1 --precision bf16
Kernels are carried out, so take small batches. crates/emulator/README.md says what is counted.")]
pub(crate) struct Args {
    /// Only kernels with this in their name
    #[arg(long, value_name = "WORD")]
    kernel: Option<String>,
    /// The arguments of `kiln train`
    #[arg(
        value_name = "TRAIN",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true
    )]
    train: Vec<String>,
}

/// Steps of a run: enough for every kernel of a step, once.
const STEPS: u32 = 1;

pub(crate) fn run(args: &Args) -> Outcome {
    if let Toolkit::Missing(why) = toolkit::ensure() {
        println!("nothing was counted: {why}");
        return Ok(true);
    }
    let Some(programs) = programs()? else { return Ok(false) };
    let mut kernels = count(&programs, &args.train.join(" "))?;
    kernels.retain(|name, _| args.kernel.as_ref().is_none_or(|word| name.contains(word)));
    print!("{}", shown(&kernels));
    Ok(!kernels.is_empty())
}

/// Requests and what they took, beside the fewest that they could have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Traffic {
    parts: u64,
    minimum: u64,
}

impl Traffic {
    fn add(&mut self, access: &Value) {
        let number = |key: &str| access[key].as_u64().unwrap_or(0);
        self.parts += number("sectors") + number("wavefronts");
        self.minimum += number("minimum");
    }

    /// The quotient; `None` if there was no request.
    fn over(&self) -> Option<f64> {
        (self.minimum > 0).then(|| self.parts as f64 / self.minimum as f64)
    }
}

/// The sums over all launches of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kernel {
    launches: u64,
    instructions: u64,
    active_lanes: u64,
    branches: u64,
    split_branches: u64,
    global: Traffic,
    shared: Traffic,
    /// Of those, accesses within loops.
    shared_in_loops: Traffic,
    /// Bytes under way at waits, and the number of waits.
    under_way: (u64, u64),
    places: BTreeMap<String, Traffic>,
}

type Kernels = BTreeMap<String, Kernel>;

/// Trains a step and adds up the counters of its launches by kernel.
fn count(programs: &std::path::Path, train: &str) -> Result<Kernels, String> {
    let Trained { counters, .. } = trained(programs, train, STEPS, true)?;
    read(&counters)
}

fn read(text: &str) -> Result<Kernels, String> {
    let mut kernels = Kernels::new();
    for line in text.lines() {
        let launch: Value = serde_json::from_str(line).map_err(|e| format!("`{line}` in the counters: {e}"))?;
        let number = |key: &str| launch[key].as_u64().unwrap_or(0);
        let kernel = kernels
            .entry(launch["kernel"].as_str().unwrap_or_default().to_string())
            .or_default();
        kernel.launches += 1;
        kernel.instructions += number("instructions");
        kernel.active_lanes += number("active_lanes");
        kernel.branches += number("branches");
        kernel.split_branches += number("split_branches");
        for access in launch["accesses"].as_array().into_iter().flatten() {
            let shared = access["space"] == "shared";
            let of = if shared { &mut kernel.shared } else { &mut kernel.global };
            of.add(access);
            if shared && !access["loop"].is_null() {
                kernel.shared_in_loops.add(access);
            }
            let file = access["file"].as_str().unwrap_or_default();
            let file = file.rsplit('/').next().unwrap_or_default();
            let place = format!(
                "{file}:{} {}",
                access["source_line"],
                access["opcode"].as_str().unwrap_or_default()
            );
            kernel.places.entry(place).or_default().add(access);
        }
        for wait in launch["waits"].as_array().into_iter().flatten() {
            kernel.under_way.0 += wait["under_way"]["sum"].as_u64().unwrap_or(0);
            kernel.under_way.1 += wait["under_way"]["count"].as_u64().unwrap_or(0);
        }
    }
    Ok(kernels)
}

fn shown(kernels: &Kernels) -> String {
    let mut out = String::from(
        "| kernel | launches | instructions | lanes | split | sectors/min | wavefronts/min | under way | most above the fewest |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let over = |traffic: &Traffic| traffic.over().map_or("-".to_string(), |n| format!("{n:.2}"));
    let percent = |part: u64, all: u64| match all {
        0 => "-".to_string(),
        all => format!("{:.0} %", 100.0 * part as f64 / all as f64),
    };
    for (name, k) in kernels {
        let worst = k.places.iter().max_by_key(|(_, t)| t.parts - t.minimum.min(t.parts));
        let worst = worst.filter(|(_, t)| t.parts > t.minimum);
        let place = worst.map_or("-".to_string(), |(place, t)| format!("{place} {}", over(t)));
        let under_way = match k.under_way {
            (_, 0) => "-".to_string(),
            (sum, count) => format!("{} B", sum / count),
        };
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {} | {} | {} | {} | {under_way} | {place} |",
            k.launches,
            k.instructions,
            percent(k.active_lanes, 32 * k.instructions),
            percent(k.split_branches, k.branches),
            over(&k.global),
            over(&k.shared),
        );
    }
    out
}

/// A row of kernels/gates.toml.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    id: String,
    train: String,
    today: BTreeMap<String, f64>,
    goal: BTreeMap<String, f64>,
}

/// The rows `[[counters]]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gates(Vec<Row>);

const HEADER: &str = "
# What the kernels of small steps ask of memory, counted by the emulated driver (`cargo xtask counters`): sectors of global memory, and
# wavefronts of shared memory within loops, over the fewest; a larger figure is a failure.
";

/// The figures of a row: over all kernels of the run.
fn figures(kernels: &Kernels) -> BTreeMap<String, f64> {
    let (mut global, mut shared) = (Traffic::default(), Traffic::default());
    for k in kernels.values() {
        for (sum, of) in [(&mut global, &k.global), (&mut shared, &k.shared_in_loops)] {
            sum.parts += of.parts;
            sum.minimum += of.minimum;
        }
    }
    let figures = [("sectors_over_minimum", global), ("wavefronts_over_minimum", shared)];
    let rounded = |n: f64| (n * 1000.0).round() / 1000.0;
    figures
        .iter()
        .filter_map(|(name, of)| Some((name.to_string(), rounded(of.over()?))))
        .collect()
}

impl Gates {
    pub(crate) fn parse(table: &toml::Table) -> Result<Gates, String> {
        let rows = table
            .get("counters")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten();
        let row = |value: &toml::Value| {
            let text = |key: &str| {
                let found = value.get(key).and_then(toml::Value::as_str).map(String::from);
                found.ok_or_else(|| format!("a row of counters has no `{key}`"))
            };
            let numbers = |key: &str| {
                let table = value.get(key).and_then(toml::Value::as_table).into_iter().flatten();
                let number = |n: &toml::Value| n.as_float().or_else(|| n.as_integer().map(|n| n as f64));
                table.filter_map(|(name, n)| Some((name.clone(), number(n)?))).collect()
            };
            Ok(Row {
                id: text("id")?,
                train: text("train")?,
                today: numbers("today"),
                goal: numbers("goal"),
            })
        };
        rows.map(row).collect::<Result<_, String>>().map(Gates)
    }

    pub(crate) fn shown(&self) -> String {
        let mut out = String::new();
        for (n, row) in self.0.iter().enumerate() {
            out += if n == 0 { HEADER } else { "\n" };
            let _ = write!(out, "[[counters]]\nid = \"{}\"\ntrain = \"{}\"\n", row.id, row.train);
            for (key, values) in [("today", &row.today), ("goal", &row.goal)] {
                if !values.is_empty() {
                    let list: Vec<_> = values.iter().map(|(name, n)| format!("{name} = {n}")).collect();
                    let _ = writeln!(out, "{key} = {{ {} }}", list.join(", "));
                }
            }
        }
        out
    }

    /// Counts the rows whose id has `filter` in it; false if a figure has grown. They have today's afterwards.
    pub(crate) fn check(&mut self, filter: Option<&str>) -> Outcome {
        let chosen = |row: &&mut Row| filter.is_none_or(|word| row.id.contains(word));
        let mut rows: Vec<&mut Row> = self.0.iter_mut().filter(chosen).collect();
        if rows.is_empty() {
            return Ok(true);
        }
        let Some(programs) = programs()? else { return Ok(false) };
        let mut well = true;
        let trains: Vec<String> = rows.iter().map(|row| row.train.clone()).collect();
        in_order(
            &trains,
            |train| count(&programs, train),
            |at, counted| -> Result<(), String> {
                let row = &mut *rows[at];
                let now = figures(&counted.map_err(|e| format!("{}: {e}", row.id))?);
                let mut line = format!("{:28}", row.id);
                for (name, is) in &now {
                    let _ = write!(line, "  {name} {is}");
                    if let Some(was) = row.today.get(name).filter(|was| *was != is) {
                        let _ = write!(line, " (was {was})");
                        well &= is <= was;
                    }
                    if let Some(goal) = row.goal.get(name).filter(|goal| is > goal) {
                        let _ = write!(line, " (goal {goal})");
                    }
                }
                println!("{line}");
                row.today = now;
                Ok(())
            },
        )?;
        Ok(well)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"kernel":"tile","instructions":10,"active_lanes":160,"branches":4,"split_branches":1,"accesses":[{"line":1,"opcode":"ld.global.f32","file":"/a/tile.cu","source_line":7,"loop":0,"space":"global","class":"load","requests":2,"sectors":10,"minimum":8,"bytes":256},{"line":2,"opcode":"ld.shared.f32","file":"/a/tile.cu","source_line":9,"loop":null,"space":"shared","class":"load","requests":1,"wavefronts":2,"minimum":1,"bytes":128}],"waits":[{"line":3,"opcode":"cp.async.wait_all","under_way":{"count":2,"sum":512,"min":256,"max":256}}]}"#;

    #[test]
    fn counters_are_added_up_by_kernel() {
        let kernels = read(&format!("{LINE}\n{LINE}\n")).unwrap();
        let tile = &kernels["tile"];
        assert_eq!((tile.launches, tile.instructions, tile.under_way), (2, 20, (1024, 4)));
        assert_eq!(tile.global, Traffic { parts: 20, minimum: 16 });
        assert_eq!(tile.shared_in_loops, Traffic::default());
        let text = shown(&kernels);
        assert!(
            text.contains("| tile | 2 | 20 | 50 % | 25 % | 1.25 | 2.00 | 256 B | tile.cu:7 ld.global.f32 1.25 |"),
            "{text}"
        );
        assert_eq!(
            figures(&kernels),
            BTreeMap::from([("sectors_over_minimum".to_string(), 1.25)])
        );
        assert!(read("no json").is_err());
    }

    #[test]
    fn rows_are_written_as_they_are_read() {
        let gates = Gates(vec![
            Row {
                id: "net/b4".into(),
                train: "net --batch 4".into(),
                today: BTreeMap::from([("sectors_over_minimum".to_string(), 1.01)]),
                goal: BTreeMap::from([("sectors_over_minimum".to_string(), 1.0)]),
            },
            Row {
                id: "other".into(),
                train: "other".into(),
                ..Row::default()
            },
        ]);
        let table: toml::Table = gates.shown().parse().unwrap();
        assert_eq!(Gates::parse(&table), Ok(gates));
        assert_eq!(Gates::parse(&toml::Table::new()).map(|g| g.shown()), Ok(String::new()));
    }
}
