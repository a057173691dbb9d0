//! The counters of launches, a line of JSON each, in the order in which they ended: crates/emulator/README.md has its names.

use std::fmt::Write as _;

use kiln_simulator::{Access, AccessClass, Counters, Loop, Place, Spread, Wait};

use crate::json_lines::JsonLines;
use crate::objects::work::Kernel;

/// Writes what a launch did.
pub(crate) fn write(file: &JsonLines, kernel: &Kernel, c: &Counters) {
    let ([gx, gy, gz], [bx, by, bz]) = (kernel.grid, kernel.block);
    let read = [&c.block_lines_read, &c.wave_lines_read].map(spread);
    let written = [&c.block_lines_written, &c.wave_lines_written].map(spread);
    file.line(format_args!(
        "{{\"kernel\":{},\"grid\":[{gx},{gy},{gz}],\"block\":[{bx},{by},{bz}],\"shared\":{},\"blocks\":{},\"warps\":{},\"wave\":{},\
         \"instructions\":{},\"active_lanes\":{},\"enabled_lanes\":{},\"branches\":{},\"split_branches\":{},\
         \"lines_read\":{{\"block\":{},\"wave\":{},\"launch\":{}}},\"lines_written\":{{\"block\":{},\"wave\":{},\"launch\":{}}},\
         \"loops\":[{}],\"accesses\":[{}],\"waits\":[{}]}}",
        text(kernel.function.kernel.name()),
        kernel.shared,
        c.blocks,
        c.warps,
        c.wave,
        c.instructions,
        c.active_lanes,
        c.enabled_lanes,
        c.branches,
        c.split_branches,
        read[0],
        read[1],
        c.lines_read,
        written[0],
        written[1],
        c.lines_written,
        list(&c.loops, of_loop),
        list(&c.accesses, of_access),
        list(&c.waits, of_wait),
    ));
}

fn of_loop(l: &Loop) -> String {
    format!(
        "{{{},\"label\":{},\"trips\":{},\"taken\":{},\"instructions\":{}}}",
        of_place(&l.place),
        text(&l.label),
        spread(&l.trips),
        l.taken,
        l.instructions
    )
}

fn of_access(a: &Access) -> String {
    let class = match a.class {
        AccessClass::Load => "load",
        AccessClass::Store => "store",
        AccessClass::Copy => "copy",
        AccessClass::Atomic => "atomic",
    };
    let (space, parts) = if a.shared {
        ("shared", "wavefronts")
    } else {
        ("global", "sectors")
    };
    format!(
        "{{{},\"space\":\"{space}\",\"class\":\"{class}\",\"requests\":{},\"{parts}\":{},\"minimum\":{},\"bytes\":{}}}",
        of_place(&a.place),
        a.traffic.requests,
        a.traffic.parts,
        a.traffic.minimum,
        a.traffic.bytes
    )
}

fn of_wait(w: &Wait) -> String {
    format!(
        "{{{},\"under_way\":{},\"left\":{}}}",
        of_place(&w.place),
        spread(&w.under_way),
        spread(&w.left)
    )
}

fn of_place(p: &Place) -> String {
    let inside = p.inside.map_or("null".to_string(), |n| n.to_string());
    format!(
        "\"line\":{},\"opcode\":{},\"file\":{},\"source_line\":{},\"loop\":{inside}",
        p.line,
        text(&p.opcode),
        text(&p.file),
        p.source_line
    )
}

fn spread(s: &Spread) -> String {
    format!(
        "{{\"count\":{},\"sum\":{},\"min\":{},\"max\":{}}}",
        s.count, s.sum, s.min, s.max
    )
}

fn list<T>(items: &[T], of: impl Fn(&T) -> String) -> String {
    items.iter().map(of).collect::<Vec<_>>().join(",")
}

/// A string of JSON.
fn text(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_are_escaped() {
        assert_eq!(super::text("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
