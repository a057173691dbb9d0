//! The observer of a block: brings the order of its threads and the history of its memory together.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use super::findings::{Findings, Mistake};
use super::global::{Cell, Found, Me, PAGE, Page, Pages, RECENT, page, states};
use super::local::Local;
use super::order::{LOW, Manner, Order};
use super::pending::Product;
use super::report::{Finding, fault, verb};
use super::shared::{SharedCells, Who, Wrong};
use crate::machine::{
    Access, AccessKind, Env, LaunchObserver, ORDERED, Observer, ProductRead, STORED, Space, Warp, lanes,
};
use crate::memory::Range;
use crate::sync::lock;
use crate::{Fault, FaultKind};

/// The checker of one launch.
pub(super) struct Checker(Arc<Launch>);

struct Launch {
    grid: [u32; 3],
    /// Blocks, or 0 when there are too many to tell apart.
    blocks: u32,
    warps: usize,
    /// log2 of the bytes of a cell, in shared and in global memory.
    shifts: [u32; 2],
    shared_cells: usize,
    pages: Pages,
    findings: Findings,
    serial: u64,
}

/// The state that a thread of the host keeps from block to block and from launch to launch.
#[derive(Default)]
pub(super) struct State {
    pub(super) order: Order,
    pub(super) shared: SharedCells,
    /// The products of warpgroups that are under way.
    pub(super) products: Vec<Product>,
    local: Local,
    /// The mistakes that the block has made.
    seen: HashSet<Mistake>,
    /// Pages of one launch that were used lately, by the low bits of their number.
    recent: Vec<Option<(u64, Arc<Page>)>>,
    serial: u64,
}

/// States that no block uses now.
static SPARE: Mutex<Vec<State>> = Mutex::new(Vec::new());

impl Checker {
    pub(super) fn new(env: &Env<'_>) -> Checker {
        let shifts = env.code.granules.map(|g| if g == 0 { 2 } else { g.trailing_zeros() });
        let blocks: u64 = env.grid.iter().map(|n| u64::from(*n)).product();
        let threads: u32 = env.block.iter().product();
        Checker(Arc::new(Launch {
            grid: env.grid,
            blocks: u32::try_from(blocks).ok().filter(|n| *n < LOW).unwrap_or(0),
            warps: threads.div_ceil(32) as usize,
            shifts,
            shared_cells: (env.shared as usize >> shifts[0]) + 1,
            pages: Pages::default(),
            findings: Findings::default(),
            serial: env.serial,
        }))
    }
}

impl LaunchObserver for Checker {
    fn block(&self, index: [u32; 3]) -> Box<dyn Observer> {
        let launch = &self.0;
        let mut state = lock(&SPARE).pop().unwrap_or_default();
        state.shared.reserve(launch.shared_cells);
        state.local.begin(launch.warps);
        state.seen.clear();
        state.products.clear();
        if !state.order.begin(launch.warps) {
            state.shared.clear();
        }
        if state.serial != launch.serial {
            state.recent.clear();
            state.recent.resize(RECENT, None);
            state.serial = launch.serial;
        }
        let ([x, y, _], [i, j, k]) = (launch.grid.map(u64::from), index.map(u64::from));
        let number = i + x * (j + y * k);
        let block = if launch.blocks == 0 { 0 } else { number as u32 + 1 };
        Box::new(BlockObserver {
            launch: Arc::clone(launch),
            state,
            number,
            me: Me { block, acquired: false },
            first: None,
            unwritten: Vec::new(),
        })
    }

    fn findings(&self, last: u64) -> Vec<Fault> {
        self.0.findings.take(last)
    }
}

pub(super) struct BlockObserver {
    launch: Arc<Launch>,
    pub(super) state: State,
    /// The block's number in the grid.
    number: u64,
    me: Me,
    /// The time of the first finding.
    first: Option<u32>,
    /// Reads of memory that nothing had written. They wait for the next barrier: a write that comes before it makes them a
    /// race, which names both places.
    unwritten: Vec<Unwritten>,
}

/// One instruction's first read of memory that nothing had written.
struct Unwritten {
    pc: u32,
    /// Its index among the findings of the block.
    place: usize,
    since: u32,
    fault: Box<Fault>,
}

/// The most accesses that may follow a read of unwritten memory before it is reported.
const PATIENCE: u32 = 1 << 20;

/// The most accesses that may follow the first finding: a loop whose bound was never written would hardly end.
const LENIENCE: u32 = 1 << 21;

impl Drop for BlockObserver {
    fn drop(&mut self) {
        lock(&SPARE).push(std::mem::take(&mut self.state));
    }
}

/// A pair: true if an access reads, and true if it writes.
fn does(kind: AccessKind) -> (bool, bool) {
    match kind {
        AccessKind::Load | AccessKind::Guess | AccessKind::StrongLoad => (true, false),
        AccessKind::Store | AccessKind::StrongStore | AccessKind::AsyncStore => (false, true),
        AccessKind::Atomic => (true, true),
    }
}

impl Observer for BlockObserver {
    fn access(&mut self, warp: &mut Warp, access: &Access<'_>) {
        let now = self.state.order.tick();
        if self.unwritten.first().is_some_and(|first| now - first.since > PATIENCE) {
            self.tell_unwritten();
        }
        if self.first.is_some_and(|first| now - first > LENIENCE) {
            let message = "the block is stopped, it does not end after its first finding".to_string();
            return warp.fail(FaultKind::Uninitialised, access.mask.trailing_zeros() as usize, message);
        }
        let manner = match access.kind {
            AccessKind::Load | AccessKind::Store => Manner::Plain,
            AccessKind::AsyncStore => Manner::Pending,
            AccessKind::Guess | AccessKind::Atomic | AccessKind::StrongLoad | AccessKind::StrongStore => Manner::Strong,
        };
        if manner == Manner::Strong && access.kind != AccessKind::Guess {
            self.synchronise(warp, access.kind);
        }
        match access.space {
            Space::Shared => self.shared(warp, access, manner),
            Space::Global | Space::Const => self.global(warp, access, manner),
            Space::Local => self.local(warp, access),
            _ => {}
        }
    }

    fn copied(&mut self, warp: &mut Warp, mask: u32, addresses: &[u64; 32], read: &[u32; 32]) {
        for lane in lanes(mask) {
            let access = Access {
                kind: AccessKind::Load,
                space: Space::Global,
                mask: 1 << lane,
                size: read[lane],
                addresses,
            };
            self.access(warp, &access);
        }
    }

    fn barrier(&mut self) {
        self.state.order.barrier();
        self.tell_unwritten();
    }

    fn warp_barrier(&mut self, warp: &mut Warp, member: u32, mask: u32) {
        self.state.order.arrive(warp.index, member, mask, warp.live);
    }

    fn together(&mut self, warp: &mut Warp, _member: u32, mask: u32) {
        self.state.order.meet(warp.index, mask, warp.live);
    }

    fn bulk_issued(&mut self, warp: &mut Warp, lane: usize, shared: u32, size: u32) {
        self.bulk_begins(warp, lane, shared, size);
    }

    fn async_done(&mut self, thread: u32, shared: u64, size: u32, bulk: bool) {
        let shift = self.launch.shifts[0];
        self.state.order.tick();
        let first = (shared >> shift) as usize;
        for cell in first..first + (size >> shift) as usize {
            self.state.shared.landed(&self.state.order, cell, thread, bulk);
        }
    }

    fn async_arrived(&mut self, thread: u32) {
        self.state.order.fence(thread / 32);
    }

    fn phase_passed(&mut self, warp: &mut Warp) {
        self.state.order.tick();
        self.state.order.acquire(warp.index);
    }

    fn fence(&mut self, warp: &mut Warp) {
        self.state.order.fence(warp.index);
        if self.me.block > 0 {
            let (block, now) = (self.me.block, self.state.order.now);
            self.launch.pages.fence(block, self.launch.blocks, now);
        }
    }

    fn proxy_fence(&mut self, warp: &mut Warp) {
        self.state.order.proxy_fence(warp.index);
    }

    fn product(&mut self, warp: &mut Warp, reads: &[ProductRead]) {
        self.product_issued(warp, reads);
    }

    fn products_done(&mut self, warp: &mut Warp, complete: u32) {
        self.products_complete(warp, complete);
    }

    fn enter(&mut self, warp: &Warp, mask: u32, start: u32, len: u32) {
        self.state.local.enter(warp.index, mask, start as usize, len as usize);
    }

    fn pass(&mut self, warp: &Warp, mask: u32, from: u32, to: u32, len: u32) {
        self.state
            .local
            .copy(warp.index, mask, from as usize, to as usize, len as usize);
    }

    fn end(&mut self) {
        self.tell_unwritten();
    }
}

impl BlockObserver {
    /// log2 of the bytes of a cell of shared memory.
    pub(super) fn shared_shift(&self) -> u32 {
        self.launch.shifts[0]
    }

    /// Keeps a finding, once for each mistake; the block runs on.
    #[cold]
    pub(super) fn found(&mut self, warp: &Warp, finding: &Finding<'_>) {
        let mistake = match finding.wrong {
            Wrong::Unwritten => Mistake::Uninitialised(warp.pc),
            _ => Mistake::race(warp.pc, finding.other),
        };
        if matches!(finding.wrong, Wrong::Read(_)) {
            self.unwritten.retain(|read| read.pc != finding.other);
        }
        if !self.state.seen.insert(mistake) {
            return;
        }
        let (fault, place, now) = (fault(warp, finding), self.state.seen.len(), self.state.order.now);
        self.first.get_or_insert(now);
        if finding.wrong == Wrong::Unwritten {
            self.unwritten.push(Unwritten {
                pc: warp.pc,
                place,
                since: now,
                fault,
            });
        } else {
            self.launch.findings.add(mistake, self.number, place, *fault);
        }
    }

    /// Reports the reads of unwritten memory that no write has made a race.
    fn tell_unwritten(&mut self) {
        for Unwritten { pc, place, fault, .. } in self.unwritten.drain(..) {
            let mistake = Mistake::Uninitialised(pc);
            self.launch.findings.add(mistake, self.number, place, *fault);
        }
    }

    /// An access to the threads' own local memory.
    fn local(&mut self, warp: &Warp, access: &Access<'_>) {
        let (reads, writes) = does(access.kind);
        for lane in lanes(access.mask) {
            let (start, len) = (access.addresses[lane] as usize, access.size as usize);
            if reads && self.state.local.unwritten(warp.index, lane, start, len) {
                let place = format!("byte {start} of the thread's local memory");
                let (verb, wrong) = (verb(reads, writes), Wrong::Unwritten);
                let finding = Finding {
                    lane,
                    verb,
                    size: access.size,
                    place: &place,
                    wrong,
                    other: 0,
                    block: None,
                };
                self.found(warp, &finding);
            }
            if writes {
                self.state.local.write(warp.index, lane, start, len);
            }
        }
    }

    /// Notes that an atomic, volatile or ordered access orders others.
    fn synchronise(&mut self, warp: &mut Warp, kind: AccessKind) {
        if kind != AccessKind::StrongStore {
            self.state.order.acquire(warp.index);
            self.me.acquired = true;
        }
        let ordered = warp.env().code.insts[warp.pc as usize].flags & ORDERED != 0;
        if ordered && kind != AccessKind::StrongLoad {
            self.fence(warp);
            // The access itself comes after the accesses that it publishes.
            self.state.order.tick();
            if kind == AccessKind::Atomic {
                self.state.order.acquire(warp.index);
            }
        }
    }

    fn shared(&mut self, warp: &mut Warp, access: &Access<'_>, manner: Manner) {
        let shift = self.launch.shifts[0];
        let (reads, writes) = does(access.kind);
        let count = (access.size >> shift) as usize;
        let mut last = [u64::MAX; 2];
        for lane in lanes(access.mask) {
            let address = access.addresses[lane];
            if !writes {
                // A third lane that reads the same tells nothing new.
                if last == [address; 2] {
                    continue;
                }
                last = [last[1], address];
            }
            let who = Who {
                thread: warp.index * 32 + lane as u32,
                pc: warp.pc,
                manner,
            };
            let first = (address >> shift) as usize;
            for n in 0..count {
                let State { order, shared, .. } = &mut self.state;
                let result = if writes {
                    let same = |other: u32| {
                        let span = (address + ((n as u64) << shift), 1 << shift);
                        same_value(warp, access, [lane, other as usize % 32], span)
                    };
                    shared.write(order, first + n, who, same)
                } else {
                    shared.read(order, first + n, who)
                };
                let (wrong, other) = match result {
                    Ok(unwritten) if unwritten && reads => (Wrong::Unwritten, 0),
                    Ok(_) => continue,
                    Err(wrong) => (wrong, wrong.other()),
                };
                let place = format!("byte {} of shared memory", address + ((n as u64) << shift));
                let finding = Finding {
                    lane,
                    verb: verb(reads, writes),
                    size: access.size,
                    place: &place,
                    wrong,
                    other,
                    block: None,
                };
                self.found(warp, &finding);
            }
        }
    }

    fn global(&mut self, warp: &mut Warp, access: &Access<'_>, manner: Manner) {
        let mut last = [u64::MAX; 2];
        let (reads, writes) = does(access.kind);
        let mut range: Option<&Range> = None;
        for lane in lanes(access.mask) {
            let address = access.addresses[lane];
            if !writes {
                if last == [address; 2] {
                    continue;
                }
                last = [last[1], address];
            }
            if !range.is_some_and(|r| r.contains(address)) {
                range = warp.env().ranges.find(address);
            }
            let Some(range) = range else { return };
            let found = if self.me.block == 0 {
                states(range, address, access.size, reads, writes).map_err(|wrong| (wrong, 0))
            } else {
                let who = Who {
                    thread: warp.index * 32 + lane as u32,
                    pc: warp.pc,
                    manner,
                };
                self.global_lane(warp, access, (lane, range), who)
            };
            if let Err((wrong, other)) = found {
                let place = format!(
                    "byte {} of allocation #{} ({} bytes)",
                    address - range.base,
                    range.id,
                    range.len
                );
                let block = match wrong {
                    Wrong::Write(r) | Wrong::Read(r) if r.low() != self.me.block => Some(r.low()),
                    _ => None,
                };
                let finding = Finding {
                    lane,
                    verb: verb(reads, writes),
                    size: access.size,
                    place: &place,
                    wrong,
                    other,
                    block,
                };
                self.found(warp, &finding);
            }
        }
    }

    /// One lane's access to global memory.
    fn global_lane(
        &mut self,
        warp: &Warp,
        access: &Access<'_>,
        (lane, range): (usize, &Range),
        who: Who,
    ) -> Result<(), Found> {
        let (reads, writes) = does(access.kind);
        let shift = self.launch.shifts[1];
        let (address, bytes) = (access.addresses[lane], 1u64 << shift);
        // Only cells that are touched as a whole: a `cp.async` may read less.
        let (first, end) = (address.div_ceil(bytes), (address + u64::from(access.size)) >> shift);
        if first >= end {
            return states(range, address, access.size, reads, writes).map_err(|wrong| (wrong, 0));
        }
        let State { order, recent, .. } = &mut self.state;
        let mut result = Ok(());
        let mut at = first;
        while at < end {
            let page = page(recent, &self.launch.pages, at / PAGE as u64);
            let stop = end.min((at / PAGE as u64 + 1) * PAGE as u64);
            for n in at..stop {
                let cell: &Cell = page.cell(n as usize % PAGE);
                let place = n << shift;
                if writes {
                    let same = |other: u32| same_value(warp, access, [lane, other as usize % 32], (place, bytes));
                    let (fresh, unwritten) = self.launch.pages.write(order, self.me, cell, who, same)?;
                    if unwritten {
                        let state = states(range, place, bytes as u32, reads && fresh, true);
                        result = result.and(state.map_err(|wrong| (wrong, 0)));
                    }
                } else if self.launch.pages.read(order, self.me, cell, who)? {
                    let state = states(range, place, bytes as u32, true, false);
                    result = result.and(state.map_err(|wrong| (wrong, 0)));
                }
            }
            at = stop;
        }
        result
    }
}

/// True if two lanes of a store write the same bytes in a span.
#[cold]
fn same_value(warp: &Warp, access: &Access<'_>, pair: [usize; 2], (start, bytes): (u64, u64)) -> bool {
    let inst = &warp.env().code.insts[warp.pc as usize];
    if !matches!(access.kind, AccessKind::Store | AccessKind::StrongStore) {
        return false;
    }
    let list = warp.list(inst);
    let element = access.size / list.len().max(1) as u32;
    let register = (inst.flags >> STORED & 15) as usize;
    let byte = |lane: usize, at: u64| {
        let offset = (at - access.addresses[lane]) as u32;
        let slot = list.get((offset / element) as usize).copied().unwrap_or(inst.b);
        // SAFETY: the operands of a store are rows whose registers have this many bytes, at least those of an element
        // (`decode`); the frame is that of the instruction in progress.
        unsafe { *warp.row::<u8>(slot).add(lane * register + (offset % element) as usize) }
    };
    (start..start + bytes).all(|at| byte(pair[0], at) == byte(pair[1], at))
}
