//! Loads, stores, atomics, asynchronous copies and address conversions.

use kiln_ptx::{Instruction, Opcode, Operand, type_size};

use super::decoder::{Result, blank};
use super::function::{Body, Symbol};
use crate::exec::{Ty, async_copy, atomics, convert, locate, locate_polled, memory, select};
use crate::machine::{AccessKind, Inst, LaunchConstant, ORDERED, STORED, Slot, Space, access_flags};

/// True for modifiers that order an access, choose its caching or name its state space.
fn known(modifier: &str) -> bool {
    matches!(
        modifier,
        "volatile"
            | "relaxed"
            | "acquire"
            | "release"
            | "acq_rel"
            | "weak"
            | "gpu"
            | "sys"
            | "cta"
            | "cluster"
            | "nc"
            | "ca"
            | "cg"
            | "cs"
            | "lu"
            | "cv"
            | "wb"
            | "wt"
            | "global"
            | "shared"
            | "shared::cta"
            | "local"
            | "param"
            | "param::entry"
            | "param::func"
            | "const"
            | "v2"
            | "v4"
    ) || modifier.starts_with("L1::")
        || modifier.starts_with("L2::")
        || type_size(modifier).is_some()
}

fn space(op: &Opcode<'_>) -> Space {
    let named = op.modifiers.iter().find_map(|m| {
        Some(match *m {
            "global" => Space::Global,
            "shared" | "shared::cta" => Space::Shared,
            "local" => Space::Local,
            "const" => Space::Const,
            "param" | "param::entry" | "param::func" => Space::Param,
            _ => return None,
        })
    });
    named.unwrap_or(Space::Generic)
}

/// The flag of an access that acquires or releases.
fn ordered(op: &Opcode<'_>) -> u32 {
    let orders = ["acquire", "release", "acq_rel"].iter().any(|m| op.has(m));
    if orders { ORDERED } else { 0 }
}

fn width(ty: &str) -> Option<Ty> {
    Some(match type_size(ty)? {
        1 => Ty::B8,
        2 => Ty::B16,
        4 => Ty::B32,
        8 => Ty::B64,
        _ => return None,
    })
}

/// An address: the slot of its base, true if that has 64 bits, and the offset.
struct Address {
    base: Slot,
    wide: bool,
    offset: i64,
    space: Space,
}

impl<'a> Body<'_, '_, 'a> {
    fn address(&mut self, operand: &Operand<'a>, space: Space, instruction: &Instruction<'a>) -> Result<Address> {
        let Operand::Address(base, offset) = operand else {
            return Err(self.unsupported(instruction));
        };
        let Some(name) = base else {
            return Ok(Address {
                base: self.d.constant(*offset as u64, Ty::B64),
                wide: true,
                offset: 0,
                space,
            });
        };
        if let Some((slot, ty)) = self.find_register(name) {
            return match ty {
                Ty::B64 => Ok(Address {
                    base: slot,
                    wide: true,
                    offset: *offset,
                    space,
                }),
                Ty::B32 if space == Space::Shared => Ok(Address {
                    base: slot,
                    wide: false,
                    offset: *offset,
                    space,
                }),
                Ty::B32 => match convert::extend(Ty::B32, Ty::B64, false) {
                    Some(plan) => {
                        let base = self.apply(&plan, slot, Ty::B64);
                        Ok(Address {
                            base,
                            wide: true,
                            offset: *offset,
                            space,
                        })
                    }
                    None => Err(self.unsupported(instruction)),
                },
                _ => Err(self.unsupported(instruction)),
            };
        }
        // Parameters of functions, and of calls, are local memory.
        let space = match self.lookup(name) {
            Some((Symbol::Local { .. }, _)) => Space::Local,
            Some((Symbol::Shared { .. }, _)) => Space::Shared,
            _ => space,
        };
        Ok(Address {
            base: self.symbol(name, *offset, Ty::B64)?,
            wide: true,
            offset: 0,
            space,
        })
    }

    fn set_address(&mut self, inst: &mut Inst, address: &Address, size: u32, kind: AccessKind) {
        let [shared, global] = &mut self.d.code.granules;
        let least = |granule: &mut u32| *granule = if *granule == 0 { size.min(4) } else { size.min(*granule) };
        if matches!(address.space, Space::Shared | Space::Generic) {
            least(shared);
        }
        if matches!(address.space, Space::Global | Space::Const | Space::Generic) {
            least(global);
        }
        inst.a = address.base;
        inst.imm = address.offset;
        inst.flags = access_flags(size, kind);
        let locate = match kind {
            AccessKind::StrongLoad | AccessKind::Atomic => locate_polled,
            _ => locate,
        };
        inst.locate = locate(address.space, address.wide, self.d.observed);
    }

    /// Gives an instruction its address operand.
    pub(super) fn locate_at(
        &mut self,
        inst: &mut Inst,
        operand: &Operand<'a>,
        space: Space,
        size: u32,
        kind: AccessKind,
        instruction: &Instruction<'a>,
    ) -> Result<()> {
        let address = self.address(operand, space, instruction)?;
        self.set_address(inst, &address, size, kind);
        Ok(())
    }

    /// The slot of 64 bits of an address with its offset, which the instruction checks by itself.
    pub(super) fn plain_address(
        &mut self,
        operand: &Operand<'a>,
        space: Space,
        instruction: &Instruction<'a>,
    ) -> Result<Slot> {
        let Address { base, wide, offset, .. } = self.address(operand, space, instruction)?;
        let base = match (wide, convert::extend(Ty::B32, Ty::B64, false)) {
            (true, _) => base,
            (false, Some(plan)) => self.apply(&plan, base, Ty::B64),
            (false, None) => return Err(self.unsupported(instruction)),
        };
        if offset == 0 {
            return Ok(base);
        }
        let Some(plan) = select(&Opcode::new("add.u64")) else {
            return Err(self.unsupported(instruction));
        };
        let mut inst = blank(plan.run);
        (inst.d, inst.a) = (self.new_slot(Ty::B64), base);
        inst.b = self.d.constant(offset as u64, Ty::B64);
        let d = inst.d;
        self.emit(inst);
        Ok(d)
    }

    /// Decodes an instruction that touches memory or addresses; `false` when it is something else.
    pub(super) fn memory(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<bool> {
        // A cache policy, the last operand, has no effect here.
        let mut plain;
        let instruction = if op.has("L2::cache_hint") {
            plain = instruction.clone();
            plain.operands.pop();
            &plain
        } else {
            instruction
        };
        match op.name {
            "ld" | "ldu" => self.load(instruction, op)?,
            "st" => self.store(instruction, op)?,
            "atom" | "red" => self.atomic(instruction, op)?,
            "cvta" => self.convert_address(instruction, op)?,
            "isspacep" => self.is_space(instruction, op)?,
            "cp" | "mbarrier" if self.mbarrier(instruction, op)? => {}
            "cp" if op.modifiers.first() == Some(&"async") => self.async_copy(instruction, op)?,
            "prefetch" | "prefetchu" | "discard" | "applypriority" => {}
            "createpolicy" => {
                let (Some(target), Some(plan)) = (instruction.operands.first(), select(&Opcode::new("mov.b64"))) else {
                    return Err(self.unsupported(instruction));
                };
                let mut inst = blank(plan.run);
                inst.a = self.d.constant(0, Ty::B64);
                inst.d = self.destination(target, Ty::B64, false)?;
                self.emit(inst);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn load(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let ([target, source], Some(width)) = (instruction.operands.as_slice(), width(op.ty())) else {
            return Err(self.unsupported(instruction));
        };
        if !op.modifiers.iter().all(|m| known(m)) {
            return Err(self.unsupported(instruction));
        }
        let targets: Vec<&Operand<'a>> = match target {
            Operand::Vector(list) => list.iter().collect(),
            single => vec![single],
        };
        let space = space(op);
        if space == Space::Param
            && let Operand::Address(Some(name), offset) = source
            && let Some((Symbol::Param { offset: at }, _)) = self.lookup(name)
            && let Ok(start) = u32::try_from(i64::from(at) + offset)
            // A read outside of them is an access like others, and a fault where it is carried out.
            && u64::from(start) + targets.len() as u64 * u64::from(width.bytes()) <= u64::from(self.params)
        {
            for (k, target) in targets.iter().enumerate() {
                let constant = LaunchConstant::Param {
                    offset: start + k as u32 * width.bytes(),
                    size: width.bytes(),
                };
                self.load_param(target, op.ty(), width, constant, instruction)?;
            }
            return Ok(());
        }
        let address = self.address(source, space, instruction)?;
        let strong = ["volatile", "relaxed", "acquire"].iter().any(|m| op.has(m));
        let kind = if strong {
            AccessKind::StrongLoad
        } else {
            AccessKind::Load
        };
        let slots = self.load_targets(&targets, instruction)?;
        let register = slots.iter().find_map(|s| *s).map_or(width, |(_, ty)| ty);
        let vector = matches!(target, Operand::Vector(_));
        let Some(run) = memory::load(op.ty(), register, vector) else {
            return Err(self.unsupported(instruction));
        };
        let mut inst = blank(run);
        self.set_address(&mut inst, &address, width.bytes() * targets.len() as u32, kind);
        inst.flags |= ordered(op);
        if kind == AccessKind::Load {
            self.guesses.loads.push(self.pc());
        }
        if vector {
            let slots: Vec<Slot> = slots.iter().map(|s| s.map_or(Slot::NONE, |(slot, _)| slot)).collect();
            inst.list = self.list(&slots);
        } else {
            inst.d = match slots[0] {
                Some((slot, _)) => slot,
                None => self.new_slot(width),
            };
        }
        self.emit(inst);
        Ok(())
    }

    fn load_targets(&self, targets: &[&Operand<'a>], instruction: &Instruction<'a>) -> Result<Vec<Option<(Slot, Ty)>>> {
        let find = |target: &&Operand<'a>| match target {
            Operand::Sink => Ok(None),
            Operand::Name(name) => match self.find_register(name) {
                Some(found) => Ok(Some(found)),
                None => Err(self.undeclared(name, self.line)),
            },
            _ => Err(self.unsupported(instruction)),
        };
        targets.iter().map(find).collect()
    }

    fn load_param(
        &mut self,
        target: &Operand<'a>,
        ty: &str,
        width: Ty,
        constant: LaunchConstant,
        instruction: &Instruction<'a>,
    ) -> Result<()> {
        let slot = self.d.launch_constant(width, constant);
        let d = self.destination(target, width, ty.starts_with('s'))?;
        let text = format!("mov.b{}", width.bytes() * 8);
        // PTX has no move of bytes; the emulator has one of its own.
        let plan = if width == Ty::B8 {
            crate::exec::byte_move()
        } else {
            select(&Opcode::new(&text))
        };
        let Some(plan) = plan else {
            return Err(self.unsupported(instruction));
        };
        let mut inst = blank(plan.run);
        (inst.d, inst.a) = (d, slot);
        self.emit(inst);
        Ok(())
    }

    /// Adds slots to the code's lists.
    pub(super) fn list(&mut self, slots: &[Slot]) -> (u32, u32) {
        let start = self.d.code.lists.len() as u32;
        self.d.code.lists.extend_from_slice(slots);
        (start, slots.len() as u32)
    }

    fn store(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let ([target, source], Some(width)) = (instruction.operands.as_slice(), width(op.ty())) else {
            return Err(self.unsupported(instruction));
        };
        if !op.modifiers.iter().all(|m| known(m)) {
            return Err(self.unsupported(instruction));
        }
        let address = self.address(target, space(op), instruction)?;
        let sources: Vec<&Operand<'a>> = match source {
            Operand::Vector(list) => list.iter().collect(),
            single => vec![single],
        };
        let vector = matches!(source, Operand::Vector(_));
        let mut slots = Vec::new();
        let mut register = width;
        for source in &sources {
            // A register may be wider than the value that is stored.
            match source {
                Operand::Name(name)
                    if self
                        .find_register(name)
                        .is_some_and(|(_, ty)| ty.bytes() > width.bytes() && !vector) =>
                {
                    let Some((slot, ty)) = self.find_register(name) else {
                        return Err(self.unsupported(instruction));
                    };
                    register = ty;
                    slots.push(slot);
                }
                source => slots.push(self.source(source, width)?),
            }
        }
        let Some(run) = memory::store(op.ty(), register, vector) else {
            return Err(self.unsupported(instruction));
        };
        let strong = ["volatile", "relaxed", "release"].iter().any(|m| op.has(m));
        let kind = if strong {
            AccessKind::StrongStore
        } else {
            AccessKind::Store
        };
        let mut inst = blank(run);
        self.set_address(&mut inst, &address, width.bytes() * sources.len() as u32, kind);
        inst.flags |= ordered(op) | register.bytes() << STORED;
        if vector {
            inst.list = self.list(&slots);
        } else {
            inst.b = slots[0];
        }
        self.emit(inst);
        Ok(())
    }

    fn atomic(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let returns = op.name == "atom";
        let Some((run, width)) = atomics::select(op) else {
            return Err(self.unsupported(instruction));
        };
        let mut operands = instruction.operands.iter();
        let d = match operands.next() {
            Some(target) if returns => self.destination(target, width, false)?,
            Some(_) => Slot::NONE,
            None => return Err(self.unsupported(instruction)),
        };
        if !returns {
            operands = instruction.operands.iter();
        }
        let (Some(target), Some(b)) = (operands.next(), operands.next()) else {
            return Err(self.unsupported(instruction));
        };
        let address = self.address(target, space(op), instruction)?;
        let mut inst = blank(run);
        inst.b = self.source(b, width)?;
        if let Some(c) = operands.next() {
            inst.c = self.source(c, width)?;
        }
        if op.has("cas") != inst.c.is_some() {
            return Err(self.unsupported(instruction));
        }
        inst.d = d;
        self.set_address(&mut inst, &address, width.bytes(), AccessKind::Atomic);
        inst.flags |= ordered(op);
        if op.has("cas") {
            self.guesses.swaps.push(self.pc());
        }
        self.emit(inst);
        Ok(())
    }

    fn convert_address(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let [target, source] = instruction.operands.as_slice() else {
            return Err(self.unsupported(instruction));
        };
        let ty = match op.ty() {
            "u64" => Ty::B64,
            _ => return Err(self.unsupported(instruction)),
        };
        let base = Self::generic_base(space(op));
        let base = if op.has("to") { base.wrapping_neg() } else { base };
        let a = self.source(source, ty)?;
        let b = self.d.constant(base, Ty::B64);
        let d = self.destination(target, ty, false)?;
        let text = if base == 0 { "mov.u64" } else { "add.u64" };
        let Some(plan) = select(&Opcode::new(text)) else {
            return Err(self.unsupported(instruction));
        };
        let mut inst = blank(plan.run);
        (inst.d, inst.a, inst.b) = (d, a, b);
        self.emit(inst);
        Ok(())
    }

    fn is_space(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let [target, source] = instruction.operands.as_slice() else {
            return Err(self.unsupported(instruction));
        };
        let window = self.d.constant(Self::generic_base(space(op)) >> 56, Ty::B64);
        let a = self.source(source, Ty::B64)?;
        let shift = self.d.constant(56, Ty::B32);
        let high = self.binary("shr", Ty::B64, a, shift)?;
        let d = self.destination(target, Ty::Pred, false)?;
        let Some(plan) = select(&Opcode::new("setp.eq.u64")) else {
            return Err(self.unsupported(instruction));
        };
        let mut inst = blank(plan.run);
        (inst.d, inst.a, inst.b) = (d, high, window);
        self.emit(inst);
        Ok(())
    }

    fn async_copy(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let operands = instruction.operands.as_slice();
        match (op.modifiers.get(1).copied(), operands) {
            (Some("commit_group"), []) => self.emit(blank(async_copy::commit)),
            (Some("wait_all"), []) => {
                let mut inst = blank(async_copy::wait);
                inst.imm = -1;
                self.emit(inst);
            }
            (Some("wait_group"), [Operand::Integer(groups)]) => {
                let mut inst = blank(async_copy::wait);
                inst.imm = *groups;
                self.emit(inst);
            }
            (Some("ca" | "cg"), [target, source, Operand::Integer(size @ (4 | 8 | 16)), rest @ ..]) => {
                let to = self.address(target, Space::Shared, instruction)?;
                let from = self.address(source, Space::Global, instruction)?;
                let mut inst = blank(async_copy::issue);
                self.set_address(&mut inst, &to, *size as u32, AccessKind::AsyncStore);
                inst.b = from.base;
                inst.list = (from.offset as i32 as u32, 0);
                match rest {
                    [] => {}
                    [Operand::Name(name)] if self.find_register(name).is_some_and(|(_, ty)| ty == Ty::Pred) => {
                        inst.e = self.register(name, Ty::Pred)?.0;
                    }
                    [read] => inst.c = self.source(read, Ty::B32)?,
                    _ => return Err(self.unsupported(instruction)),
                }
                self.emit(inst);
            }
            _ => return Err(self.unsupported(instruction)),
        }
        Ok(())
    }
}
