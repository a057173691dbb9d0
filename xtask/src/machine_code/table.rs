//! The table that people read.

use kiln_machine_code::{Counts, Kernel};
use std::fmt::Write as _;

/// The columns behind the name.
const HEAD: [&str; 20] = [
    "sm", "regs", "warps", "stack", "spill", "loop", "issued", "HMMA", "FFMA", "MUFU", "LDSM", "LDS", "LDGSTS", "LDG",
    "STG", "MOV", "branch", "stall", "B/instr", "narrow",
];

/// A row for each kernel, and for each loop if `loops`.
pub(super) fn shown(kernels: &[(String, Kernel)], loops: bool) -> String {
    let mut rows = vec![("kernel".to_string(), HEAD.map(String::from))];
    for (_, kernel) in kernels {
        let main = kernel.main_loop();
        let place = main.map_or("-".to_string(), |l| format!("{:#x}", l.head));
        rows.push((kernel.name.clone(), cells(own(kernel), place, kernel.work())));
        for l in kernel.loops.iter().filter(|_| loops) {
            let mark = if l.main {
                "main"
            } else if l.innermost {
                "innermost"
            } else {
                "around others"
            };
            let name = format!("  loop at depth {}, {mark}, {} instructions", l.depth, l.instructions);
            rows.push((
                name,
                cells([const { String::new() }; 5], format!("{:#x}", l.head), &l.path),
            ));
        }
    }
    let names = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut widths = [0; HEAD.len()];
    for (_, cells) in &rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.len().max(*width);
        }
    }
    let mut out = String::new();
    for (name, cells) in &rows {
        let _ = write!(out, "{name:names$}");
        for (cell, width) in cells.iter().zip(widths) {
            let _ = write!(out, "  {cell:>width$}");
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// What is the kernel's and not the loop's.
fn own(kernel: &Kernel) -> [String; 5] {
    let known = |n: Option<u32>| n.map_or("?".to_string(), |n| n.to_string());
    [
        kernel.arch.to_string(),
        kernel.registers.to_string(),
        known(kernel.warps),
        kernel.stack.to_string(),
        known(kernel.spills.map(|s| s.stores + s.loads)),
    ]
}

fn cells(own: [String; 5], place: String, path: &Counts) -> [String; HEAD.len()] {
    let [arch, registers, warps, stack, spill] = own;
    let n = |count: u32| count.to_string();
    let narrow = path.narrowest().map_or("-".to_string(), n);
    [
        arch,
        registers,
        warps,
        stack,
        spill,
        place,
        n(path.issued),
        n(path.hmma + path.wgmma),
        n(path.ffma),
        n(path.mufu),
        n(path.ldsm),
        n(path.lds),
        n(path.ldgsts),
        n(path.ldg),
        n(path.stg),
        n(path.mov),
        n(path.branch),
        n(path.stall),
        format!("{:.1}", path.bytes_per_instruction()),
        narrow,
    ]
}
