//! Lanes of a warp that wait for each other: warp-wide instructions and `bar.warp.sync`.
//!
//! Each lane has its own member mask. Lanes with the same mask form one meeting: it takes place once every lane
//! of the mask that has not exited has arrived, whatever other lanes of the warp do meanwhile.

use super::control::Stop;
use crate::FaultKind;
use crate::machine::{Group, Inst, Slot, State, Warp, lanes};

impl Warp {
    /// Sends the lanes of the running group whose guard does not hold past the instruction in progress.
    pub(super) fn pass_by(&mut self) {
        let rest = self.group.mask & !self.mask;
        if rest != 0 {
            self.groups.push(Group {
                mask: rest,
                pc: self.group.pc + 1,
                ..self.group
            });
            self.group.mask = self.mask;
        }
    }

    /// The member masks of the active lanes, at least one, and true if all are the same.
    fn members(&self, slot: Slot) -> ([u32; 32], bool) {
        // SAFETY: member masks are rows of u32 (`decode`).
        let members = unsafe { *self.row::<[u32; 32]>(slot) };
        let first = members[self.mask.trailing_zeros() as usize & 31];
        let same = slot.is_constant() || lanes(self.mask).all(|l| members[l] == first);
        (members, same)
    }

    /// A warp-wide instruction: runs it for the meetings that are complete; the other lanes wait.
    pub(super) fn together(&mut self, inst: &Inst) -> Option<Stop> {
        if self.mask == 0 {
            self.group.pc += 1;
            return None;
        }
        let (members, same) = self.members(inst.e);
        let here = self.mask;
        let member = members[here.trailing_zeros() as usize];
        if same && member & self.live & !here == 0 {
            self.carry_out(inst, member);
            self.group.pc += 1;
            return self.fault.is_some().then_some(Stop::Fault);
        }
        let (mut left, mut waiting) = (here, 0);
        while left != 0 {
            let member = members[left.trailing_zeros() as usize];
            self.mask = lanes(left).filter(|l| members[*l] == member).fold(0, |m, l| m | 1 << l);
            left &= !self.mask;
            if member & self.live & !self.mask == 0 {
                self.carry_out(inst, member);
                if self.fault.is_some() {
                    return Some(Stop::Fault);
                }
            } else {
                waiting |= self.mask;
            }
        }
        if waiting != 0 {
            self.groups.push(Group {
                mask: waiting,
                state: State::Together,
                ..self.group
            });
        }
        self.group.mask &= !waiting;
        self.group.pc += 1;
        self.next()
    }

    /// Runs a warp-wide instruction for the active lanes, all that will come of this member mask.
    fn carry_out(&mut self, inst: &Inst, member: u32) {
        let mask = self.mask;
        if self.env().check {
            let (missing, stranger) = (member & !mask & self.lanes, mask & !member);
            if missing != 0 || stranger != 0 {
                let message = if stranger != 0 {
                    format!("a warp-wide instruction with mask {member:#010x} that does not name its own lane")
                } else {
                    format!("a warp-wide instruction with mask {member:#010x}, whose lanes {missing:#010x} have exited")
                };
                let lane = lanes(stranger).chain(lanes(mask)).next().unwrap_or(0);
                return self.fail(FaultKind::Warp, lane, message);
            }
        }
        if self.env().stepped {
            self.tell_step(mask);
        }
        if let Some(mut observer) = self.observer {
            // SAFETY: the block's observer lives as long as its warps run, on one thread at a time.
            unsafe { observer.as_mut() }.together(self, member, mask);
        }
        // SAFETY: as for plain instructions.
        unsafe { (inst.run)(self, inst) };
    }

    /// `bar.warp.sync`: unlike at other warp-wide instructions, lanes may meet from different places.
    pub(super) fn warp_barrier(&mut self, inst: &Inst) -> Option<Stop> {
        self.pass_by();
        self.group.pc += 1;
        if self.mask == 0 {
            return self.next();
        }
        let (members, same) = self.members(inst.a);
        let mut left = self.mask;
        let member = members[left.trailing_zeros() as usize];
        // No other lane has to be waited for, and none waits.
        let complete = same && member & self.live & !left == 0;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            let member = members[lane];
            let here = lanes(left).filter(|l| members[*l] == member).fold(0, |m, l| m | 1 << l);
            left &= !here;
            if self.env().check && member & here != here {
                let lane = lanes(here & !member).next().unwrap_or(lane);
                let message = format!("a warp barrier whose mask {member:#010x} does not name its own lane");
                self.fail(FaultKind::Warp, lane, message);
                return Some(Stop::Fault);
            }
            if let Some(mut observer) = self.observer {
                // SAFETY: the block's observer lives as long as its warps run, on one thread at a time.
                unsafe { observer.as_mut() }.warp_barrier(self, member, here);
            }
            if !complete {
                self.groups.push(Group {
                    mask: here,
                    state: State::WarpBarrier(member),
                    ..self.group
                });
            }
        }
        if complete {
            return self.next();
        }
        self.group.mask = 0;
        self.release_warp_barriers();
        self.next()
    }

    /// Lets groups go whose warp barrier every live lane of their mask has reached.
    fn release_warp_barriers(&mut self) {
        for at in 0..self.groups.len() {
            let State::WarpBarrier(member) = self.groups[at].state else {
                continue;
            };
            let same = |g: &&Group| g.state == State::WarpBarrier(member);
            let here = self.groups.iter().filter(same).fold(0, |all, g| all | g.mask);
            if member & self.live & !here == 0 {
                for g in self.groups.iter_mut().filter(|g| g.state == State::WarpBarrier(member)) {
                    g.state = State::Ready;
                }
            }
        }
    }

    /// Lanes have exited: groups that waited only for them go on.
    pub(super) fn release_after_exit(&mut self) {
        self.release_warp_barriers();
        for g in self.groups.iter_mut().filter(|g| g.state == State::Together) {
            // Its instruction runs again, and waits again for lanes that are still missing.
            g.state = State::Ready;
        }
    }
}
