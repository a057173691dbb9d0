//! A block: its warps take turns until each has exited; barriers bring them together.

use std::ptr::NonNull;

use super::control::{Arrival, Stop};
use crate::machine::{Env, Group, Inst, Kind, Line, Mbarriers, Observer, RECENT, Slot, State, Warp, lanes};
use crate::{Fault, FaultKind};

/// A group that waits at a barrier.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    warp: u32,
    pc: u32,
    mask: u32,
}

/// One of the 16 barriers of a block.
#[derive(Debug, Default)]
struct Barrier {
    arrived: u32,
    /// The number of threads that complete it; 0 when it takes all threads of the block.
    expected: u32,
    waiters: Vec<Waiter>,
    /// For `bar.red`: the number of threads that arrived with a true predicate.
    votes: u32,
}

/// The options of a barrier instruction.
pub(crate) mod barrier_flags {
    /// `bar.arrive`: does not wait.
    pub(crate) const ARRIVE: u32 = 1;
    /// `bar.red.popc`.
    pub(crate) const POPC: u32 = 2;
    /// `bar.red.and`.
    pub(crate) const AND: u32 = 4;
    /// `bar.red.or`.
    pub(crate) const OR: u32 = 8;
    /// The predicate of a reduction is negated.
    pub(crate) const NOT: u32 = 16;
}

/// The reason why a turn of a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Every thread has exited.
    Ended,
    /// It has run for long: other blocks should have a turn.
    Aside,
}

/// Taken branches of a warp before another has a turn, and turns of warps before another block has one: first the numbers at
/// the start, then those of a block that was set aside because it may wait for another: its short turns cost the others less.
const FUEL: [u32; 2] = [20_000, 2_000];
const TURNS: [u32; 2] = [1 << 16, 1 << 12];

/// The most long turns in succession of a block that, as far as can be seen, waits for nothing.
const PATIENCE: u32 = 64;

/// The state of one block at a time; it is kept from launch to launch, so that its allocations are reused.
pub(super) struct Block {
    pub(super) warps: Vec<Warp>,
    pub(super) count: usize,
    shared: Vec<Line>,
    barriers: [Barrier; 16],
    mbarriers: Box<Mbarriers>,
    /// Threads that have not exited, as the block last counted them.
    pub(super) live: u32,
    pub(super) threads: u32,
    prepared: u64,
    /// True if it has been set aside as one that may wait for another.
    waited: bool,
    /// The observer of this block, where there is one, made by `Box::into_raw`.
    observer: Option<NonNull<dyn Observer>>,
}

// SAFETY: the observer is the block's own and can be sent; warps say why they can be.
unsafe impl Send for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Block {
    pub(super) fn new() -> Block {
        Block {
            warps: Vec::new(),
            count: 0,
            shared: Vec::new(),
            barriers: Default::default(),
            mbarriers: Box::default(),
            live: 0,
            threads: 0,
            prepared: 0,
            waited: false,
            observer: None,
        }
    }

    /// Makes the block fit a launch.
    fn prepare(&mut self, env: &Env<'_>) {
        if self.prepared == env.serial {
            return;
        }
        self.prepared = env.serial;
        let [x, y, z] = env.block;
        self.threads = x * y * z;
        self.count = self.threads.div_ceil(32) as usize;
        for index in self.warps.len()..self.count {
            self.warps.push(Warp::new(index as u32));
        }
        let lines = (env.shared as usize).div_ceil(64);
        if self.shared.len() < lines {
            self.shared.resize(lines, Line([0; 64]));
        }
        let frame = &env.code.functions[0];
        for (index, warp) in self.warps[..self.count].iter_mut().enumerate() {
            let first = index as u32 * 32;
            let here = (self.threads - first).min(32);
            warp.lanes = if here == 32 { u32::MAX } else { (1 << here) - 1 };
            for lane in 0..32 {
                let t = first + lane;
                warp.tid[0][lane as usize] = t % x;
                warp.tid[1][lane as usize] = t / x % y;
                warp.tid[2][lane as usize] = t / x / y;
            }
            warp.frames.truncate(1);
            warp.frames[0].function = 0;
            warp.reserve_local(u64::from(frame.local));
            // SAFETY: only the lifetime changes; the environment outlives every use of the warp, because each launch
            // sets it again before it runs one.
            warp.env = unsafe { std::mem::transmute::<*const Env<'_>, *const Env<'static>>(env) };
            warp.constants = env.constants.as_ptr().cast();
            warp.shared_len = u64::from(env.shared);
            warp.recent = [(0, 0); RECENT];
        }
    }

    /// Begins the block with this index in the grid.
    pub(super) fn begin(&mut self, env: &Env<'_>, index: [u32; 3], observer: Option<Box<dyn Observer>>) {
        self.prepare(env);
        self.forget();
        self.observer = observer.and_then(|o| NonNull::new(Box::into_raw(o)));
        self.waited = false;
        let lines = (env.shared as usize).div_ceil(64);
        self.shared[..lines].fill(Line([0xff; 64]));
        for barrier in &mut self.barriers {
            *barrier = Barrier::default();
        }
        self.mbarriers.clear();
        let mbarriers = &raw mut *self.mbarriers;
        self.live = self.threads;
        let shared = self.shared.as_mut_ptr().cast::<u8>();
        for warp in &mut self.warps[..self.count] {
            warp.shared = shared;
            (warp.mbarriers, warp.heard) = (mbarriers, 0);
            warp.block = index;
            warp.live = warp.lanes;
            warp.group = Group::default();
            warp.groups.clear();
            warp.groups.push(Group {
                mask: warp.lanes,
                ..Group::default()
            });
            // Lanes that exited inside a function left its frame behind.
            for frame in &mut warp.frames {
                frame.mask = 0;
            }
            warp.frames[0].start(&env.code.functions[0]);
            warp.frames[0].mask = warp.lanes;
            warp.carry = 0;
            warp.copies.clear();
            warp.products.clear();
            warp.fault = None;
            warp.observer = self.observer;
        }
    }

    /// Drops the observer.
    pub(super) fn forget(&mut self) {
        for warp in &mut self.warps {
            warp.observer = None;
        }
        if let Some(observer) = self.observer.take() {
            // SAFETY: `begin` made it of a box, and the warps, which had copies, have them no longer.
            drop(unsafe { Box::from_raw(observer.as_ptr()) });
        }
    }

    /// Runs the block until it ends or has had a long turn.
    pub(super) fn go(&mut self, env: &Env<'_>) -> Result<Turn, Box<Fault>> {
        let result = self.turn(env);
        if let Some(mut observer) = self.observer
            && !matches!(result, Ok(Turn::Aside))
        {
            // SAFETY: the block owns the observer, and no warp runs.
            unsafe { observer.as_mut() }.end();
        }
        result
    }

    fn turn(&mut self, env: &Env<'_>) -> Result<Turn, Box<Fault>> {
        let (fuel, most) = (FUEL[usize::from(self.waited)], TURNS[usize::from(self.waited)]);
        let (mut turns, mut patience) = (most, PATIENCE);
        self.warps.iter_mut().for_each(|w| w.polled = false);
        loop {
            let (mut progress, mut done, mut long) = (false, true, true);
            for w in 0..self.count {
                if self.warps[w].live == 0 {
                    continue;
                }
                self.warps[w].look_at_phases();
                if self.warps[w].groups.iter().all(|g| g.state != State::Ready) {
                    done = false;
                    continue;
                }
                progress = true;
                loop {
                    turns = turns.saturating_sub(1);
                    match self.warps[w].go(fuel) {
                        Stop::Yield => break,
                        Stop::Done | Stop::Waiting => {
                            long = false;
                            break;
                        }
                        Stop::Fault => return Err(self.take_fault(w)),
                        Stop::Arrived(arrival) => {
                            long = false;
                            self.arrive(env, w, arrival)?;
                        }
                    }
                }
                done &= self.warps[w].live == 0;
                self.recount(env)?;
            }
            if done {
                return Ok(Turn::Ended);
            }
            if !progress {
                return Err(self.deadlock(env));
            }
            if long || turns == 0 {
                let polled = self.warps[..self.count].iter().any(|w| w.polled);
                patience -= 1;
                if polled || patience == 0 {
                    self.waited = polled;
                    return Ok(Turn::Aside);
                }
                turns = most;
            }
        }
    }

    pub(super) fn take_fault(&mut self, w: usize) -> Box<Fault> {
        let fault = self.warps[w].fault.take();
        fault.unwrap_or_else(|| {
            let (kind, message) = (FaultKind::Trap, "stopped without a reason".to_string());
            Box::new(Fault {
                kind,
                kernel: String::new(),
                file: String::new(),
                line: 0,
                block: [0; 3],
                thread: [0; 3],
                message,
            })
        })
    }

    /// Counts the threads that have exited, and completes barriers that waited for them.
    fn recount(&mut self, env: &Env<'_>) -> Result<(), Box<Fault>> {
        let live = self.warps[..self.count].iter().map(|w| w.live.count_ones()).sum();
        if live != self.live {
            self.live = live;
            for id in 0..16 {
                self.complete(env, id)?;
            }
        }
        Ok(())
    }

    /// Counts the arrival of a warp's group, which is parked as ready at its barrier instruction.
    fn arrive(&mut self, env: &Env<'_>, w: usize, at: Arrival) -> Result<(), Box<Fault>> {
        let inst = &env.code.insts[at.pc as usize];
        if inst.kind == Kind::Warpgroup {
            return self.arrive_at_product(inst, w, at);
        }
        let warp = &mut self.warps[w];
        let lane = at.mask.trailing_zeros() as usize;
        // SAFETY: `switch` left the registers of the group's frame in place; operands are rows of u32 (`decode`).
        let (id, count, vote) = unsafe {
            let id = *warp.row::<u32>(inst.a).add(lane);
            let count = if inst.b.is_some() {
                *warp.row::<u32>(inst.b).add(lane)
            } else {
                0
            };
            let vote = if inst.c.is_some() { warp.predicate(inst.c) } else { 0 };
            (
                id,
                count,
                if inst.flags & barrier_flags::NOT != 0 {
                    !vote
                } else {
                    vote
                } & at.mask,
            )
        };
        if id >= 16 || !count.is_multiple_of(32) {
            warp.fail_at(
                FaultKind::Barrier,
                lane,
                format!("barrier {id} for {count} threads"),
                at.pc,
            );
            return Err(self.take_fault(w));
        }
        let waits = inst.flags & barrier_flags::ARRIVE == 0;
        let found = warp
            .groups
            .iter_mut()
            .find(|g| g.pc == at.pc && g.mask == at.mask && g.state == State::Ready);
        if let Some(group) = found {
            if waits {
                group.state = State::Barrier(id);
            } else {
                group.pc += 1;
            }
        }
        let barrier = &mut self.barriers[id as usize];
        barrier.arrived += at.mask.count_ones();
        barrier.votes += vote.count_ones();
        if barrier.expected == 0 {
            barrier.expected = count;
        }
        if waits {
            barrier.waiters.push(Waiter {
                warp: w as u32,
                pc: at.pc,
                mask: at.mask,
            });
        }
        self.live = self.warps[..self.count].iter().map(|w| w.live.count_ones()).sum();
        self.complete(env, id as usize)
    }

    /// Releases the groups at a barrier if every thread it needs is there.
    fn complete(&mut self, env: &Env<'_>, id: usize) -> Result<(), Box<Fault>> {
        let barrier = &mut self.barriers[id];
        let needed = if barrier.expected == 0 {
            self.live
        } else {
            barrier.expected
        };
        if barrier.arrived == 0 || barrier.arrived < needed {
            return Ok(());
        }
        let barrier = std::mem::take(barrier);
        let Some(&first) = barrier.waiters.first() else {
            return Ok(());
        };
        if env.check && barrier.expected == 0 {
            if self.live < self.threads {
                let message = format!(
                    "divergent barrier: {} of {} threads of the block have exited before it",
                    self.threads - self.live,
                    self.threads
                );
                return Err(self.fault_at(first, message));
            }
            if let Some(&other) = barrier.waiters.iter().find(|w| w.pc != first.pc) {
                let (_, line) = env.code.source(first.pc);
                let message =
                    format!("divergent barrier: other threads of the block wait at the barrier of line {line}");
                return Err(self.fault_at(other, message));
            }
        }
        for waiter in &barrier.waiters {
            self.release(env, *waiter, id as u32, &barrier);
        }
        if let Some(mut observer) = self.observer {
            // SAFETY: the block owns the observer, and no warp runs.
            unsafe { observer.as_mut() }.barrier();
        }
        Ok(())
    }

    fn release(&mut self, env: &Env<'_>, waiter: Waiter, id: u32, barrier: &Barrier) {
        let warp = &mut self.warps[waiter.warp as usize];
        let found = warp
            .groups
            .iter_mut()
            .find(|g| g.pc == waiter.pc && g.mask == waiter.mask && g.state == State::Barrier(id));
        let Some(group) = found else { return };
        group.state = State::Ready;
        group.pc += 1;
        let frame = group.frame as usize;
        let inst = &env.code.insts[waiter.pc as usize];
        if inst.flags & !(barrier_flags::ARRIVE | barrier_flags::NOT) == 0 {
            return;
        }
        let current = warp.registers;
        warp.registers = warp.frames[frame].registers.as_mut_ptr().cast();
        write_vote(warp, inst, waiter.mask, barrier.votes, barrier.arrived);
        warp.registers = current;
    }

    fn fault_at(&mut self, waiter: Waiter, message: String) -> Box<Fault> {
        let lane = waiter.mask.trailing_zeros() as usize;
        let w = waiter.warp as usize;
        self.warps[w].fail_at(FaultKind::Barrier, lane, message, waiter.pc);
        self.take_fault(w)
    }
}

fn write_vote(warp: &mut Warp, inst: &Inst, mask: u32, votes: u32, arrived: u32) {
    if inst.d == Slot::NONE {
        return;
    }
    warp.mask = mask;
    // SAFETY: `d` is a row of u32 for a count and a predicate otherwise (`decode`), in the frame that was just set.
    unsafe {
        if inst.flags & barrier_flags::POPC != 0 {
            let d = warp.row::<u32>(inst.d);
            for lane in lanes(mask) {
                *d.add(lane) = votes;
            }
        } else {
            let holds = if inst.flags & barrier_flags::AND != 0 {
                votes == arrived
            } else {
                votes > 0
            };
            warp.set_predicate(inst.d, if holds { u32::MAX } else { 0 });
        }
    }
}
