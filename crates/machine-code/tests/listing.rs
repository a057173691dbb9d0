//! Listings that were written for these tests: one whose every figure is known, and ones that are made up from graphs of blocks.

use kiln_machine_code::flow::Graph;
use kiln_machine_code::{Kernel, kernel, listing};
use kiln_ptx::cubin::Resources;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The lines of a function: a label ends in `:`, anything else is an instruction, with its stall count after a `#`.
fn made(name: &str, lines: &[&str]) -> String {
    let mut text = format!("\t.section\t.text.{name},\"ax\",@progbits\n{name}:\n.text.{name}:\n");
    let mut address = 0;
    for line in lines {
        if line.ends_with(':') {
            let _ = writeln!(text, "{line}");
            continue;
        }
        let (code, stall) = line.split_once('#').unwrap_or((line, "1"));
        let stall: u64 = stall.trim().parse().unwrap();
        let high = 0x1000_0000_0000_0000 | stall << 41;
        // nvdisasm puts no semicolon behind a comment's place, but after it.
        let _ = writeln!(
            text,
            "        /*{address:04x}*/    {} ;    /* 0x0000000000007918 */",
            code.trim()
        );
        let _ = writeln!(text, "                             /* {high:#018x} */");
        address += 16;
    }
    text
}

fn read(text: &str) -> Kernel {
    let functions = listing::parse(text).unwrap();
    kernel(
        &functions[0],
        90,
        &Resources {
            registers: 122,
            shared: 49152,
            max_threads: 256,
            local: 0,
        },
        None,
    )
}

/// A product of tiles: a copy that has a fast way and a slow one with a loop of its own, then the products; an epilogue with a switch; a
/// function that is called and not a part.
const TILE: &[&str] = &[
    "LDC R1, c[0x0][0x28] # 15",
    "@P0 EXIT",
    ".L_x_0:",
    "ISETP.GE.AND P1, PT, R2, R3, PT # 13",
    "@P1 BRA `(.L_x_3)",
    "@P2 BRA `(.L_x_1) # 5",
    "LDGSTS.E.BYPASS.LTC128B.128 [R4], desc[UR4][R6.64]",
    "BRA `(.L_x_3)",
    ".L_x_1:",
    "LDGSTS.E [R4], desc[UR4][R6.64]",
    "LDGSTS.E [R4+0x4], desc[UR4][R6.64+0x4]",
    "LDGSTS.E [R4+0x8], desc[UR4][R6.64+0x8]",
    "LDGSTS.E [R4+0xc], desc[UR4][R6.64+0xc]",
    ".L_x_2:",
    "STS.U16 [R4], R5",
    "@P3 BRA `(.L_x_2)",
    ".L_x_3:",
    "BAR.SYNC.DEFER_BLOCKING 0x0",
    "@!PT LDS RZ, [RZ]",
    "LDSM.16.M88.4 R8, [R20] # 2",
    "MOV R10, R8",
    "IMAD.MOV.U32 R11, RZ, RZ, R9",
    "HMMA.16816.F32.BF16 R12, R8, R10, R12 # 4",
    "HMMA.16816.F32.BF16 R16, R8, R10, R16 # 4",
    "@!P0 CALL.REL.NOINC `(.L_x_4) # 9",
    "BRA `(.L_x_0)",
    ".L_x_4:",
    "BRX R2 -0x150 (*\"BRANCH_TARGETS .L_x_5,.L_x_6\"*)",
    ".L_x_5:",
    "MUFU.EX2 R4, R4",
    "CALL.REL.NOINC `($__internal_0_$divide)",
    ".L_x_6:",
    "STG.E.64 desc[UR4][R6.64], R4",
    "EXIT",
    "$__internal_0_$divide:",
    ".L_x_7:",
    "FFMA R4, R4, R4, R4",
    "@P0 BRA `(.L_x_7)",
    "RET.REL.NODEC R2 `(tile)",
    ".L_x_8:",
    "BRA `(.L_x_8)",
];

#[test]
fn every_figure_of_a_listing_is_known() {
    let tile = read(&made("tile", TILE));
    assert_eq!(
        (tile.name.as_str(), tile.instructions, tile.blocks, tile.warps),
        ("tile", 31, Some(2), Some(16))
    );
    // The function that is called has a loop, and is no part of the kernel's own; the last line is what fills the section.
    let heads: Vec<_> = tile
        .loops
        .iter()
        .map(|l| (l.head, l.depth, l.innermost, l.main))
        .collect();
    assert_eq!(heads, [(0x20, 1, false, true), (0xb0, 2, true, false)]);
    let main = tile.main_loop().unwrap();
    assert_eq!(main.instructions, 20);
    let path = &main.path;
    // 0x20 to 0x60, then 0xd0 to 0x150 and the jump back.
    assert_eq!(
        (path.issued, path.hmma, path.ldsm, path.ldgsts, path.mov),
        (14, 2, 1, 1, 2)
    );
    assert_eq!((path.barrier, path.guard, path.branch, path.other), (1, 1, 5, 1));
    assert_eq!(path.stall, 13 + 1 + 5 + 1 + 1 + 1 + 1 + 2 + 1 + 1 + 4 + 4 + 9 + 1);
    assert_eq!(path.global_loads.iter().collect::<Vec<_>>(), [(&16, &1)]);
    assert_eq!(path.narrowest(), Some(16));
    assert!((path.bytes_per_instruction() - 512.0 / 14.0).abs() < 1e-9);
    // Through the whole kernel: the cheaper of the two cases behind the table's jump, and a store.
    assert_eq!((tile.path.hmma, tile.path.mufu, tile.path.stg), (2, 0, 1));
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_its_line() {
    let no_label = made("f", &["BRA `(.L_x_9)", "EXIT"]);
    assert!(listing::parse(&no_label).unwrap_err().contains(".L_x_9"));
    let whole = made("f", &["NOP", "EXIT"]);
    let cut = whole.trim_end().rsplit_once('\n').unwrap().0;
    assert!(
        listing::parse(cut).unwrap_err().starts_with("line 6:"),
        "{:?}",
        listing::parse(cut)
    );
    assert!(listing::parse("        /*0000*/ NOP ; /* 0x1 */\n /* 0x2 */").is_err());
    assert_eq!(listing::parse("").unwrap(), []);
}

#[test]
fn a_kernels_json_is_read_as_it_was_written() {
    let tile = read(&made("tile", TILE));
    let text = serde_json::to_string(&tile).unwrap();
    assert_eq!(serde_json::from_str::<Kernel>(&text).unwrap(), tile);
}

/// Blocks of one instruction and a jump: `jumps[i]` is where block `i` may go besides on, and whether it must.
fn blocks(jumps: &[(usize, bool)]) -> String {
    let mut lines = Vec::new();
    for (i, (to, must)) in jumps.iter().enumerate() {
        let predicate = if *must { "" } else { "@P0 " };
        lines.extend([
            format!(".L_x_{i}:"),
            "IADD3 R1, R1, 0x1, RZ".to_string(),
            format!("{predicate}BRA `(.L_x_{to})"),
        ]);
    }
    lines.push("EXIT".to_string());
    made("f", &lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The blocks that are reached from `start` without entering `without`.
fn reached(next: &[Vec<usize>], start: usize, without: Option<usize>) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut stack = vec![start];
    while let Some(block) = stack.pop() {
        if Some(block) != without && seen.insert(block) {
            stack.extend(&next[block]);
        }
    }
    seen
}

proptest! {
    /// A loop is what its definition says, by another computation: the head is on every way from the start to each jump back to it, and the
    /// body is what reaches such a jump without passing the head.
    #[test]
    fn loops_are_what_their_definition_says(
        jumps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..12),
    ) {
        let count = jumps.len();
        let jumps: Vec<(usize, bool)> = jumps.iter().map(|(to, must)| (to.index(count), *must)).collect();
        let text = blocks(&jumps);
        let functions = listing::parse(&text).unwrap();
        let graph = Graph::new(&functions[0].instructions);
        let n = graph.blocks.len();
        prop_assert_eq!(reached(&graph.next, 0, None).len(), n);
        let dominates = |a: usize, b: usize| a == b || a == 0 || !reached(&graph.next, 0, Some(a)).contains(&b);
        let mut wanted = Vec::new();
        for head in 0..n {
            let backs: Vec<usize> = (0..n).filter(|b| graph.next[*b].contains(&head) && dominates(head, *b)).collect();
            if !backs.is_empty() {
                let inside = |b: &usize| {
                    let from = reached(&graph.next, *b, Some(head));
                    *b == head || backs.iter().any(|back| *back != head && from.contains(back) && dominates(head, *b))
                };
                wanted.push((head, (0..n).filter(inside).collect::<Vec<_>>()));
            }
        }
        let found: Vec<_> = graph.loops.iter().map(|l| (l.head, l.body.clone())).collect();
        prop_assert_eq!(found, wanted);
    }

    /// Kinds of instructions do not overlap, and the fast way is a way.
    #[test]
    fn the_kinds_of_instructions_add_up(picks in prop::collection::vec(0..TILE.len(), 1..40)) {
        let lines: Vec<&str> = picks.iter().map(|i| TILE[*i]).filter(|l| !l.contains(".L_x") && !l.ends_with(':')).collect();
        let mut all = lines.clone();
        all.push("EXIT");
        let f = read(&made("f", &all));
        let json = serde_json::to_value(&f.path).unwrap();
        let kinds = ["issued", "stall", "global_loads", "global_stores"];
        let of = |(name, n): (&String, &serde_json::Value)| if kinds.contains(&name.as_str()) { 0 } else { n.as_u64().unwrap() };
        let sum: u64 = json.as_object().unwrap().iter().map(of).sum();
        prop_assert_eq!(sum, u64::from(f.path.issued));
    }

    /// No text makes the reader panic.
    #[test]
    fn damaged_listings_are_errors_or_listings(at in any::<prop::sample::Index>(), with in ".{0,4}") {
        let mut text = made("tile", TILE);
        let at = at.index(text.len());
        if text.is_char_boundary(at) {
            text.replace_range(at..(at + 1).min(text.len()), &with);
        }
        if let Ok(functions) = listing::parse(&text) {
            for function in &functions {
                kernel(function, 90, &Resources::default(), None);
            }
        }
    }
}
