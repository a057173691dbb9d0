//! `mbarrier` and `cp.async.bulk`.

use kiln_ptx::{Instruction, Opcode, Operand};

use super::decoder::{Result, blank};
use super::function::Body;
use crate::exec::mbarrier::{self, mbarrier_flags};
use crate::exec::{Ty, bulk};
use crate::machine::{AccessKind, Handler, Kind, ORDERED, Slot, Space};

/// Bytes of an mbarrier.
const SIZE: u32 = 8;
/// Modifiers that every `mbarrier` may have: the orders that the checker takes for granted, and its space and type.
const COMMON: [&str; 7] = ["acquire", "release", "relaxed", "cta", "shared", "shared::cta", "b64"];

impl<'a> Body<'_, '_, 'a> {
    /// Decodes an instruction of barriers in shared memory; `false` when it is something else.
    pub(super) fn mbarrier(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<bool> {
        let operands = instruction.operands.as_slice();
        if op.name == "cp" {
            match op.modifiers.get(1) {
                Some(&"mbarrier") => self.arrive_after_copies(instruction, op)?,
                Some(&"bulk") => self.bulk_copy(instruction, op)?,
                _ => return Ok(false),
            }
            return Ok(true);
        }
        if op.name != "mbarrier" {
            return Ok(false);
        }
        let Some(what) = op.modifiers.iter().find(|m| !COMMON.contains(m)) else {
            return Err(self.unsupported(instruction));
        };
        let shared = op.has("shared") || op.has("shared::cta");
        let known = |m: &&str| COMMON.contains(m) || ["parity", "expect_tx", *what].contains(m);
        if op.ty() != "b64" || !shared || !op.modifiers.iter().all(known) {
            return Err(self.unsupported(instruction));
        }
        match (*what, op.has("expect_tx"), op.has("parity"), operands) {
            ("init", false, false, [at, count]) => {
                let count = self.source(count, Ty::B32)?;
                self.at_mbarrier(instruction, at, mbarrier::init, AccessKind::Store, |inst| {
                    inst.b = count
                })?;
            }
            ("inval", false, false, [at]) => {
                self.at_mbarrier(instruction, at, mbarrier::invalidate, AccessKind::Store, |_| ())?;
            }
            ("arrive", false, false, [state, at, rest @ ..]) if rest.len() <= 1 => {
                let state = self.destination(state, Ty::B64, false)?;
                let count = match rest {
                    [count] => self.source(count, Ty::B32)?,
                    _ => Slot::NONE,
                };
                self.at_mbarrier(instruction, at, mbarrier::arrive, AccessKind::Atomic, |inst| {
                    (inst.d, inst.b) = (state, count);
                    inst.flags |= ORDERED | mbarrier_flags::ARRIVE;
                })?;
            }
            ("arrive", true, false, [state, at, bytes]) => {
                let (state, bytes) = (self.destination(state, Ty::B64, false)?, self.source(bytes, Ty::B32)?);
                self.at_mbarrier(instruction, at, mbarrier::arrive, AccessKind::Atomic, |inst| {
                    (inst.d, inst.c) = (state, bytes);
                    inst.flags |= ORDERED | mbarrier_flags::ARRIVE;
                })?;
            }
            ("expect_tx", true, false, [at, bytes]) => {
                let bytes = self.source(bytes, Ty::B32)?;
                self.at_mbarrier(instruction, at, mbarrier::arrive, AccessKind::Atomic, |inst| {
                    inst.c = bytes
                })?;
            }
            ("test_wait" | "try_wait", false, parity, [done, at, phase, rest @ ..]) => {
                // A time for which a thread may wait is a hint.
                let hint = *what == "try_wait" && rest.len() <= 1;
                if !rest.is_empty() && !hint {
                    return Err(self.unsupported(instruction));
                }
                let done = self.destination(done, Ty::Pred, false)?;
                let (ty, flag) = if parity {
                    (Ty::B32, mbarrier_flags::PARITY)
                } else {
                    (Ty::B64, 0)
                };
                let phase = self.source(phase, ty)?;
                let waits = *what == "try_wait";
                self.at_mbarrier(instruction, at, mbarrier::test_wait, AccessKind::StrongLoad, |inst| {
                    (inst.d, inst.b) = (done, phase);
                    inst.flags |= ORDERED | flag;
                    if waits {
                        inst.kind = Kind::Phase;
                    }
                })?;
            }
            _ => return Err(self.unsupported(instruction)),
        }
        Ok(true)
    }

    fn at_mbarrier(
        &mut self,
        instruction: &Instruction<'a>,
        at: &Operand<'a>,
        run: Handler,
        kind: AccessKind,
        set: impl FnOnce(&mut crate::machine::Inst),
    ) -> Result<()> {
        let mut inst = blank(run);
        self.locate_at(&mut inst, at, Space::Shared, SIZE, kind, instruction)?;
        set(&mut inst);
        self.emit(inst);
        Ok(())
    }

    fn arrive_after_copies(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let known = ["async", "mbarrier", "arrive", "noinc", "shared", "shared::cta", "b64"];
        let [at] = instruction.operands.as_slice() else {
            return Err(self.unsupported(instruction));
        };
        let shared = op.has("shared") || op.has("shared::cta");
        if !op.only(&known) || !op.has("arrive") || !shared {
            return Err(self.unsupported(instruction));
        }
        let more = if op.has("noinc") { 0 } else { mbarrier_flags::MORE };
        let run = mbarrier::arrive_after_copies;
        self.at_mbarrier(instruction, at, run, AccessKind::Atomic, |inst| inst.flags |= more)
    }

    fn bulk_copy(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<()> {
        let modifiers: Vec<&str> = op
            .modifiers
            .iter()
            .copied()
            .filter(|m| *m != "L2::cache_hint")
            .collect();
        let ["async", "bulk", rest @ ..] = modifiers.as_slice() else {
            return Err(self.unsupported(instruction));
        };
        let (rank, rest) = match rest {
            ["tensor", rank, rest @ ..] => (rank.trim_end_matches('d').parse::<usize>().ok(), rest),
            rest => (None, rest),
        };
        let rest: Vec<&str> = rest
            .iter()
            .copied()
            .filter(|m| *m != "tile" || rank.is_none())
            .collect();
        if !matches!(
            rest.as_slice(),
            [
                "shared::cluster" | "shared::cta",
                "global",
                "mbarrier::complete_tx::bytes"
            ]
        ) {
            return Err(self.unsupported(instruction));
        }
        let mut inst;
        match (rank, instruction.operands.as_slice()) {
            (Some(rank), [to, Operand::Coordinates(map, offset, place), barrier]) if place.len() == rank => {
                inst = blank(bulk::tensor);
                inst.a = self.plain_address(to, Space::Shared, instruction)?;
                inst.b = self.plain_address(&Operand::Address(*map, *offset), Space::Generic, instruction)?;
                inst.c = self.plain_address(barrier, Space::Shared, instruction)?;
                let mut slots = Vec::new();
                for coordinate in place {
                    slots.push(self.source(coordinate, Ty::B32)?);
                }
                inst.list = self.list(&slots);
            }
            (None, [to, from, size, barrier]) => {
                inst = blank(bulk::copy);
                inst.a = self.plain_address(to, Space::Shared, instruction)?;
                inst.b = self.plain_address(from, Space::Global, instruction)?;
                inst.c = self.plain_address(barrier, Space::Shared, instruction)?;
                inst.e = self.source(size, Ty::B32)?;
            }
            _ => return Err(self.unsupported(instruction)),
        }
        self.emit(inst);
        Ok(())
    }
}
