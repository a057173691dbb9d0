//! Sums over blocks.

use std::collections::BTreeMap;

use super::counters::{Access, AccessClass, Counters, Loop, Place, Spread, Traffic, Wait};
use super::plan::Plan;
use crate::machine::Code;

/// Sums over some of the blocks of a launch.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Of each instruction: how often warps carried it out, with how many lanes, and with how many whose guard held.
    pub(super) steps: Vec<[u64; 3]>,
    pub(super) branches: u64,
    pub(super) splits: u64,
    pub(super) loops: Vec<Trips>,
    /// By instruction and kind of memory, true for shared memory.
    pub(super) accesses: BTreeMap<(u32, bool), (AccessClass, Traffic)>,
    pub(super) waits: BTreeMap<u32, [Spread; 2]>,
}

/// The trips through a loop.
#[derive(Clone, Debug, Default)]
pub(super) struct Trips {
    pub(super) trips: Spread,
    pub(super) taken: u64,
}

impl Tally {
    pub(super) fn new(plan: &Plan) -> Tally {
        Tally {
            steps: vec![[0; 3]; plan.begins.len()],
            loops: vec![Trips::default(); plan.loops.len()],
            ..Tally::default()
        }
    }

    pub(super) fn join(&mut self, other: &Tally) {
        for (mine, theirs) in self.steps.iter_mut().zip(&other.steps) {
            (0..3).for_each(|n| mine[n] += theirs[n]);
        }
        self.branches += other.branches;
        self.splits += other.splits;
        for (mine, theirs) in self.loops.iter_mut().zip(&other.loops) {
            mine.trips.join(&theirs.trips);
            mine.taken += theirs.taken;
        }
        for (key, (class, traffic)) in &other.accesses {
            let mine = self.accesses.entry(*key).or_insert((*class, Traffic::default()));
            mine.1.join(traffic);
        }
        for (pc, theirs) in &other.waits {
            let mine = self.waits.entry(*pc).or_default();
            (0..2).for_each(|n| mine[n].join(&theirs[n]));
        }
    }

    /// The sums with names.
    pub(super) fn named(&self, plan: &Plan, code: &Code) -> Counters {
        let mut counters = Counters {
            branches: self.branches,
            split_branches: self.splits,
            ..Counters::default()
        };
        // Loops that no warp came to the end of are left out.
        let mut kept = vec![None; self.loops.len()];
        let mut next = 0;
        for (place, run) in kept.iter_mut().zip(&self.loops) {
            if run.trips.count > 0 {
                *place = Some(next);
                next += 1;
            }
        }
        let around = |mut at: Option<usize>| {
            while let Some(n) = at {
                if kept[n].is_some() {
                    return kept[n];
                }
                at = plan.loops[n].parent;
            }
            None
        };
        let place = |pc: usize, inside: Option<usize>| {
            let (file, source_line) = code.source(pc as u32);
            Place {
                line: code.lines[pc],
                opcode: plan.opcodes[pc].clone(),
                file,
                source_line,
                inside,
            }
        };
        for (n, run) in self.loops.iter().enumerate().filter(|(n, _)| kept[*n].is_some()) {
            counters.loops.push(Loop {
                label: plan.loops[n].label.clone(),
                place: place(plan.loops[n].last, around(plan.loops[n].parent)),
                trips: run.trips,
                taken: run.taken,
                instructions: 0,
            });
        }
        for (pc, [times, active, enabled]) in self.steps.iter().enumerate().filter(|(pc, _)| plan.begins[*pc]) {
            counters.instructions += times;
            counters.active_lanes += active;
            counters.enabled_lanes += enabled;
            if let Some(n) = around(plan.innermost(pc)) {
                counters.loops[n].instructions += times;
            }
        }
        for ((pc, shared), (class, traffic)) in &self.accesses {
            let pc = *pc as usize;
            counters.accesses.push(Access {
                place: place(pc, around(plan.innermost(pc))),
                shared: *shared,
                class: *class,
                traffic: *traffic,
            });
        }
        for (pc, [under_way, left]) in &self.waits {
            let pc = *pc as usize;
            counters.waits.push(Wait {
                place: place(pc, around(plan.innermost(pc))),
                under_way: *under_way,
                left: *left,
            });
        }
        counters
    }
}
