//! The registers in which `wgmma` sums: they are not to be read before the product is waited for.

use std::collections::HashSet;

use kiln_ptx::{Instruction, Operand, Statement};

/// The names of the accumulators of `wgmma`, and of the registers that they are moved to.
pub(super) fn accumulators<'a>(statements: &[Statement<'a>]) -> HashSet<&'a str> {
    let instructions = || {
        statements.iter().filter_map(|statement| match statement {
            Statement::Instruction(instruction) => Some(instruction),
            _ => None,
        })
    };
    let mut names = HashSet::new();
    for instruction in instructions().filter(|i| i.opcode.starts_with("wgmma.mma_async")) {
        if let Some(Operand::Vector(list)) = instruction.operands.first() {
            names.extend(list.iter().filter_map(|one| match one {
                Operand::Name(name) => Some(*name),
                _ => None,
            }));
        }
    }
    loop {
        let known = names.len();
        for (to, from) in instructions().filter_map(moved) {
            if names.contains(from) {
                names.insert(to);
            }
        }
        if names.len() == known {
            return names;
        }
    }
}

/// The registers of a plain move, the destination first.
pub(super) fn moved<'a>(instruction: &Instruction<'a>) -> Option<(&'a str, &'a str)> {
    match (instruction.opcode, instruction.operands.as_slice()) {
        ("mov.f32" | "mov.b32" | "mov.u32" | "mov.s32", [Operand::Name(to), Operand::Name(from)]) => Some((to, from)),
        _ => None,
    }
}
