//! The observer of a block, and the counter of a launch.

use std::sync::{Arc, Mutex};

use super::counters::{AccessClass, Counters};
use super::lines::{Lines, Set};
use super::plan::Plan;
use super::rules::{Cost, LINE, sectors, wavefronts};
use super::tally::Tally;
use crate::Fault;
use crate::machine::{Access, AccessKind, Code, Kind, LaunchObserver, Observer, Space, Warp, lanes};
use crate::sync::lock;

/// The counter of one launch.
pub(crate) struct Counter(Arc<Launch>);

struct Launch {
    plan: Arc<Plan>,
    grid: [u64; 3],
    warps: usize,
    wave: u64,
    /// Sums that no block adds to now.
    spare: Mutex<Vec<Tally>>,
    /// The lines that were read, and those that were written.
    lines: Mutex<[Lines; 2]>,
}

impl Counter {
    /// A counter of a launch of this many blocks of so many threads, of which a device holds `wave` at one time.
    pub(crate) fn new(plan: &Arc<Plan>, grid: [u32; 3], block: [u32; 3], wave: u64) -> Counter {
        let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
        Counter(Arc::new(Launch {
            plan: Arc::clone(plan),
            grid: grid.map(u64::from),
            warps: threads.div_ceil(32) as usize,
            wave: wave.max(1),
            spare: Mutex::default(),
            lines: Mutex::default(),
        }))
    }

    /// The counts so far.
    pub(crate) fn counters(&self, code: &Code) -> Counters {
        let launch = &self.0;
        let mut total = Tally::new(&launch.plan);
        lock(&launch.spare).iter().for_each(|tally| total.join(tally));
        let [read, written] = &*lock(&launch.lines);
        Counters {
            blocks: launch.grid.iter().product(),
            warps: launch.warps as u64,
            wave: launch.wave,
            block_lines_read: read.blocks,
            block_lines_written: written.blocks,
            wave_lines_read: read.waves,
            wave_lines_written: written.waves,
            lines_read: read.launch.len() as u64,
            lines_written: written.launch.len() as u64,
            ..total.named(&launch.plan, code)
        }
    }
}

impl LaunchObserver for Counter {
    fn block(&self, index: [u32; 3]) -> Box<dyn Observer> {
        let launch = &self.0;
        let ([x, y, _], [i, j, k]) = (launch.grid, index.map(u64::from));
        let spare = lock(&launch.spare).pop();
        Box::new(BlockCounter {
            number: i + x * (j + y * k),
            tally: spare.unwrap_or_else(|| Tally::new(&launch.plan)),
            trips: vec![0; launch.warps * launch.plan.loops.len()],
            lines: Default::default(),
            launch: Arc::clone(launch),
        })
    }

    fn findings(&self, _: u64) -> Vec<Fault> {
        Vec::new()
    }
}

struct BlockCounter {
    launch: Arc<Launch>,
    /// The block's number in the grid.
    number: u64,
    tally: Tally,
    /// By warp and loop: how often the warp carried out the branch that closes the loop.
    trips: Vec<u64>,
    lines: [Set; 2],
}

impl Drop for BlockCounter {
    fn drop(&mut self) {
        lock(&self.launch.spare).push(std::mem::take(&mut self.tally));
    }
}

impl BlockCounter {
    fn count(&mut self, pc: u32, shared: bool, class: AccessClass, cost: Cost) {
        let entry = self
            .tally
            .accesses
            .entry((pc, shared))
            .or_insert((class, Default::default()));
        let traffic = &mut entry.1;
        traffic.requests += 1;
        traffic.parts += cost.parts;
        traffic.minimum += cost.minimum;
        traffic.bytes += cost.bytes;
    }

    fn touch(&mut self, mask: u32, addresses: &[u64; 32], size: impl Fn(usize) -> u32, reads: bool, writes: bool) {
        let mut last = u64::MAX;
        for lane in lanes(mask) {
            let (first, end) = (addresses[lane], addresses[lane] + u64::from(size(lane)));
            for line in first / LINE..end.div_ceil(LINE) {
                if line == last {
                    continue;
                }
                last = line;
                for (wanted, lines) in [reads, writes].into_iter().zip(&mut self.lines) {
                    if wanted {
                        lines.insert(line);
                    }
                }
            }
        }
    }
}

impl Observer for BlockCounter {
    fn step(&mut self, warp: &Warp, mask: u32) {
        let (pc, group) = (warp.pc as usize, warp.group.mask);
        let [times, active, enabled] = &mut self.tally.steps[pc];
        *times += 1;
        *active += u64::from(group.count_ones());
        *enabled += u64::from(mask.count_ones());
        let inst = &warp.env().code.insts[pc];
        let split = match inst.kind {
            Kind::Branch => mask != 0 && mask != group,
            Kind::BranchIndexed => {
                // SAFETY: `a` is a row of u32 (`decode`).
                let index = unsafe { *warp.row::<[u32; 32]>(inst.a) };
                let mut taken = lanes(mask).map(|l| index[l]);
                let first = taken.next();
                mask != 0 && mask != group || taken.any(|to| Some(to) != first)
            }
            _ => return,
        };
        self.tally.branches += 1;
        self.tally.splits += u64::from(split);
        if let Some(n) = self.launch.plan.closes(pc) {
            self.trips[warp.index as usize * self.launch.plan.loops.len() + n] += 1;
            self.tally.loops[n].taken += u64::from(mask != 0);
        }
    }

    fn access(&mut self, warp: &mut Warp, access: &Access<'_>) {
        let class = match access.kind {
            AccessKind::Load | AccessKind::Guess | AccessKind::StrongLoad => AccessClass::Load,
            AccessKind::Store | AccessKind::StrongStore => AccessClass::Store,
            AccessKind::AsyncStore => AccessClass::Copy,
            AccessKind::Atomic => AccessClass::Atomic,
        };
        let Access {
            mask, size, addresses, ..
        } = *access;
        match access.space {
            Space::Shared => {
                let cost = wavefronts(mask, addresses, size, class == AccessClass::Atomic);
                self.count(warp.pc, true, class, cost);
            }
            Space::Global if !self.launch.plan.constant[warp.pc as usize] => {
                self.count(warp.pc, false, class, sectors(mask, addresses, |_| size));
                let (reads, writes) = (class != AccessClass::Store, class != AccessClass::Load);
                self.touch(mask, addresses, |_| size, reads, writes);
            }
            _ => {}
        }
    }

    fn copied(&mut self, warp: &mut Warp, mask: u32, addresses: &[u64; 32], read: &[u32; 32]) {
        let cost = sectors(mask, addresses, |lane| read[lane]);
        self.count(warp.pc, false, AccessClass::Copy, cost);
        self.touch(mask, addresses, |lane| read[lane], true, false);
    }

    fn waits(&mut self, warp: &Warp, under_way: u64, left: u64) {
        let [before, after] = self.tally.waits.entry(warp.pc).or_default();
        before.add(under_way);
        after.add(left);
    }

    fn barrier(&mut self) {}

    fn warp_barrier(&mut self, _: &mut Warp, _: u32, _: u32) {}

    fn together(&mut self, _: &mut Warp, _: u32, _: u32) {}

    fn async_done(&mut self, _: u32, _: u64, _: u32, _: bool) {}

    fn fence(&mut self, _: &mut Warp) {}

    fn enter(&mut self, _: &Warp, _: u32, _: u32, _: u32) {}

    fn pass(&mut self, _: &Warp, _: u32, _: u32, _: u32, _: u32) {}

    fn end(&mut self) {
        let loops = self.launch.plan.loops.len();
        for (n, trips) in self.trips.iter().enumerate().filter(|(_, trips)| **trips > 0) {
            self.tally.loops[n % loops].trips.add(*trips);
        }
        let launch = &self.launch;
        let blocks: u64 = launch.grid.iter().product();
        let wave = self.number / launch.wave;
        let in_wave = (blocks - wave * launch.wave).min(launch.wave);
        for (all, mine) in lock(&launch.lines).iter_mut().zip(&mut self.lines) {
            all.add(wave, in_wave, mine);
        }
    }
}
