//! Operands: names, numbers and vectors become slots.

use kiln_ptx::{Instruction, Opcode, Operand, Space};

use super::decoder::{Result, blank};
use super::function::{Body, Symbol};
use super::source::{function_address, place_of};
use crate::LoadError;
use crate::exec::{PARAM, Plan, SHARED, Ty, convert, select, special};
use crate::machine::{LaunchConstant, Slot};

impl<'a> Body<'_, '_, 'a> {
    fn complain<T>(&self, message: String) -> Result<T> {
        Err(LoadError::Syntax {
            line: self.line,
            message,
        })
    }

    /// The slot of a destination of this width. A wider register is filled after the instruction.
    pub(super) fn destination(&mut self, operand: &Operand<'a>, ty: Ty, signed: bool) -> Result<Slot> {
        match operand {
            Operand::Sink => Ok(self.new_slot(ty)),
            Operand::Name(name) => {
                let Some((slot, found)) = self.find_register(name) else {
                    return Err(self.undeclared(name, self.line));
                };
                if found == ty {
                    return Ok(slot);
                }
                let Some(plan) = convert::extend(ty, found, signed) else {
                    return self.complain(format!("{name} is a {found:?} where {ty:?} is written"));
                };
                let narrow = self.new_slot(ty);
                let mut inst = blank(plan.run);
                (inst.d, inst.a) = (slot, narrow);
                self.after.push(inst);
                Ok(narrow)
            }
            found => self.complain(format!("{found:?} is not a destination")),
        }
    }

    /// The slot of a source of this width. A wider register is narrowed before the instruction.
    pub(super) fn source(&mut self, operand: &Operand<'a>, ty: Ty) -> Result<Slot> {
        match operand {
            Operand::Integer(value) if ty == Ty::Pred => {
                Ok(self.d.constant(if *value != 0 { 0xffff_ffff } else { 0 }, ty))
            }
            Operand::Integer(value) => {
                let mask = if ty == Ty::B64 {
                    u64::MAX
                } else {
                    (1 << (8 * ty.bytes())) - 1
                };
                Ok(self.d.constant(*value as u64 & mask, ty))
            }
            Operand::Float(value) if ty == Ty::B64 => Ok(self.d.constant(value.to_bits(), ty)),
            Operand::Float(value) if ty == Ty::B32 => Ok(self.d.constant(u64::from((*value as f32).to_bits()), ty)),
            Operand::Name(name) => {
                if let Some((slot, found)) = self.find_register(name) {
                    return self.fit(name, slot, found, ty);
                }
                if let Some(plan) = special::select(name) {
                    return self.special(name, &plan, ty);
                }
                self.symbol(name, 0, ty)
            }
            Operand::Sum(name, offset) => self.symbol(name, *offset, ty),
            found => self.complain(format!("{found:?} is not a value")),
        }
    }

    /// A slot of the width `ty` with the low part of another.
    fn fit(&mut self, name: &str, slot: Slot, found: Ty, ty: Ty) -> Result<Slot> {
        if found == ty {
            return Ok(slot);
        }
        let Some(plan) = convert::truncate(found, ty) else {
            return self.complain(format!("{name} is a {found:?} where {ty:?} is read"));
        };
        Ok(self.apply(&plan, slot, ty))
    }

    /// Emits a plan of one source into a new slot.
    pub(super) fn apply(&mut self, plan: &Plan, a: Slot, ty: Ty) -> Slot {
        let d = self.new_slot(ty);
        let mut inst = blank(plan.run);
        (inst.d, inst.a, inst.flags) = (d, a, plan.flags);
        self.emit(inst);
        d
    }

    fn special(&mut self, name: &str, plan: &Plan, ty: Ty) -> Result<Slot> {
        let wide = plan.dst.unwrap_or(Ty::B32);
        let slot = self.apply(plan, Slot::NONE, wide);
        if wide == ty {
            return Ok(slot);
        }
        match convert::extend(wide, ty, false).or_else(|| convert::truncate(wide, ty)) {
            Some(plan) => Ok(self.apply(&plan, slot, ty)),
            None => self.complain(format!("{name} as a {ty:?}")),
        }
    }

    /// The address of a variable, in its own space.
    pub(super) fn symbol(&mut self, name: &str, offset: i64, ty: Ty) -> Result<Slot> {
        if !matches!(ty, Ty::B32 | Ty::B64) {
            return self.complain(format!("the address of {name} as a {ty:?}"));
        }
        match self.lookup(name) {
            Some((Symbol::Local { offset: at, .. }, _)) => {
                let plan = special::local_address();
                let mut inst = blank(plan.run);
                inst.d = self.new_slot(Ty::B64);
                inst.imm = i64::from(at) + offset;
                let d = inst.d;
                self.emit(inst);
                self.fit(name, d, Ty::B64, ty)
            }
            Some((Symbol::Param { offset: at }, _)) => Ok(self.d.constant((i64::from(at) + offset) as u64, ty)),
            Some((Symbol::Shared { offset: at }, _)) => Ok(self.d.constant((i64::from(at) + offset) as u64, ty)),
            Some(_) => self.complain(format!("{name} is a register, not a variable")),
            None => self.module_symbol(name, offset, ty),
        }
    }

    fn module_symbol(&mut self, name: &str, offset: i64, ty: Ty) -> Result<Slot> {
        let variables = &self.d.source.module.variables;
        let Some(variable) = variables.iter().find(|v| v.name == name) else {
            return match self.d.source.module.function(name) {
                Some(place) if ty == Ty::B64 && offset == 0 => Ok(self.d.constant(function_address(place), ty)),
                _ => Err(self.undeclared(name, self.line)),
            };
        };
        match variable.space {
            Space::Shared if variable.external || variable.size == 0 => {
                let align = &mut self.d.code.dynamic_align;
                *align = variable.align.max(*align);
                Ok(self.d.launch_constant(ty, LaunchConstant::Dynamic { offset }))
            }
            Space::Shared => {
                let base = self.d.shared_offset(name, variable.size, variable.align);
                Ok(self.d.constant((i64::from(base) + offset) as u64, ty))
            }
            _ if ty == Ty::B64 => match place_of(&self.d.source.module, name) {
                Some(at) => Ok(self.d.launch_constant(
                    ty,
                    LaunchConstant::Variable {
                        index: at as u32,
                        offset,
                    },
                )),
                None => Err(self.undeclared(name, self.line)),
            },
            _ => self.complain(format!("the address of {name} in 32 bits")),
        }
    }

    /// The state space that a variable's name implies, for `cvta` and others that take a bare name.
    pub(super) fn generic_base(space: Space) -> u64 {
        match space {
            Space::Shared => SHARED,
            Space::Local => crate::exec::LOCAL,
            Space::Param => PARAM,
            _ => 0,
        }
    }

    /// `mov` between a register and a vector of its parts; `false` when the instruction is something else.
    pub(super) fn vector_move(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<bool> {
        let [first, second] = instruction.operands.as_slice() else {
            return Ok(false);
        };
        if op.name != "mov" {
            return Ok(false);
        }
        let whole = match op.ty() {
            "b16" => Ty::B16,
            "b32" => Ty::B32,
            "b64" => Ty::B64,
            _ => return Ok(false),
        };
        match (first, second) {
            (Operand::Vector(parts), source) => {
                let part = self.part_type(whole, parts.len(), instruction)?;
                let a = self.source(source, whole)?;
                for (k, operand) in parts.iter().enumerate() {
                    if *operand == Operand::Sink {
                        continue;
                    }
                    let shift = self.d.constant(k as u64 * u64::from(8 * part.bytes()), Ty::B32);
                    let shifted = if k == 0 {
                        a
                    } else {
                        self.binary("shr", whole, a, shift)?
                    };
                    let d = self.destination(operand, part, false)?;
                    let Some(plan) = convert::truncate(whole, part) else {
                        return Err(self.unsupported(instruction));
                    };
                    let mut inst = blank(plan.run);
                    (inst.d, inst.a) = (d, shifted);
                    self.emit(inst);
                }
                Ok(true)
            }
            (target, Operand::Vector(parts)) => {
                let part = self.part_type(whole, parts.len(), instruction)?;
                let mut sum: Option<Slot> = None;
                for (k, operand) in parts.iter().enumerate() {
                    let value = self.source(operand, part)?;
                    let Some(plan) = convert::extend(part, whole, false) else {
                        return Err(self.unsupported(instruction));
                    };
                    let wide = self.apply(&plan, value, whole);
                    let shift = self.d.constant(k as u64 * u64::from(8 * part.bytes()), Ty::B32);
                    let shifted = if k == 0 {
                        wide
                    } else {
                        self.binary("shl", whole, wide, shift)?
                    };
                    sum = Some(match sum {
                        None => shifted,
                        Some(sum) => self.binary("or", whole, sum, shifted)?,
                    });
                }
                let d = self.destination(target, whole, false)?;
                let (Some(plan), Some(sum)) = (select(op), sum) else {
                    return Err(self.unsupported(instruction));
                };
                let mut inst = blank(plan.run);
                (inst.d, inst.a) = (d, sum);
                self.emit(inst);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn part_type(&self, whole: Ty, parts: usize, instruction: &Instruction<'_>) -> Result<Ty> {
        match whole.bytes() as usize / parts.max(1) {
            1 => Ok(Ty::B8),
            2 => Ok(Ty::B16),
            4 => Ok(Ty::B32),
            _ => Err(self.unsupported(instruction)),
        }
    }

    /// Emits `name.bN` of two sources into a new slot.
    pub(super) fn binary(&mut self, name: &str, ty: Ty, a: Slot, b: Slot) -> Result<Slot> {
        let text = format!("{name}.b{}", ty.bytes() * 8);
        let Some(plan) = select(&Opcode::new(&text)) else {
            return self.complain(text);
        };
        let d = self.new_slot(ty);
        let mut inst = blank(plan.run);
        (inst.d, inst.a, inst.b) = (d, a, b);
        self.emit(inst);
        Ok(d)
    }
}
