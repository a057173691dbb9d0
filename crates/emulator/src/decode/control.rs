//! Branches, calls, returns, barriers and fences.

use super::function::{Body, Symbol};
use super::{Opcode, Result, blank, call_site, formals, nothing};
use crate::exec::{Kind, Slot, Ty, barrier_flags, warpwide};
use crate::ptx::{Instruction, Operand};

impl<'a> Body<'_, '_, 'a> {
    /// Decodes an instruction of control flow; `false` when it is something else.
    pub(super) fn control(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<bool> {
        let mut inst = blank(nothing);
        match (op.name, instruction.operands.as_slice()) {
            ("bra", [Operand::Name(label)]) => {
                inst.kind = Kind::Branch;
                self.jumps.push((self.pc(), label, self.line));
            }
            ("brx", [index, Operand::Name(list)]) if op.has("idx") => {
                let Some(labels) = self.targets.get(list).cloned() else {
                    return Err(self.undeclared(list, self.line));
                };
                inst.kind = Kind::BranchIndexed;
                inst.a = self.source(index, Ty::B32)?;
                inst.list = self.list(&vec![Slot::NONE; labels.len()]);
                for (k, label) in labels.iter().enumerate() {
                    self.list_jumps.push((inst.list.0 as usize + k, label, self.line));
                }
            }
            ("ret", []) => inst.kind = Kind::Return,
            ("exit", []) => inst.kind = Kind::Exit,
            ("trap", []) => inst.run = warpwide::trap,
            ("brkpt", []) => return Ok(true),
            ("call", operands) => return self.call(instruction, operands).map(|()| true),
            ("bar", [mask]) if op.has("warp") => {
                inst.kind = Kind::WarpBarrier;
                inst.a = self.source(mask, Ty::B32)?;
            }
            ("bar" | "barrier", operands) => return self.barrier(instruction, op, operands).map(|()| true),
            ("membar" | "fence", _) if !op.has("proxy") && !op.has("mbarrier_init") => inst.run = warpwide::fence,
            ("nanosleep", [_]) => return Ok(true),
            ("pmevent", _) => return Ok(true),
            _ => return Ok(false),
        }
        self.emit(inst);
        Ok(true)
    }

    fn barrier(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>, operands: &[Operand<'a>]) -> Result<()> {
        let mut inst = blank(nothing);
        inst.kind = Kind::Barrier;
        let known = [
            "sync", "arrive", "red", "popc", "and", "or", "aligned", "cta", "u32", "pred",
        ];
        if !op.only(&known) {
            return Err(self.unsupported(instruction));
        }
        let mut rest = operands;
        if op.has("red") {
            let (flag, ty) = match () {
                () if op.has("popc") => (barrier_flags::POPC, Ty::B32),
                () if op.has("and") => (barrier_flags::AND, Ty::Pred),
                () => (barrier_flags::OR, Ty::Pred),
            };
            inst.flags |= flag;
            let [target, middle @ .., vote] = rest else {
                return Err(self.unsupported(instruction));
            };
            inst.d = self.destination(target, ty, false)?;
            inst.c = match vote {
                Operand::Not(name) => {
                    inst.flags |= barrier_flags::NOT;
                    self.register(name, Ty::Pred)?.0
                }
                vote => self.source(vote, Ty::Pred)?,
            };
            rest = middle;
        }
        if op.has("arrive") {
            inst.flags |= barrier_flags::ARRIVE;
        }
        match rest {
            [id] if !op.has("arrive") => inst.a = self.source(id, Ty::B32)?,
            [id, count] => {
                inst.a = self.source(id, Ty::B32)?;
                inst.b = self.source(count, Ty::B32)?;
            }
            _ => return Err(self.unsupported(instruction)),
        }
        self.emit(inst);
        Ok(())
    }

    fn call(&mut self, instruction: &Instruction<'a>, operands: &[Operand<'a>]) -> Result<()> {
        let (returns, rest): (&[Operand<'a>], _) = match operands {
            [Operand::List(returns), rest @ ..] => (returns, rest),
            rest => (&[], rest),
        };
        let (name, arguments): (&str, &[Operand<'a>]) = match rest {
            [Operand::Name(name)] => (name, &[]),
            [Operand::Name(name), Operand::List(arguments)] => (name, arguments),
            _ => return Err(self.unsupported(instruction)),
        };
        if name == "__assertfail" {
            let mut inst = blank(warpwide::assertion);
            inst.kind = Kind::Plain;
            self.emit(inst);
            return Ok(());
        }
        let Some(number) = self.d.function(name) else {
            return Err(self.unsupported(instruction));
        };
        let callee = self.d.functions[number as usize];
        let (return_offsets, param_offsets, _) = formals(callee);
        if returns.len() != return_offsets.len() || arguments.len() != param_offsets.len() {
            return Err(self.unsupported(instruction));
        }
        let mut site = call_site(number);
        for ((operand, formal), at) in arguments.iter().zip(&callee.params).zip(param_offsets) {
            site.arguments
                .push((self.call_operand(operand, instruction)?, at, formal.size));
        }
        for ((operand, formal), at) in returns.iter().zip(&callee.returns).zip(return_offsets) {
            site.results
                .push((self.call_operand(operand, instruction)?, at, formal.size));
        }
        let mut inst = blank(nothing);
        inst.kind = Kind::Call;
        inst.imm = self.d.code.calls.len() as i64;
        self.d.code.calls.push(site);
        self.emit(inst);
        Ok(())
    }

    /// Where an argument lies in the caller's local memory.
    fn call_operand(&self, operand: &Operand<'a>, instruction: &Instruction<'a>) -> Result<u32> {
        if let Operand::Name(name) = operand
            && let Some((Symbol::Local { offset, .. }, _)) = self.lookup(name)
        {
            return Ok(offset);
        }
        Err(self.unsupported(instruction))
    }
}
