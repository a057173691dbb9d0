//! The loops of a kernel's code, and the names of its instructions.

use crate::machine::{Code, Kind};

/// Stands for no loop.
const NO_LOOP: u32 = u32::MAX;

/// A kernel's loops, branches and memory accesses, found in its code before it runs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) loops: Vec<Span>,
    /// The innermost loop that each instruction is in.
    innermost: Vec<u32>,
    /// The loop that each branch closes.
    closes: Vec<u32>,
    /// True for the first instruction of a statement.
    pub(super) begins: Vec<bool>,
    /// True for accesses to constant memory, whose cache has no sectors.
    pub(super) constant: Vec<bool>,
    /// The opcode of each instruction.
    pub(super) opcodes: Vec<String>,
}

/// The code between the target of a branch that goes back and that branch.
#[derive(Debug)]
pub(super) struct Span {
    first: usize,
    pub(super) last: usize,
    pub(super) label: String,
    pub(super) parent: Option<usize>,
}

impl Plan {
    /// The plan of a kernel's code, which was decoded from `text`.
    pub(crate) fn new(code: &Code, text: &str) -> Plan {
        let lines: Vec<&str> = text.lines().collect();
        let count = code.insts.len();
        let mut loops: Vec<Span> = Vec::new();
        for (pc, inst) in code.insts.iter().enumerate() {
            let target = inst.imm as usize;
            if inst.kind == Kind::Branch && target <= pc {
                loops.push(Span {
                    first: target,
                    last: pc,
                    label: label(&lines, code.lines[target]),
                    parent: None,
                });
            }
        }
        // The outer ones first, so that the inner ones are written over them.
        loops.sort_by_key(|l| (l.first, usize::MAX - l.last));
        let (mut innermost, mut closes) = (vec![NO_LOOP; count], vec![NO_LOOP; count]);
        for (n, span) in loops.iter_mut().enumerate() {
            let outer = innermost[span.first];
            span.parent = (outer != NO_LOOP && innermost[span.last] == outer).then_some(outer as usize);
            innermost[span.first..=span.last].fill(n as u32);
            closes[span.last] = n as u32;
        }
        let begins = (0..count)
            .map(|pc| pc == 0 || code.lines[pc] != code.lines[pc - 1])
            .collect();
        let opcodes: Vec<String> = code.lines.iter().map(|line| opcode(&lines, *line)).collect();
        let constant = opcodes.iter().map(|opcode| opcode.contains(".const")).collect();
        Plan {
            loops,
            innermost,
            closes,
            begins,
            constant,
            opcodes,
        }
    }

    /// The innermost loop around an instruction.
    pub(super) fn innermost(&self, pc: usize) -> Option<usize> {
        let found = self.innermost[pc];
        (found != NO_LOOP).then_some(found as usize)
    }

    /// The loop that a branch closes.
    pub(super) fn closes(&self, pc: usize) -> Option<usize> {
        let found = self.closes[pc];
        (found != NO_LOOP).then_some(found as usize)
    }
}

/// A line without its comment.
fn stripped<'a>(lines: &[&'a str], number: u32) -> &'a str {
    let line = lines.get((number as usize).wrapping_sub(1)).copied().unwrap_or("");
    line.split("//").next().unwrap_or("").trim()
}

/// The opcode in a line of PTX.
fn opcode(lines: &[&str], number: u32) -> String {
    let mut words = stripped(lines, number)
        .split_whitespace()
        .filter(|w| !w.starts_with('@') && !w.ends_with(':'));
    words.next().unwrap_or("").trim_end_matches(';').to_string()
}

/// The label before the statement in a line of PTX, or nothing.
fn label(lines: &[&str], number: u32) -> String {
    for before in (1..number).rev() {
        match stripped(lines, before) {
            line if line.is_empty() || line.starts_with(".loc") => {}
            line => return line.strip_suffix(':').unwrap_or("").to_string(),
        }
    }
    String::new()
}
