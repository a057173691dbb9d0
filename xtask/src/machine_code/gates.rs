//! The rows of kernels/gates.toml about machine code: figures that must not get worse.

use super::{disassembler, matches, read};
use crate::toolkit;
use kiln_machine_code::Kernel;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The rows, and the compiler whose machine code they are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gates {
    /// The release of nvcc, such as `13.0.88`.
    nvcc: String,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    id: String,
    /// Patterns of kernels' names, divided by spaces.
    kernels: String,
    arch: u32,
    /// The names of figures.
    figures: String,
    today: BTreeMap<String, f64>,
    goal: BTreeMap<String, f64>,
}

/// What makes a figure worse.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Worse {
    /// A larger one; a row has the largest of its kernels.
    Larger,
    /// A smaller one; a row has the smallest of its kernels.
    Smaller,
    /// More kernels for which it is one.
    More,
}

/// A figure of a kernel, `None` where there is nothing to measure.
type Of = fn(&Kernel) -> Option<f64>;

/// Warps of an SM below which a kernel hides little of what it waits for.
const FEW_WARPS: u32 = 16;

const FIGURES: &[(&str, Worse, Of)] = &[
    ("spill_bytes", Worse::Larger, |k| {
        k.spills.map(|s| f64::from(s.stores + s.loads))
    }),
    ("stack_bytes", Worse::Larger, |k| Some(f64::from(k.stack))),
    ("kernels_with_stack", Worse::More, |k| {
        Some(f64::from(u8::from(k.stack > 0)))
    }),
    ("warps", Worse::Smaller, |k| k.warps.map(f64::from)),
    ("kernels_with_few_warps", Worse::More, |k| {
        k.warps.map(|warps| f64::from(u8::from(warps < FEW_WARPS)))
    }),
    ("issued_per_hmma", Worse::Larger, |k| {
        per(k.work().issued, k.work().hmma)
    }),
    ("stall_per_hmma", Worse::Larger, |k| per(k.work().stall, k.work().hmma)),
    ("hmma_per_ldsm", Worse::Smaller, |k| per(k.work().hmma, k.work().ldsm)),
    ("issued_per_wgmma", Worse::Larger, |k| {
        per(k.work().issued, k.work().wgmma)
    }),
    ("stall_per_wgmma", Worse::Larger, |k| {
        per(k.work().stall, k.work().wgmma)
    }),
    ("mov", Worse::Larger, |k| Some(f64::from(k.work().mov))),
    ("barrier", Worse::Larger, |k| Some(f64::from(k.work().barrier))),
    ("branch", Worse::Larger, |k| Some(f64::from(k.work().branch))),
    ("ffma_percent", Worse::Smaller, |k| {
        per(100 * k.work().ffma, k.work().issued)
    }),
    ("bytes_per_instruction", Worse::Smaller, |k| {
        Some(k.work().bytes_per_instruction())
    }),
    ("narrowest_access", Worse::Smaller, |k| {
        k.work().narrowest().map(f64::from)
    }),
    ("narrowest_load", Worse::Smaller, |k| {
        k.work().global_loads.keys().next().map(|n| f64::from(*n))
    }),
];

fn per(a: u32, b: u32) -> Option<f64> {
    (b > 0).then(|| f64::from(a) / f64::from(b))
}

impl Gates {
    pub(crate) fn parse(table: &toml::Table) -> Result<Gates, String> {
        let nvcc = table
            .get("compiler")
            .and_then(|c| c.get("nvcc"))
            .and_then(toml::Value::as_str);
        let rows = table.get("machine_code").and_then(toml::Value::as_array);
        let rows = rows.into_iter().flatten().map(row).collect::<Result<_, _>>()?;
        Ok(Gates {
            nvcc: nvcc.unwrap_or_default().to_string(),
            rows,
        })
    }

    pub(crate) fn shown(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut out = format!("{HEADER}[compiler]\nnvcc = \"{}\"\n", self.nvcc);
        for row in &self.rows {
            let _ = write!(
                out,
                "\n[[machine_code]]\nid = \"{}\"\nkernels = \"{}\"\narch = {}\nfigures = \"{}\"\n",
                row.id, row.kernels, row.arch, row.figures
            );
            for (key, values) in [("today", &row.today), ("goal", &row.goal)] {
                if !values.is_empty() {
                    let list: Vec<_> = values.iter().map(|(name, n)| format!("{name} = {n}")).collect();
                    let _ = writeln!(out, "{key} = {{ {} }}", list.join(", "));
                }
            }
        }
        out
    }

    /// Measures the rows whose id has `filter` in it and holds them against their bounds; false if one is worse. The rows have today's
    /// values afterwards.
    pub(crate) fn check(&mut self, filter: Option<&str>) -> Result<bool, String> {
        let chosen = |row: &Row| filter.is_none_or(|word| row.id.contains(word));
        if !self.rows.iter().any(chosen) {
            return Ok(true);
        }
        let tool = match disassembler() {
            Ok(tool) => tool,
            Err(why) => {
                println!("gates of machine code were left out: {why}");
                return Ok(true);
            }
        };
        let mut archs: Vec<u32> = self.rows.iter().map(|row| row.arch).collect();
        archs.sort_unstable();
        archs.dedup();
        let all: Vec<Kernel> = read(&tool, &archs)?.into_iter().map(|(_, kernel)| kernel).collect();
        let nvcc = toolkit::compiler();
        let bound = self.nvcc.is_empty() || self.nvcc == nvcc;
        if !bound {
            println!("machine code of nvcc {nvcc}, not held against that of {}:", self.nvcc);
        }
        let mut well = true;
        for row in self.rows.iter_mut().filter(|row| chosen(row)) {
            let (values, lines) = measured(row, &all)?;
            println!("{}", line(row, &values));
            for worse in lines {
                println!("  {worse}");
                well = false;
            }
            row.today = values;
        }
        // Rows of two compilers would be held against one.
        if self.rows.iter().all(chosen) {
            self.nvcc = nvcc;
        }
        Ok(well || !bound)
    }
}

const HEADER: &str = "
# What the machine code of kernels asks of a GPU (`cargo xtask machine-code`, docs/machine-code.md), for the nvcc named here: a row has
# the worst of its kernels, and fails where that is worse than `today`. Figures are of one turn of the main loop, on its fast way.
";

/// A row's figures, and a line for each that is worse than it was.
fn measured(row: &Row, all: &[Kernel]) -> Result<(BTreeMap<String, f64>, Vec<String>), String> {
    let named = |k: &&Kernel| row.kernels.split_whitespace().any(|pattern| matches(pattern, &k.name));
    let kernels: Vec<&Kernel> = all.iter().filter(|k| k.arch == row.arch).filter(named).collect();
    if kernels.is_empty() {
        return Err(format!(
            "{}: no kernel is named {} for sm_{}",
            row.id, row.kernels, row.arch
        ));
    }
    let (mut values, mut lines) = (BTreeMap::new(), Vec::new());
    for name in row.figures.split_whitespace() {
        let (_, worse, of) = FIGURES
            .iter()
            .find(|(known, ..)| *known == name)
            .ok_or_else(|| format!("{}: there is no figure `{name}`", row.id))?;
        let mut each: Vec<(f64, &str)> = kernels
            .iter()
            .filter_map(|k| Some((rounded(of(k)?), k.name.as_str())))
            .collect();
        // The worst first.
        each.sort_by(|(a, _), (b, _)| {
            if *worse == Worse::Smaller {
                a.total_cmp(b)
            } else {
                b.total_cmp(a)
            }
        });
        let Some((first, _)) = each.first() else {
            return Err(format!("{}: no kernel has a figure `{name}`", row.id));
        };
        let now = if *worse == Worse::More {
            each.iter().map(|(n, _)| n).sum()
        } else {
            *first
        };
        values.insert(name.to_string(), now);
        let Some(was) = row.today.get(name) else { continue };
        let grew = if *worse == Worse::Smaller {
            now < *was
        } else {
            now > *was
        };
        if grew {
            let beyond = |n: f64| match worse {
                Worse::Larger => n > *was,
                Worse::Smaller => n < *was,
                Worse::More => n > 0.0,
            };
            let names: Vec<&str> = each.iter().filter(|(n, _)| beyond(*n)).map(|(_, name)| *name).collect();
            lines.push(format!(
                "{}: {name} was {was} and is {now}: {}",
                row.id,
                names.join(", ")
            ));
        }
    }
    Ok((values, lines))
}

/// As a row has it: two digits behind the point.
fn rounded(n: f64) -> f64 {
    (n * 100.0).round() / 100.0
}

fn line(row: &Row, values: &BTreeMap<String, f64>) -> String {
    let mut line = format!("{:28}", row.id);
    for (name, is) in values {
        let _ = write!(line, "  {name} {is}");
        let smaller = FIGURES
            .iter()
            .any(|(known, worse, _)| known == name && *worse == Worse::Smaller);
        let worse = |than: f64| if smaller { *is < than } else { *is > than };
        if let Some(was) = row.today.get(name).filter(|was| *was != is) {
            let keep = if worse(*was) { "" } else { ", --write keeps it" };
            let _ = write!(line, " (was {was}{keep})");
        }
        if let Some(goal) = row.goal.get(name).filter(|goal| worse(**goal)) {
            let _ = write!(line, " (goal {goal})");
        }
    }
    line
}

fn row(value: &toml::Value) -> Result<Row, String> {
    let text = |key: &str| {
        let found = value.get(key).and_then(toml::Value::as_str).map(String::from);
        found.ok_or_else(|| format!("a row of machine code has no `{key}`"))
    };
    let numbers = |key: &str| {
        let table = value.get(key).and_then(toml::Value::as_table).into_iter().flatten();
        let number = |n: &toml::Value| n.as_float().or_else(|| n.as_integer().map(|n| n as f64));
        table.filter_map(|(name, n)| Some((name.clone(), number(n)?))).collect()
    };
    let arch = value.get("arch").and_then(toml::Value::as_integer);
    Ok(Row {
        id: text("id")?,
        kernels: text("kernels")?,
        arch: arch
            .and_then(|a| u32::try_from(a).ok())
            .ok_or("a row of machine code has no `arch`")?,
        figures: text("figures")?,
        today: numbers("today"),
        goal: numbers("goal"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kernel(name: &str, stack: u32, mov: u32, warps: u32) -> Kernel {
        let path = json!({"issued": 100, "hmma": 32, "wgmma": 0, "ffma": 0, "mufu": 0, "float": 0, "ldsm": 12, "lds": 0, "sts": 0,
            "ldgsts": 4, "ldg": 0, "stg": 0, "local": 0, "atomic": 0, "mov": mov, "branch": 1, "barrier": 1, "convergence": 0,
            "shuffle": 0, "guard": 0, "other": 0, "stall": 300, "global_loads": {"16": 4}, "global_stores": {}});
        let value = json!({"name": name, "arch": 90, "registers": 100, "stack": stack, "spills": null, "shared": 0, "threads": 256,
            "blocks": 2, "warps": warps, "instructions": 100, "path": path, "loops": []});
        serde_json::from_value(value).unwrap()
    }

    fn row_of(figures: &str, today: &[(&str, f64)]) -> Row {
        Row {
            id: "tile".into(),
            kernels: "tile_*".into(),
            arch: 90,
            figures: figures.into(),
            today: today.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
            goal: BTreeMap::new(),
        }
    }

    #[test]
    fn the_worst_kernel_is_a_rows_value_and_what_is_worse_is_named() {
        let all = [
            kernel("tile_a", 0, 4, 16),
            kernel("tile_b", 8, 44, 8),
            kernel("other", 99, 99, 1),
        ];
        let today = [
            ("mov", 10.0),
            ("warps", 16.0),
            ("kernels_with_stack", 1.0),
            ("hmma_per_ldsm", 2.67),
        ];
        let (values, lines) = measured(
            &row_of("mov warps kernels_with_stack hmma_per_ldsm issued_per_hmma", &today),
            &all,
        )
        .unwrap();
        assert_eq!(
            (values["mov"], values["warps"], values["kernels_with_stack"]),
            (44.0, 8.0, 1.0)
        );
        assert_eq!((values["hmma_per_ldsm"], values["issued_per_hmma"]), (2.67, 3.13));
        let wanted = [
            "tile: mov was 10 and is 44: tile_b",
            "tile: warps was 16 and is 8: tile_b",
        ];
        assert_eq!(lines, wanted);
        let goals = Row {
            goal: [("mov".to_string(), 6.0), ("warps".to_string(), 4.0)].into(),
            ..row_of("mov warps", &today)
        };
        let shown = line(&goals, &measured(&goals, &all).unwrap().0);
        assert!(shown.contains("mov 44 (was 10) (goal 6)"), "{shown}");
        assert!(
            shown.contains("warps 8 (was 16") && !shown.contains("goal 4"),
            "{shown}"
        );
        // Better ones are no failure.
        let better = row_of("mov warps", &[("mov", 50.0), ("warps", 4.0)]);
        let (values, worse) = measured(&better, &all).unwrap();
        assert_eq!(worse, Vec::<String>::new());
        assert!(line(&better, &values).contains("mov 44 (was 50, --write keeps it)"));
        assert!(measured(&row_of("nonsense", &[]), &all).is_err());
        let absent = Row {
            kernels: "none".into(),
            ..row_of("mov", &[])
        };
        assert!(measured(&absent, &all).is_err());
    }

    #[test]
    fn rows_are_written_as_they_are_read() {
        let gates = Gates {
            nvcc: "13.0.88".into(),
            rows: vec![
                row_of("mov", &[("mov", 44.0), ("issued_per_hmma", 6.31)]),
                row_of("warps", &[]),
            ],
        };
        let table: toml::Table = gates.shown().parse().unwrap();
        assert_eq!(Gates::parse(&table), Ok(gates));
        assert_eq!(Gates::parse(&toml::Table::new()).map(|g| g.shown()), Ok(String::new()));
    }
}
