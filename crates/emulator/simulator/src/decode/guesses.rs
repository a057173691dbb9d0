//! Loops around a compare-and-swap, as the CUDA C++ Programming Guide builds other atomic functions from it. They begin
//! with a plain read of the same word: any value that it gives is right, because the swap compares it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use kiln_ptx::{Instruction, Operand};

use crate::machine::{AccessKind, Inst, Slot, with_kind};

/// The depth to which sums inside of sums are followed: addresses have fewer.
const DEEPEST: u32 = 6;

/// The plain loads and the compare-and-swaps of one function, by their pcs, and how its registers come about.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    pub(super) loads: Vec<usize>,
    pub(super) swaps: Vec<usize>,
    /// Definitions by the register's slot; `Other` for a register that is written twice.
    definitions: HashMap<u32, Definition>,
}

/// The instruction that writes a register.
#[derive(Clone, Copy, Debug)]
enum Definition {
    Copy(Slot),
    Sum(Slot, Slot),
    Other,
}

/// An address in terms of registers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Address {
    Register(u32),
    Sum(Box<[Address; 2]>),
}

impl Guesses {
    /// Notes the registers that an instruction writes; `slot` finds a register by its name.
    pub(super) fn note(&mut self, instruction: &Instruction<'_>, slot: impl Fn(&str) -> Option<Slot>) {
        let register = |operand: &Operand<'_>| match operand {
            Operand::Name(name) => slot(name),
            _ => None,
        };
        let sources: Vec<Option<Slot>> = instruction.operands.iter().skip(1).map(register).collect();
        let opcode = instruction.opcode;
        let definition = match sources[..] {
            [Some(a)] if opcode.starts_with("cvta") || matches!(opcode, "mov.u64" | "mov.s64" | "mov.b64") => {
                Definition::Copy(a)
            }
            [Some(a), Some(b)] if matches!(opcode, "add.u64" | "add.s64") => Definition::Sum(a, b),
            _ => Definition::Other,
        };
        if let Some(target) = instruction.operands.first() {
            self.write(target, definition, &slot);
        }
    }

    fn write(&mut self, target: &Operand<'_>, definition: Definition, slot: &impl Fn(&str) -> Option<Slot>) {
        match target {
            Operand::Name(name) => {
                if let Some(slot) = slot(name) {
                    match self.definitions.entry(slot.0) {
                        Entry::Vacant(entry) => drop(entry.insert(definition)),
                        Entry::Occupied(mut entry) => *entry.get_mut() = Definition::Other,
                    }
                }
            }
            Operand::Vector(all) | Operand::List(all) => {
                all.iter().for_each(|one| self.write(one, Definition::Other, slot));
            }
            Operand::Pair(first, second) => {
                self.write(first, Definition::Other, slot);
                self.write(second, Definition::Other, slot);
            }
            _ => {}
        }
    }

    fn address(&self, slot: Slot, depth: u32) -> Address {
        match self.definitions.get(&slot.0) {
            Some(Definition::Copy(from)) if depth < DEEPEST => self.address(*from, depth + 1),
            Some(Definition::Sum(a, b)) if depth < DEEPEST => {
                let mut terms = Box::new([*a, *b].map(|term| self.address(term, depth + 1)));
                terms.sort();
                Address::Sum(terms)
            }
            _ => Address::Register(slot.0),
        }
    }

    /// Marks the loads whose address and size are those of a compare-and-swap: the same register, which nvcc writes once,
    /// or the same sum of such, and the same offset.
    pub(super) fn mark(&self, insts: &mut [Inst]) {
        let place = |inst: &Inst| (self.address(inst.a, 0), inst.imm, inst.flags & 0xff);
        let swapped: Vec<_> = self.swaps.iter().map(|&swap| place(&insts[swap])).collect();
        if swapped.is_empty() {
            return;
        }
        for &load in &self.loads {
            if swapped.contains(&place(&insts[load])) {
                insts[load].flags = with_kind(insts[load].flags, AccessKind::Guess);
            }
        }
    }
}
