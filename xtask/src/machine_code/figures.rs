//! The table of kernels that `kiln forecast` carries: crates/forecast/data/kernels.tsv, a line for each kernel and architecture.

use crate::toolkit;
use crate::workspace::root;
use kiln_machine_code::{Accesses, Counts, Kernel};
use std::fmt::Write as _;

/// The table, from the root of the workspace.
pub(crate) const FILE: &str = "crates/forecast/data/kernels.tsv";

const HEADER: &str = "\
# What one warp issues in each of Kiln's kernels, in one turn of the main loop and on the way around it, by the machine code of
# nvcc NVCC
# Written by `cargo xtask machine-code --table`; a line that has changed is a kernel whose machine code has.
";

/// Columns of a way through code, in the order of `COUNTS` of crates/forecast.
fn columns(c: &Counts) -> [u32; 14] {
    let bytes = |accesses: &Accesses| accesses.iter().map(|(bytes, n)| bytes * n).sum();
    [
        c.issued,
        c.hmma,
        c.wgmma,
        c.ffma,
        c.float,
        c.mufu,
        c.ldsm,
        c.lds,
        c.sts,
        c.ldgsts,
        c.barrier,
        c.stall,
        bytes(&c.global_loads),
        bytes(&c.global_stores),
    ]
}

/// The table of these kernels.
fn table(all: &[(String, Kernel)], nvcc: &str) -> String {
    let mut out = HEADER.replace("NVCC", nvcc);
    for (_, kernel) in all {
        let main = kernel.main_loop().map(|main| columns(&main.path)).unwrap_or_default();
        // The way through the kernel passes each loop once.
        let path = columns(&kernel.path);
        let _ = write!(
            out,
            "{}\t{}\t{}\t{}",
            kernel.name, kernel.arch, kernel.registers, kernel.shared
        );
        let outside = path.iter().zip(&main).map(|(all, turn)| all.saturating_sub(*turn));
        for n in main.iter().copied().chain(outside) {
            let _ = write!(out, "\t{n}");
        }
        out.push('\n');
    }
    out
}

/// Writes the table of these kernels.
pub(crate) fn write(all: &[(String, Kernel)]) -> Result<(), String> {
    let text = table(all, &toolkit::compiler());
    std::fs::write(root().join(FILE), text).map_err(|e| format!("cannot write {FILE}: {e}"))
}

/// True if the table that is there is that of these kernels, or of another compiler's, whose code is another.
pub(crate) fn is_current(all: &[(String, Kernel)]) -> Result<bool, String> {
    let found = std::fs::read_to_string(root().join(FILE)).map_err(|e| format!("cannot read {FILE}: {e}"))?;
    let compiler = format!("# nvcc {}", toolkit::compiler());
    if !found.lines().any(|line| line == compiler) {
        println!(
            "{FILE} is of another release of nvcc than {}, and was not compared",
            toolkit::compiler()
        );
        return Ok(true);
    }
    let today = table(all, &toolkit::compiler());
    if found == today {
        return Ok(true);
    }
    let known: std::collections::HashSet<&str> = found.lines().collect();
    let changed: Vec<&str> = today.lines().filter(|line| !known.contains(line)).collect();
    let names: Vec<&str> = changed
        .iter()
        .filter_map(|line| line.split('\t').next())
        .take(5)
        .collect();
    println!(
        "{FILE} is older than the kernels ({} lines, such as {}): `cargo xtask machine-code --table` writes it anew",
        changed.len(),
        names.join(", ")
    );
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_has_the_main_loop_and_the_way_around_it() {
        let counts = |issued: u32, loads: u32| {
            json!({"issued": issued, "hmma": 0, "wgmma": 0, "ffma": 0, "mufu": 0, "float": 0, "ldsm": 0, "lds": 0, "sts": 0,
                "ldgsts": 0, "ldg": loads, "stg": 0, "local": 0, "atomic": 0, "mov": 0, "branch": 1, "barrier": 0, "convergence": 0,
                "shuffle": 0, "guard": 0, "other": issued, "stall": 3 * issued, "global_loads": {"16": loads}, "global_stores": {}})
        };
        let value = json!({"name": "scale", "arch": 90, "registers": 24, "stack": 0, "spills": null, "shared": 16, "threads": 256,
            "blocks": 8, "warps": 64, "instructions": 50, "path": counts(40, 2), "loops": [{"head": 0, "depth": 1, "innermost": true,
            "main": true, "instructions": 10, "path": counts(10, 2)}]});
        let kernel: Kernel = serde_json::from_value(value).unwrap();
        let text = table(&[("image".to_string(), kernel)], "13.0.88");
        let line = text.lines().last().unwrap();
        assert_eq!(
            line.split('\t').collect::<Vec<_>>().join(" "),
            "scale 90 24 16 10 0 0 0 0 0 0 0 0 0 0 30 32 0 30 0 0 0 0 0 0 0 0 0 0 90 0 0"
        );
        assert!(text.contains("# nvcc 13.0.88\n"), "{text}");
    }
}
