//! `mma.sync`, `ldmatrix` and `stmatrix`.

use kiln_ptx::{Instruction, Opcode, Operand};

use super::decoder::{Result, blank};
use super::function::Body;
use crate::exec::Ty;
use crate::exec::tensor::{Multiplicand, ldmatrix, mma, mma_flags, stmatrix};
use crate::machine::{AccessKind, Inst, Kind, Slot, Space};

impl<'a> Body<'_, '_, 'a> {
    /// Decodes a tensor instruction; `false` when it is something else.
    pub(super) fn tensor(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<bool> {
        match op.name {
            "mma" => self.mma(instruction, op)?,
            "ldmatrix" => self.ldmatrix(instruction, op)?,
            "stmatrix" => self.stmatrix(instruction, op)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn mma(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let &["sync", "aligned", shape, "row", "col", d_ty, a_ty, b_ty, c_ty] = op.modifiers.as_slice() else {
            return Err(self.unsupported(instruction));
        };
        let Some(input) = Multiplicand::named(a_ty) else {
            return Err(self.unsupported(instruction));
        };
        let k: u32 = match (shape, input) {
            ("m16n8k16", Multiplicand::F16 | Multiplicand::Bf16) => 16,
            ("m16n8k8", _) => 8,
            ("m16n8k4", Multiplicand::Tf32) => 4,
            _ => return Err(self.unsupported(instruction)),
        };
        let half = |ty: &str| match ty {
            "f16" if input == Multiplicand::F16 => Some(true),
            "f32" => Some(false),
            _ => None,
        };
        let (Some(d_half), Some(c_half)) = (half(d_ty), half(c_ty)) else {
            return Err(self.unsupported(instruction));
        };
        let packed = input.packed() as u32;
        let count = |half: bool| if half { 2 } else { 4 };
        let counts = [count(d_half), 16 * k / 32 / packed, 8 * k / 32 / packed, count(c_half)];
        let same = instruction.operands.len() == 4 && a_ty == b_ty;
        let mut slots = Vec::new();
        for (n, (operand, count)) in instruction.operands.iter().zip(counts).enumerate() {
            let single = [operand.clone()];
            let list = if let Operand::Vector(list) = operand {
                list.as_slice()
            } else {
                &single
            };
            if !same || list.len() != count as usize {
                return Err(self.unsupported(instruction));
            }
            for operand in list {
                let slot = if n == 0 {
                    self.destination(operand, Ty::B32, false)?
                } else {
                    self.source(operand, Ty::B32)?
                };
                slots.push(slot);
            }
        }
        let mut inst = blank(mma);
        inst.flags = mma_flags(k, input, c_half, d_half);
        self.all_lanes(&mut inst, &slots);
        self.emit(inst);
        Ok(())
    }

    pub(super) fn all_lanes(&mut self, inst: &mut Inst, slots: &[Slot]) {
        inst.kind = Kind::Together;
        inst.e = self.d.constant(0xffff_ffff, Ty::B32);
        inst.list = self.list(slots);
    }

    fn ldmatrix(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let [Operand::Vector(targets), address] = instruction.operands.as_slice() else {
            return Err(self.unsupported(instruction));
        };
        let mut slots = Vec::new();
        for target in targets {
            slots.push(self.destination(target, Ty::B32, false)?);
        }
        self.matrices(blank(ldmatrix), AccessKind::Load, &slots, address, (instruction, op))
    }

    fn stmatrix(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let [address, Operand::Vector(sources)] = instruction.operands.as_slice() else {
            return Err(self.unsupported(instruction));
        };
        let mut slots = Vec::new();
        for source in sources {
            slots.push(self.source(source, Ty::B32)?);
        }
        self.matrices(blank(stmatrix), AccessKind::Store, &slots, address, (instruction, op))
    }

    /// A load or a store of matrices of 8 by 8, with a register for each.
    fn matrices(
        &mut self,
        mut inst: Inst,
        kind: AccessKind,
        slots: &[Slot],
        address: &Operand<'a>,
        (instruction, op): (&Instruction<'a>, &Opcode<'_>),
    ) -> Result<()> {
        let known = [
            "sync",
            "aligned",
            "m8n8",
            "x1",
            "x2",
            "x4",
            "trans",
            "shared",
            "shared::cta",
            "b16",
        ];
        let count = match () {
            () if op.has("x1") => 1,
            () if op.has("x2") => 2,
            () if op.has("x4") => 4,
            () => 0,
        };
        if !op.only(&known) || slots.len() != count {
            return Err(self.unsupported(instruction));
        }
        let space = if op.has("shared") || op.has("shared::cta") {
            Space::Shared
        } else {
            Space::Generic
        };
        self.locate_at(&mut inst, address, space, 16, kind, instruction)?;
        inst.flags |= u32::from(op.has("trans")) << 16;
        self.all_lanes(&mut inst, slots);
        self.emit(inst);
        Ok(())
    }
}
