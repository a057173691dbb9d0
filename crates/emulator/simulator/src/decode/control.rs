//! Branches, calls, returns, barriers and fences.

use kiln_ptx::{Instruction, Opcode, Operand};

use super::decoder::{Result, blank, call_site, formals, nothing};
use super::function::{Body, Symbol};
use crate::exec::{Ty, barrier_flags, system, warpwide};
use crate::machine::{Kind, Slot};

impl<'a> Body<'_, '_, 'a> {
    /// Decodes an instruction of control flow; `false` when it is something else.
    pub(super) fn control(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<bool> {
        let mut inst = blank(nothing);
        match (op.name, instruction.operands.as_slice()) {
            ("bra", [Operand::Name(label)]) => {
                inst.kind = Kind::Branch;
                self.jumps.push((self.pc(), self.target(label)));
            }
            ("brx", [index, Operand::Name(list)]) if op.has("idx") => {
                let Some(labels) = self.targets.get(list).cloned() else {
                    return Err(self.undeclared(list, self.line));
                };
                inst.kind = Kind::BranchIndexed;
                inst.a = self.source(index, Ty::B32)?;
                inst.list = self.list(&vec![Slot::NONE; labels.len()]);
                for (k, label) in labels.iter().enumerate() {
                    self.list_jumps.push((inst.list.0 as usize + k, self.target(label)));
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
            ("fence", []) if op.has("proxy") => {
                let spaces = ["proxy", "async", "shared::cta", "shared::cluster", "global"];
                if !op.has("async") || !op.only(&spaces) {
                    return Err(self.unsupported(instruction));
                }
                inst.run = warpwide::proxy_fence;
            }
            ("membar" | "fence", _) => inst.run = warpwide::fence,
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
        let (name, arguments, list): (&str, &[Operand<'a>], Option<&str>) = match rest {
            [Operand::Name(name)] => (name, &[], None),
            [Operand::Name(name), Operand::List(arguments)] => (name, arguments, None),
            [Operand::Name(name), Operand::Name(list)] => (name, &[], Some(list)),
            [Operand::Name(name), Operand::List(arguments), Operand::Name(list)] => (name, arguments, Some(list)),
            _ => return Err(self.unsupported(instruction)),
        };
        if self.find_register(name).is_some() {
            let Some(list) = list else {
                return Err(self.unsupported(instruction));
            };
            return self.indirect_call(instruction, name, list, returns, arguments);
        }
        let Some(number) = self.d.function(name) else {
            return self.system_call(instruction, name, returns, arguments);
        };
        self.d.calls[self.number as usize].push(number);
        let site = self.call_site(instruction, number, returns, arguments)?;
        let mut inst = blank(nothing);
        inst.kind = Kind::Call;
        inst.imm = i64::from(site);
        self.emit(inst);
        Ok(())
    }

    /// Adds a call site: the parameters that a call passes to the function with this number. Returns the site's index.
    pub(super) fn call_site(
        &mut self,
        instruction: &Instruction<'a>,
        number: u32,
        returns: &[Operand<'a>],
        arguments: &[Operand<'a>],
    ) -> Result<u32> {
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
        self.d.code.calls.push(site);
        Ok(self.d.code.calls.len() as u32 - 1)
    }

    /// A call of a function that no text defines: a system call.
    fn system_call(
        &mut self,
        instruction: &Instruction<'a>,
        name: &str,
        returns: &[Operand<'a>],
        arguments: &[Operand<'a>],
    ) -> Result<()> {
        let Some(call) = system::call(name) else {
            return Err(self.undeclared(name, self.line));
        };
        if returns.len() > 1 || arguments.len() != call.arguments.len() || (call.result == 0) != returns.is_empty() {
            return Err(self.unsupported(instruction));
        }
        let mut slots = vec![Slot::NONE];
        for (operand, bytes) in returns
            .iter()
            .zip([call.result])
            .chain(arguments.iter().zip(call.arguments.to_vec()))
        {
            let at = self.call_operand(operand, instruction)?;
            // It has to lie in the frame as it is so far.
            if at.saturating_add(bytes) > self.local {
                return Err(self.unsupported(instruction));
            }
            slots.push(Slot(at));
        }
        if call.result > 0 {
            slots.remove(0);
        }
        self.d.code.heap |= call.heap;
        let mut inst = blank(call.run);
        inst.list = self.list(&slots);
        self.emit(inst);
        Ok(())
    }

    /// The offset of an argument in the caller's local memory.
    fn call_operand(&self, operand: &Operand<'a>, instruction: &Instruction<'a>) -> Result<u32> {
        if let Operand::Name(name) = operand
            && let Some((Symbol::Local { offset, .. }, _)) = self.lookup(name)
        {
            return Ok(offset);
        }
        Err(self.unsupported(instruction))
    }
}
