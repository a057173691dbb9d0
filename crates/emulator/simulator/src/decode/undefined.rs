//! The registers that a function may read before it has written them. They are zero when it starts, so that such a read, whose value PTX
//! leaves open, gives the same in every run; all others keep what the launch before left in them.

use std::collections::{BTreeSet, HashMap};

use kiln_ptx::{Instruction, Operand};

use crate::exec::Ty;
use crate::machine::{Code, Kind, Slot};

/// The opcodes whose first operand is read, if it is a register, and not written, or written besides.
const READS_FIRST: [&str; 7] = ["bra", "brx", "bar", "barrier", "call", "nanosleep", "wgmma"];

/// The registers that the statements of one function read and write.
#[derive(Debug, Default)]
pub(super) struct Uses {
    statements: Vec<Use>,
    /// The registers by their slots, numbered as they occur.
    numbers: HashMap<u32, usize>,
    /// Where they lie: the slot and the type.
    registers: Vec<(Slot, Ty)>,
}

#[derive(Debug)]
struct Use {
    /// The pc of its first instruction.
    pc: usize,
    reads: Vec<usize>,
    /// None where the statement has a guard: where that does not hold, nothing is written.
    writes: Vec<usize>,
}

impl Uses {
    /// Notes the instruction that begins at `pc`; `find` finds a register by its name.
    pub(super) fn note(&mut self, pc: usize, instruction: &Instruction<'_>, find: impl Fn(&str) -> Option<(Slot, Ty)>) {
        let mut of = |names: Vec<&str>| -> Vec<usize> {
            let found = names.into_iter().filter_map(&find);
            found.map(|(slot, ty)| self.number(slot, ty)).collect()
        };
        let name = instruction.opcode.split('.').next().unwrap_or_default();
        let (mut read, mut written) = (Vec::new(), Vec::new());
        read.extend(instruction.guard.map(|(name, _)| name));
        for (index, operand) in instruction.operands.iter().enumerate() {
            let target = index == 0 && !READS_FIRST.contains(&name) && instruction.guard.is_none();
            collect(operand, target, &mut read, &mut written);
        }
        let (reads, writes) = (of(read), of(written));
        self.statements.push(Use { pc, reads, writes });
    }

    fn number(&mut self, slot: Slot, ty: Ty) -> usize {
        let next = self.registers.len();
        let number = *self.numbers.entry(slot.0).or_insert(next);
        if number == next {
            self.registers.push((slot, ty));
        }
        number
    }

    /// The lines of 64 bytes of all registers that may be read before they are written, in the function whose instructions are those of
    /// `code` from `start` on.
    pub(super) fn lines(&self, code: &Code, start: usize) -> Vec<u32> {
        let undefined = self.live_in(code, start);
        let lines: BTreeSet<u32> = undefined
            .flat_map(|number| {
                let (slot, ty) = self.registers[number];
                let bytes = if ty == Ty::Pred { 4 } else { ty.bytes() * 32 };
                slot.0 / 64..(slot.0 + bytes).div_ceil(64)
            })
            .collect();
        lines.into_iter().collect()
    }

    /// The numbers of the registers that are live where the function starts: the usual data flow, from each block to those before it.
    fn live_in(&self, code: &Code, start: usize) -> impl Iterator<Item = usize> + use<> {
        let blocks = blocks(code, start);
        let words = self.registers.len().div_ceil(64);
        let (mut live, mut kept) = (vec![0_u64; blocks.len() * words], vec![u64::MAX; blocks.len() * words]);
        for statement in &self.statements {
            let block = blocks.partition_point(|block| block.start <= statement.pc) - 1;
            let (live, kept) = (&mut live[block * words..][..words], &mut kept[block * words..][..words]);
            for &number in &statement.reads {
                live[number / 64] |= kept[number / 64] & (1 << (number % 64));
            }
            for &number in &statement.writes {
                kept[number / 64] &= !(1 << (number % 64));
            }
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (at, block) in blocks.iter().enumerate().rev() {
                for &next in &block.next {
                    for word in 0..words {
                        let new = live[next * words + word] & kept[at * words + word] & !live[at * words + word];
                        live[at * words + word] |= new;
                        changed |= new != 0;
                    }
                }
            }
        }
        live.truncate(words);
        (0..words * 64).filter(move |number| live[number / 64] >> (number % 64) & 1 == 1)
    }
}

/// The registers of an operand: those in a target are written, but for those of an address.
fn collect<'a>(operand: &Operand<'a>, target: bool, read: &mut Vec<&'a str>, written: &mut Vec<&'a str>) {
    match operand {
        Operand::Name(name) if target => written.push(name),
        Operand::Name(name) | Operand::Not(name) | Operand::Sum(name, _) => read.push(name),
        Operand::Address(base, _) => read.extend(base),
        Operand::Vector(all) | Operand::List(all) => all.iter().for_each(|one| collect(one, target, read, written)),
        Operand::Pair(first, second) => [first, second]
            .iter()
            .for_each(|one| collect(one, target, read, written)),
        Operand::Coordinates(base, _, all) => {
            read.extend(base);
            all.iter().for_each(|one| collect(one, false, read, written));
        }
        Operand::Integer(_) | Operand::Float(_) | Operand::Sink => {}
    }
}

/// Instructions that run one after the other, and the blocks that may follow.
struct Block {
    start: usize,
    next: Vec<usize>,
}

/// The basic blocks of the last function of `code`, which begins at `start`. Where the jumps go must be known.
fn blocks(code: &Code, start: usize) -> Vec<Block> {
    let targets = |pc: usize| -> Vec<usize> {
        let inst = &code.insts[pc];
        match inst.kind {
            Kind::Branch => vec![inst.imm as usize],
            Kind::BranchIndexed => {
                let (first, count) = inst.list;
                let list = &code.lists[first as usize..][..count as usize];
                list.iter().map(|slot| slot.0 as usize).collect()
            }
            _ => Vec::new(),
        }
    };
    let ends = |pc: usize| {
        matches!(
            code.insts[pc].kind,
            Kind::Branch | Kind::BranchIndexed | Kind::Return | Kind::Exit
        )
    };
    let end = code.insts.len();
    let mut starts = BTreeSet::from([start]);
    for pc in (start..end).filter(|&pc| ends(pc)) {
        starts.extend(targets(pc));
        starts.insert(pc + 1);
    }
    let starts: Vec<usize> = starts.into_iter().filter(|&pc| pc < end).collect();
    let block_of = |pc: usize| starts.binary_search(&pc).ok();
    let next = |index: usize| {
        let after = starts.get(index + 1).copied().unwrap_or(end);
        let last = after - 1;
        let falls = !ends(last) || code.insts[last].guard.is_some();
        let mut next = if ends(last) { targets(last) } else { Vec::new() };
        next.extend(falls.then_some(after));
        next.into_iter().filter_map(block_of).collect()
    };
    (0..starts.len())
        .map(|index| Block {
            start: starts[index],
            next: next(index),
        })
        .collect()
}
