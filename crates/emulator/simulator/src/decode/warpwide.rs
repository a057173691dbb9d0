//! Shuffles, votes, matches and reductions of a warp.

use kiln_ptx::{Instruction, Opcode, Operand};

use super::decoder::{Result, blank};
use super::function::Body;
use crate::exec::{Ty, warpwide};
use crate::machine::{Handler, Kind, Slot};

impl<'a> Body<'_, '_, 'a> {
    /// Decodes a warp-wide instruction; `false` when it is something else.
    pub(super) fn warpwide(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>) -> Result<bool> {
        let operands = instruction.operands.as_slice();
        match (op.name, operands) {
            ("shfl", [target, a, b, c, member]) if op.has("sync") && op.ty() == "b32" => {
                let Some(run) = warpwide::shuffle(op) else {
                    return Err(self.unsupported(instruction));
                };
                let (d, d2) = self.pair(target, Ty::B32)?;
                let (a, b, c) = (
                    self.source(a, Ty::B32)?,
                    self.source(b, Ty::B32)?,
                    self.source(c, Ty::B32)?,
                );
                self.together(run, (d, d2), [a, b, c], member, 0)?;
            }
            ("vote", [target, vote, member]) if op.has("sync") => {
                let (run, ty, flags) = match op.modifiers.get(1).copied() {
                    Some("all") => (warpwide::vote as Handler, Ty::Pred, 0),
                    Some("any") => (warpwide::vote as Handler, Ty::Pred, 1),
                    Some("uni") => (warpwide::vote as Handler, Ty::Pred, 2),
                    Some("ballot") => (warpwide::ballot as Handler, Ty::B32, 0),
                    _ => return Err(self.unsupported(instruction)),
                };
                let d = self.destination(target, ty, false)?;
                let (a, negated) = match vote {
                    Operand::Not(name) => (self.register(name, Ty::Pred)?.0, 4),
                    vote => (self.source(vote, Ty::Pred)?, 0),
                };
                self.together(
                    run,
                    (d, Slot::NONE),
                    [a, Slot::NONE, Slot::NONE],
                    member,
                    flags | negated,
                )?;
            }
            ("match", [target, a, member]) if op.has("sync") => {
                let wide = op.ty() == "b64";
                let ty = if wide { Ty::B64 } else { Ty::B32 };
                let run: Handler = match (op.has("any"), wide) {
                    (true, false) => warpwide::match_any::<u32>,
                    (true, true) => warpwide::match_any::<u64>,
                    (false, false) => warpwide::match_all::<u32>,
                    (false, true) => warpwide::match_all::<u64>,
                };
                let (d, d2) = self.pair(target, Ty::B32)?;
                let a = self.source(a, ty)?;
                self.together(run, (d, d2), [a, Slot::NONE, Slot::NONE], member, 0)?;
            }
            ("redux", [target, a, member]) => {
                let Some((run, flags)) = warpwide::redux(op) else {
                    return Err(self.unsupported(instruction));
                };
                let d = self.destination(target, Ty::B32, false)?;
                let a = self.source(a, Ty::B32)?;
                self.together(run, (d, Slot::NONE), [a, Slot::NONE, Slot::NONE], member, flags)?;
            }
            ("elect", [target, member]) => {
                let (d, d2) = self.pair(target, Ty::B32)?;
                self.together(warpwide::elect, (d, d2), [Slot::NONE; 3], member, 0)?;
            }
            ("activemask", [target]) => {
                let mut inst = blank(warpwide::active_mask);
                inst.d = self.destination(target, Ty::B32, false)?;
                self.emit(inst);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `d|p` or `d`.
    fn pair(&mut self, target: &Operand<'a>, ty: Ty) -> Result<(Slot, Slot)> {
        match target {
            Operand::Pair(d, p) => Ok((self.destination(d, ty, false)?, self.destination(p, Ty::Pred, false)?)),
            d => Ok((self.destination(d, ty, false)?, Slot::NONE)),
        }
    }

    pub(super) fn together(
        &mut self,
        run: Handler,
        (d, d2): (Slot, Slot),
        [a, b, c]: [Slot; 3],
        member: &Operand<'a>,
        flags: u32,
    ) -> Result<()> {
        let mut inst = blank(run);
        inst.kind = Kind::Together;
        (inst.d, inst.d2, inst.a, inst.b, inst.c, inst.flags) = (d, d2, a, b, c, flags);
        inst.e = self.source(member, Ty::B32)?;
        self.emit(inst);
        Ok(())
    }
}
