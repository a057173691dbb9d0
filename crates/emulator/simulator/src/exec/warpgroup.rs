//! Instructions that the four warps of a warpgroup carry out together: `wgmma.mma_async`.

use super::block::Block;
use super::control::Arrival;
use super::product::multiply;
use crate::machine::{Inst, State, Warp};
use crate::{Fault, FaultKind};

/// The warps of a warpgroup.
const WARPS: usize = 4;

impl Warp {
    /// The frame of the lanes that wait for their warpgroup.
    pub(super) fn group_at_product(&self) -> u32 {
        let waiting = self.groups.iter().find(|g| g.state == State::Warpgroup);
        waiting.map_or(0, |g| g.frame)
    }
}

impl Block {
    /// A warp has arrived at a product of its warpgroup, which is made when the last of the four has.
    pub(super) fn arrive_at_product(&mut self, inst: &Inst, w: usize, at: Arrival) -> Result<(), Box<Fault>> {
        let first = w / WARPS * WARPS;
        let refuse = |block: &mut Block, message: String| {
            block.warps[w].fail_at(FaultKind::Warp, 0, message, at.pc);
            Err(block.take_fault(w))
        };
        if first + WARPS > self.count {
            let message = format!(
                "a wgmma of warp {w} in a block of {} warps: four warps make a warpgroup",
                self.count
            );
            return refuse(self, message);
        }
        let group = self.warps[w]
            .groups
            .iter_mut()
            .find(|g| g.pc == at.pc && g.mask == at.mask && g.state == State::Ready);
        if let Some(group) = group {
            group.state = State::Warpgroup;
        }
        let mut here = 0;
        for other in first..first + WARPS {
            let waiting = self.warps[other].groups.iter().find(|g| g.state == State::Warpgroup);
            match waiting.map(|g| g.pc) {
                None if self.warps[other].live != self.warps[other].lanes || self.warps[other].lanes != u32::MAX => {
                    let message = format!("a wgmma of a warpgroup whose warp {other} has lanes that have exited");
                    return refuse(self, message);
                }
                None => {}
                Some(pc) if pc == at.pc => here += 1,
                Some(_) => {
                    let message = format!("a wgmma of a warpgroup whose warp {other} waits at another one");
                    return refuse(self, message);
                }
            }
        }
        if here < WARPS {
            return Ok(());
        }
        let warps = &mut self.warps[first..first + WARPS];
        for warp in warps.iter_mut() {
            let frame = warp.group_at_product() as usize;
            warp.registers = warp.frames[frame].registers.as_mut_ptr().cast();
            (warp.pc, warp.mask) = (at.pc, u32::MAX);
        }
        // SAFETY: the registers of each warp are those of the frame that it waits in.
        unsafe { multiply(warps, inst) };
        if let Some(failed) = warps.iter().position(|warp| warp.fault.is_some()) {
            return Err(self.take_fault(first + failed));
        }
        for warp in warps.iter_mut() {
            for group in warp.groups.iter_mut().filter(|g| g.state == State::Warpgroup) {
                group.state = State::Ready;
                group.pc += 1;
            }
        }
        Ok(())
    }
}
