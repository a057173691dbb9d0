//! `wgmma` and `setmaxnreg`: instructions of a warpgroup.

use kiln_ptx::{Instruction, Opcode, Operand};

use super::accumulators::moved;
use super::decoder::{Result, blank};
use super::function::Body;
use crate::exec::Ty;
use crate::exec::product::{self, Product};
use crate::exec::tensor::Multiplicand;
use crate::machine::{Handler, Kind, Slot};

/// The registers of A, where it comes from registers.
const A_REGISTERS: usize = 4;

impl<'a> Body<'_, '_, 'a> {
    /// Decodes an instruction of a warpgroup; `false` when it is something else.
    pub(super) fn warpgroup(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<bool> {
        let operands = instruction.operands.as_slice();
        let run: Handler = match (op.name, op.modifiers.as_slice(), operands) {
            ("wgmma", ["mma_async", "sync", "aligned", rest @ ..], _) => {
                return self.product(instruction, rest).map(|()| true);
            }
            ("wgmma", ["fence", "sync", "aligned"], []) => product::fence,
            ("wgmma", ["commit_group", "sync", "aligned"], []) => product::commit,
            ("wgmma", ["wait_group", "sync", "aligned"], [Operand::Integer(0..=7)]) => product::wait,
            // How many registers a warp has makes no difference here.
            ("setmaxnreg", ["inc" | "dec", "sync", "aligned", "u32"], [Operand::Integer(n @ 24..=256)])
                if n % 8 == 0 =>
            {
                product::whole_warp
            }
            ("wgmma" | "setmaxnreg", ..) => return Err(self.unsupported(instruction)),
            _ => return Ok(false),
        };
        let mut inst = blank(run);
        if let [Operand::Integer(n)] = operands {
            inst.imm = *n;
        }
        self.all_lanes(&mut inst, &[]);
        self.emit(inst);
        Ok(true)
    }

    fn product(&mut self, instruction: &Instruction<'a>, modifiers: &[&str]) -> Result<()> {
        let refused = || self.unsupported(instruction);
        let &[shape, "f32", a_ty, b_ty] = modifiers else {
            return Err(refused());
        };
        let input = Multiplicand::named(a_ty).filter(|_| a_ty == b_ty).ok_or_else(refused)?;
        let tf32 = input == Multiplicand::Tf32;
        let columns = shape
            .strip_prefix("m64n")
            .and_then(|n| n.strip_suffix(if tf32 { "k8" } else { "k16" }))
            .and_then(|n| n.parse::<u32>().ok())
            .filter(|n| (8..=256).contains(n) && n.is_multiple_of(8))
            .ok_or_else(refused)?;
        let [Operand::Vector(results), a, b, keep, scales @ ..] = instruction.operands.as_slice() else {
            return Err(refused());
        };
        let in_registers = if let Operand::Vector(list) = a {
            if list.len() != A_REGISTERS {
                return Err(refused());
            }
            Some(list)
        } else {
            None
        };
        // Scales of A and B; then, for 16 bits, the transposes of what is in shared memory.
        let mut numbers = Vec::new();
        for scale in scales {
            let Operand::Integer(n) = scale else {
                return Err(refused());
            };
            numbers.push(*n);
        }
        let ([1 | -1, 1 | -1], transposes) = numbers.split_first_chunk::<2>().ok_or_else(refused)? else {
            return Err(refused());
        };
        let transpose = match (tf32, in_registers, transposes) {
            (true, _, []) => [0, 0],
            (false, None, [a @ (0 | 1), b @ (0 | 1)]) => [*a, *b],
            (false, Some(_), [b @ (0 | 1)]) => [0, *b],
            _ => return Err(refused()),
        };
        if results.len() != columns as usize / 2 {
            return Err(refused());
        }
        let mut slots = Vec::new();
        for result in results {
            // They are read too, so that no narrower copy will do.
            match result {
                Operand::Name(name) => slots.push(self.register(name, Ty::B32)?.0),
                _ => return Err(self.unsupported(instruction)),
            }
        }
        for register in in_registers.into_iter().flatten() {
            slots.push(self.source(register, Ty::B32)?);
        }
        let mut inst = blank(product::issued_by_the_block);
        if in_registers.is_none() {
            inst.a = self.source(a, Ty::B64)?;
        }
        inst.b = self.source(b, Ty::B64)?;
        inst.c = self.source(keep, Ty::Pred)?;
        inst.kind = Kind::Warpgroup;
        inst.flags = Product {
            eights: columns / 8,
            input,
            negate: [numbers[0] < 0, numbers[1] < 0],
            transpose: transpose.map(|t| t == 1),
        }
        .flags();
        inst.list = self.list(&slots);
        self.emit(inst);
        Ok(())
    }

    /// In front of an instruction of an observed kernel: a look at the accumulators among its sources, into which a product may
    /// be under way.
    pub(super) fn look_at_results(&mut self, instruction: &Instruction<'a>) {
        if self.results.is_empty() || instruction.opcode.starts_with("wgmma") {
            return;
        }
        if let Some((to, from)) = moved(instruction) {
            if self.results.contains(to)
                && let (Some((d, _)), Some((a, _))) = (self.find_register(to), self.find_register(from))
            {
                let mut inst = blank(product::move_result);
                (inst.d, inst.a) = (d, a);
                self.emit(inst);
            }
            return;
        }
        let mut slots = Vec::new();
        for operand in instruction.operands.iter().skip(1) {
            self.result_slots(operand, &mut slots);
        }
        if !slots.is_empty() {
            let mut inst = blank(product::read_results);
            inst.list = self.list(&slots);
            self.emit(inst);
        }
    }

    fn result_slots(&self, operand: &Operand<'a>, into: &mut Vec<Slot>) {
        match operand {
            Operand::Name(name) if self.results.contains(name) => {
                into.extend(self.find_register(name).map(|(slot, _)| slot));
            }
            Operand::Vector(list) => list.iter().for_each(|one| self.result_slots(one, into)),
            _ => {}
        }
    }
}
