//! The blocks of a launch over the cores.
//!
//! A thread of the host runs one block at a time. A block that runs long and may wait for another, because it reads what
//! others may write, is set aside with its state, and others have a turn: blocks that have not begun, as long as a device
//! would hold them beside those that have, then those set aside, in a circle.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::block::{Block, Turn};
use crate::Fault;
use crate::machine::{Env, LaunchObserver};
use crate::sync::lock;

/// Blocks run on the calling thread for this time before other threads are asked to help.
const SERIAL_TIME: Duration = Duration::from_micros(60);

/// Once a block has a fault, blocks before it that were set aside have this many more turns to end, or to have a fault that
/// is reported instead.
const GRACE: u32 = 256;

/// Blocks that a thread keeps for the next launch.
const SPARE: usize = 2;

thread_local! {
    static IDLE: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// A block that was set aside.
struct Aside {
    block: Block,
    number: u64,
    /// The turns that this block has left after a fault in another.
    grace: u32,
}

struct Grid<'e> {
    env: &'e Env<'e>,
    observer: Option<&'e dyn LaunchObserver>,
    count: u64,
    /// Blocks that may have begun and not ended at one time.
    resident: u64,
    watchdog: Option<Duration>,
    /// The next block to begin.
    next: AtomicU64,
    /// Blocks from this one on are not run: there was a fault.
    limit: AtomicU64,
    /// Blocks that have begun and not ended.
    held: AtomicU64,
    ended: AtomicU64,
    /// True if blocks were ever set aside.
    crowded: AtomicBool,
    aside: Mutex<VecDeque<Aside>>,
    /// The fault of the lowest block, which is the one that is reported, whichever thread finds it first.
    first: Mutex<(u64, Option<Box<Fault>>)>,
    /// The number of blocks that had ended when it last changed, and the time of that change.
    progress: Mutex<(u64, Instant)>,
}

/// Runs every block of a launch, of which `resident` may wait for each other. If no block ends for as long as `watchdog`
/// says, the launch ends with a fault. Findings of the checker come before the fault that ended the launch.
pub(super) fn run(
    env: &Env<'_>,
    resident: u64,
    watchdog: Option<Duration>,
    observer: Option<&dyn LaunchObserver>,
) -> Result<(), Vec<Fault>> {
    let [x, y, z] = env.grid.map(u64::from);
    let count = x * y * z;
    let start = Instant::now();
    let grid = Grid {
        env,
        observer,
        count,
        resident: resident.max(1),
        watchdog,
        next: AtomicU64::new(0),
        limit: AtomicU64::new(count),
        held: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        crowded: AtomicBool::new(false),
        aside: Mutex::default(),
        first: Mutex::new((u64::MAX, None)),
        progress: Mutex::new((0, start)),
    };
    // Most launches of small tests are over before another thread would have woken up.
    grid.work(|| start.elapsed() >= SERIAL_TIME);
    if let left @ 1.. = grid.left() {
        let _running = Running::begin();
        let others = (Running::spare() as u64).min(left - 1);
        rayon::in_place_scope(|scope| {
            (0..others).for_each(|_| scope.spawn(|_| grid.work(|| false)));
            grid.work(|| false);
        });
    }
    let (last, fault) = grid.first.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut faults = grid.observer.map_or_else(Vec::new, |o| o.findings(last));
    faults.extend(fault.map(|fault| *fault));
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Counts the launches of this process that are running. Each has the thread that began it, and as many of rayon's as are left.
struct Running;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

impl Running {
    fn begin() -> Running {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Running
    }

    /// The number of threads that no launch has begun on.
    fn spare() -> usize {
        rayon::current_num_threads().saturating_sub(RUNNING.load(Ordering::Relaxed))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Grid<'_> {
    /// The blocks before a fault that have not ended.
    fn left(&self) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        let fresh = limit.saturating_sub(self.next.load(Ordering::Relaxed));
        fresh + lock(&self.aside).len() as u64
    }

    /// Runs blocks until all are taken by threads, or until `enough` says so.
    fn work(&self, enough: impl Fn() -> bool) {
        while let Some(mut aside) = self.take() {
            match aside.block.go(self.env) {
                Ok(Turn::Ended) => self.end(aside.block),
                Ok(Turn::Aside) => self.set_aside(aside),
                Err(fault) => {
                    self.tell(aside.number, fault);
                    self.end(aside.block);
                }
            }
            if enough() {
                return;
            }
        }
    }

    /// The next block to run: one that has not begun, or one that was set aside.
    fn take(&self) -> Option<Aside> {
        if let Some(fresh) = self.begin() {
            return Some(fresh);
        }
        while self.crowded.load(Ordering::Relaxed) {
            let mut aside = lock(&self.aside).pop_front()?;
            let limit = self.limit.load(Ordering::Relaxed);
            if aside.number < limit && aside.grace > 0 {
                aside.grace -= u32::from(limit < self.count);
                return Some(aside);
            }
            self.end(aside.block);
        }
        None
    }

    fn begin(&self) -> Option<Aside> {
        if self.next.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed) {
            return None;
        }
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.resident {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.limit.load(Ordering::Relaxed) {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut block = IDLE.with_borrow_mut(Vec::pop).unwrap_or_else(Block::new);
        let [x, y, _] = self.env.grid.map(u64::from);
        let index = [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32];
        block.begin(self.env, index, self.observer.map(|o| o.block(index)));
        Some(Aside {
            block,
            number,
            grace: GRACE,
        })
    }

    fn end(&self, mut block: Block) {
        block.forget();
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        IDLE.with_borrow_mut(|idle| {
            if idle.len() < SPARE {
                idle.push(block);
            }
        });
    }

    fn set_aside(&self, mut aside: Aside) {
        let ended = self.ended.load(Ordering::Relaxed);
        let mut progress = lock(&self.progress);
        if progress.0 != ended {
            *progress = (ended, Instant::now());
        }
        if let Some(most) = self.watchdog.filter(|most| progress.1.elapsed() > *most) {
            let fault = aside.block.timed_out(self.env, most);
            self.tell(aside.number, fault);
            // A block that waits for one that waits for ever waits for ever too: no block is run any more.
            self.limit.store(0, Ordering::Relaxed);
        }
        drop(progress);
        lock(&self.aside).push_back(aside);
        self.crowded.store(true, Ordering::Relaxed);
    }

    fn tell(&self, number: u64, fault: Box<Fault>) {
        self.limit.fetch_min(number, Ordering::Relaxed);
        let mut first = lock(&self.first);
        if number < first.0 {
            *first = (number, Some(fault));
        }
    }
}
