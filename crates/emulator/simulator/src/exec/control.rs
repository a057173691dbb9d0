//! The loop of a warp: fetch, guard, run; divergence, calls and waiting.
//!
//! Lanes that took different branches form groups. The group in the deepest call runs first, and of those the one with the
//! lowest pc; compilers lay code out so that groups meet again where their branches join.

use crate::FaultKind;
use crate::limits::MOST_LOCAL;
use crate::machine::{FrameState, Group, Inst, Kind, Slot, State, Warp, lanes};

/// The reason why a warp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Every lane has exited.
    Done,
    /// Nothing can run before other lanes or warps arrive; `Warp::groups` say where each group waits.
    Waiting,
    /// A group arrived at a barrier of the block: the block must count it, and run the warp again.
    Arrived(Arrival),
    /// It has run for long: other warps should have a turn.
    Yield,
    /// `Warp::fault` says what happened.
    Fault,
}

/// Lanes at a barrier of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
}

/// The depth of nested calls at which the stack counts as overflown.
const DEPTH: u32 = 4096;

impl Warp {
    /// Runs until the warp cannot go on alone, or has gone back `fuel` times: then another warp, or another group of
    /// lanes, has a turn.
    pub(crate) fn go(&mut self, fuel: u32) -> Stop {
        if self.env().stepped {
            self.run::<true>(fuel)
        } else {
            self.run::<false>(fuel)
        }
    }

    /// `STEPPED` says that the observer is told each instruction.
    fn run<const STEPPED: bool>(&mut self, fuel: u32) -> Stop {
        if !self.switch() {
            return self.stuck();
        }
        self.fuel = fuel;
        let code = self.env().code.insts.as_slice();
        let mut pc = self.group.pc as usize;
        loop {
            debug_assert!(pc < code.len());
            // SAFETY: every function's code ends with an instruction that does not go on, and targets are labels of
            // the same function (`decode`), so pc stays within the code.
            let inst = unsafe { code.get_unchecked(pc) };
            let mut mask = self.group.mask;
            if inst.guard != Slot::NONE {
                // SAFETY: guards are predicates of the function (`decode`).
                mask &= unsafe { self.predicate(inst.guard) } ^ inst.flip;
            }
            self.mask = mask;
            self.pc = pc as u32;
            // Lanes that wait for others at an instruction come to it again: `carry_out` tells it.
            if STEPPED && inst.kind != Kind::Together {
                self.tell_step(mask);
            }
            match inst.kind {
                Kind::Plain => {
                    if mask != 0 {
                        // SAFETY: the frame's registers belong to the function of this instruction (`enter`).
                        unsafe { (inst.run)(self, inst) };
                    }
                    pc += 1;
                }
                Kind::Branch if mask == self.group.mask && self.groups.is_empty() => {
                    let target = inst.imm as usize;
                    if target <= pc {
                        self.fuel -= 1;
                        if self.fuel == 0 {
                            self.group.pc = target as u32;
                            self.park(State::Ready);
                            return Stop::Yield;
                        }
                    }
                    pc = target;
                }
                Kind::Branch if mask == 0 => pc += 1,
                _ => {
                    self.group.pc = pc as u32;
                    if let Some(stop) = self.control(inst) {
                        return stop;
                    }
                    pc = self.group.pc as usize;
                }
            }
            if pc as u32 >= self.merge_pc {
                if self.fault.is_some() {
                    return Stop::Fault;
                }
                self.group.pc = pc as u32;
                self.park(State::Ready);
                if !self.switch() {
                    return self.stuck();
                }
                pc = self.group.pc as usize;
            }
        }
    }

    /// Tells the observer that the instruction in progress begins for the lanes of `mask`.
    pub(super) fn tell_step(&mut self, mask: u32) {
        if let Some(mut observer) = self.observer {
            // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
            unsafe { observer.as_mut() }.step(self, mask);
        }
    }

    /// Puts the running group among the groups that do not run.
    fn park(&mut self, state: State) {
        if self.group.mask != 0 {
            self.groups.push(Group { state, ..self.group });
        }
        self.group.mask = 0;
    }

    /// Joins groups that stand at one place and takes the next to run; `false` when none can.
    fn switch(&mut self) -> bool {
        let mut i = 0;
        while i < self.groups.len() {
            let g = self.groups[i];
            let meets = |o: &Group| {
                o.pc == g.pc
                    && o.frame == g.frame
                    && matches!(o.state, State::Ready | State::Together)
                    && matches!(g.state, State::Ready | State::Together)
            };
            match self.groups[..i].iter().position(meets) {
                Some(j) => {
                    let ready = g.state == State::Ready || self.groups[j].state == State::Ready;
                    self.groups[j].mask |= g.mask;
                    self.groups[j].state = if ready { State::Ready } else { State::Together };
                    self.groups.swap_remove(i);
                }
                None => i += 1,
            }
        }
        let ready = self.groups.iter().enumerate().filter(|(_, g)| g.state == State::Ready);
        let best = if self.rotate {
            self.rotate = false;
            // The group that waited longest stands first: groups are pushed at the end when they are parked.
            ready.map(|(i, _)| i).next()
        } else {
            ready.min_by_key(|(_, g)| (u32::MAX - g.depth, g.pc)).map(|(i, _)| i)
        };
        let Some(best) = best else { return false };
        self.group = self.groups.remove(best);
        let g = self.group;
        let meets = |o: &&Group| o.frame == g.frame && o.pc > g.pc && matches!(o.state, State::Ready | State::Together);
        self.merge_pc = self.groups.iter().filter(meets).map(|o| o.pc).min().unwrap_or(u32::MAX);
        self.registers = self.frames[g.frame as usize].registers.as_mut_ptr().cast();
        true
    }

    fn stuck(&self) -> Stop {
        if self.fault.is_some() {
            Stop::Fault
        } else if self.live == 0 {
            Stop::Done
        } else {
            Stop::Waiting
        }
    }

    /// Chooses the group to run after this one has moved; `None` means that `self.group` runs on.
    pub(super) fn next(&mut self) -> Option<Stop> {
        if self.group.mask != 0 && self.groups.is_empty() {
            return None;
        }
        self.park(State::Ready);
        if self.switch() { None } else { Some(self.stuck()) }
    }

    /// As `next`, after a branch that may close a loop.
    fn next_round(&mut self, back: bool) -> Option<Stop> {
        self.fuel -= u32::from(back);
        if self.fuel == 0 {
            self.rotate = true;
            self.park(State::Ready);
            return Some(Stop::Yield);
        }
        self.next()
    }

    fn control(&mut self, inst: &Inst) -> Option<Stop> {
        let mask = self.mask;
        let pc = self.group.pc;
        match inst.kind {
            Kind::Plain => None,
            Kind::Branch => {
                self.diverge(mask, inst.imm as u32);
                self.next_round(inst.imm as u32 <= pc)
            }
            Kind::BranchIndexed => {
                let targets = self.list(inst);
                // SAFETY: `a` is a row of u32 (`decode`).
                let index = unsafe { self.row::<u32>(inst.a) };
                for lane in lanes(mask) {
                    // SAFETY: as above.
                    let to = unsafe { *index.add(lane) } as usize;
                    let Some(target) = targets.get(to) else {
                        self.fail(
                            FaultKind::Trap,
                            lane,
                            format!("brx.idx takes target {to} of {}", targets.len()),
                        );
                        return Some(Stop::Fault);
                    };
                    self.groups.push(Group {
                        pc: target.0,
                        mask: 1 << lane,
                        ..self.group
                    });
                }
                self.group.mask &= !mask;
                self.group.pc += 1;
                self.next_round(true)
            }
            Kind::Call => self.call(inst.imm as u32),
            Kind::CallIndirect => self.call_indirect(inst),
            Kind::Return if self.group.depth > 0 => self.leave(),
            Kind::Exit | Kind::Return => {
                self.live &= !mask;
                self.group.mask &= !mask;
                self.group.pc += 1;
                self.release_after_exit();
                self.next()
            }
            Kind::Together => self.together(inst),
            Kind::Barrier => {
                let rest = Group {
                    mask: self.group.mask & !mask,
                    pc: pc + 1,
                    ..self.group
                };
                if rest.mask != 0 {
                    self.groups.push(rest);
                }
                self.group.mask = mask;
                if mask == 0 {
                    return self.next();
                }
                // The block decides whether the group waits.
                self.park(State::Ready);
                Some(Stop::Arrived(Arrival { pc, mask }))
            }
            Kind::WarpBarrier => self.warp_barrier(inst),
            Kind::Phase => self.try_wait(inst),
            Kind::Warpgroup if mask == 0 => {
                self.group.pc += 1;
                None
            }
            Kind::Warpgroup => {
                if mask != u32::MAX {
                    let lane = mask.trailing_zeros() as usize;
                    let message = format!("an instruction of a warpgroup that only lanes {mask:#010x} of a warp reach");
                    self.fail(FaultKind::Warp, lane, message);
                    return Some(Stop::Fault);
                }
                // The block decides whether the group waits.
                self.park(State::Ready);
                Some(Stop::Arrived(Arrival { pc, mask }))
            }
        }
    }

    /// Sends `taken` to `target` and the other lanes of the group to the next instruction.
    fn diverge(&mut self, taken: u32, target: u32) {
        let rest = self.group.mask & !taken;
        if taken != 0 {
            self.groups.push(Group {
                pc: target,
                mask: taken,
                ..self.group
            });
        }
        self.group.mask = rest;
        self.group.pc += 1;
    }

    /// Calls the function that the first lane names; lanes that name another wait at the call for their turn.
    fn call_indirect(&mut self, inst: &Inst) -> Option<Stop> {
        let mask = self.mask;
        let Some(first) = lanes(mask).next() else {
            self.group.pc += 1;
            return None;
        };
        // SAFETY: `a` is a row of u64 (`decode`).
        let address = unsafe { *self.row::<[u64; 32]>(inst.a) };
        let callees = &self.env().code.callees[inst.imm as usize];
        let Some((_, site)) = callees.iter().find(|(of, _)| *of == address[first]) else {
            let message = format!("a call to {:#x}, where no function of this type is", address[first]);
            self.fail(FaultKind::InvalidPc, first, message);
            return Some(Stop::Fault);
        };
        self.mask = lanes(mask)
            .filter(|l| address[*l] == address[first])
            .fold(0, |mask, l| mask | 1 << l);
        let others = mask & !self.mask;
        if others != 0 {
            self.groups.push(Group {
                mask: others,
                ..self.group
            });
            self.group.mask &= !others;
        }
        self.call(*site)
    }

    fn call(&mut self, site_number: u32) -> Option<Stop> {
        let (mask, code) = (self.mask, self.env().code);
        if mask == 0 {
            self.group.pc += 1;
            return None;
        }
        let site = &code.calls[site_number as usize];
        let callee = &code.functions[site.function as usize];
        let here = &self.frames[self.group.frame as usize];
        let (local, caller_local) = (here.local + code.functions[here.function as usize].local, here.local);
        let depth = self.group.depth + 1;
        if depth > DEPTH || local.saturating_add(callee.local) > MOST_LOCAL {
            let lane = mask.trailing_zeros() as usize;
            self.fail(FaultKind::IllegalAddress, lane, "stack overflow".to_string());
            return Some(Stop::Fault);
        }
        self.reserve_local(u64::from(local + callee.local));
        if let Some(mut observer) = self.observer {
            // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
            unsafe { observer.as_mut() }.enter(self, mask, local, callee.local);
        }
        for &(from, to, bytes) in &site.arguments {
            self.copy_local(mask, caller_local + from, local + to, bytes);
        }
        // Lanes that come here at different times share a frame, so that they can meet inside.
        let caller = self.group.frame;
        let shared = |f: &FrameState| f.mask != 0 && f.parent == caller && f.site == site_number;
        let found = self.frames.iter().skip(1).position(shared);
        let free = || self.frames.iter().skip(1).position(|f| f.mask == 0);
        let index = found.or_else(free).map_or(self.frames.len(), |i| i + 1);
        if index == self.frames.len() {
            self.frames.push(FrameState::default());
        }
        let frame = &mut self.frames[index];
        if frame.mask == 0 {
            frame.start(callee);
        }
        frame.function = site.function;
        frame.parent = self.group.frame;
        frame.return_pc = self.group.pc + 1;
        frame.depth = depth;
        frame.site = site_number;
        frame.local = local;
        frame.mask |= mask;
        let inside = Group {
            pc: callee.start,
            mask,
            frame: index as u32,
            depth,
            state: State::Ready,
        };
        self.group.mask &= !mask;
        self.group.pc += 1;
        self.groups.push(inside);
        // Functions that call each other are loops too.
        self.next_round(true)
    }

    fn leave(&mut self) -> Option<Stop> {
        let (mask, code) = (self.mask, self.env().code);
        if mask == 0 {
            self.group.pc += 1;
            return None;
        }
        let index = self.group.frame as usize;
        let (parent, return_pc, local, site) = {
            let frame = &mut self.frames[index];
            frame.mask &= !mask;
            (frame.parent, frame.return_pc, frame.local, frame.site)
        };
        let caller_local = self.frames[parent as usize].local;
        for &(to, from, bytes) in &code.calls[site as usize].results {
            self.copy_local(mask, local + from, caller_local + to, bytes);
        }
        self.groups.push(Group {
            pc: return_pc,
            mask,
            frame: parent,
            depth: self.group.depth - 1,
            state: State::Ready,
        });
        self.group.mask &= !mask;
        self.group.pc += 1;
        self.next()
    }

    fn copy_local(&mut self, mask: u32, from: u32, to: u32, bytes: u32) {
        for lane in lanes(mask) {
            let base = self.local_base(lane);
            // SAFETY: `reserve_local` made room for both frames; the ranges belong to different frames.
            unsafe { std::ptr::copy(base.add(from as usize), base.add(to as usize), bytes as usize) };
        }
        if let Some(mut observer) = self.observer {
            // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
            unsafe { observer.as_mut() }.pass(self, mask, from, to, bytes);
        }
    }
}
