//! A caching allocator: blocks of a size class are kept and handed out again, so a steady state allocates nothing.

use crate::memory::aligned::{Block, LINE};
use kiln_core::{Error, MemoryStats, Result};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Bytes that are always worth keeping.
const SLACK: usize = 1 << 20;

/// Blocks that nobody uses, by size class, and the statistics.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: BTreeMap<usize, Class>,
    stats: MemoryStats,
    /// Counts what was taken and given.
    clock: u64,
}

/// The free blocks of a size, and when one was last taken or given.
#[derive(Default)]
struct Class {
    blocks: Vec<Block>,
    used: u64,
}

/// Blocks come in sizes of at most 1/8 waste: the next multiple of an eighth of the size's power of two.
fn size_class(lines: usize) -> usize {
    let step = (lines.next_power_of_two() / 16).max(1);
    lines.next_multiple_of(step)
}

impl Pool {
    /// A block of at least `bytes` bytes with unspecified contents.
    pub(crate) fn take(&self, bytes: usize) -> Result<Block> {
        if bytes == 0 {
            return Ok(Block::EMPTY);
        }
        let class = size_class(bytes.div_ceil(LINE));
        let mut state = self.lock();
        let cached = state.pop(class);
        let block = match cached {
            Some(block) => {
                state.stats.cached -= block.len() * LINE;
                block
            }
            None => {
                let block = Block::new(class).or_else(|| {
                    state.release();
                    Block::new(class)
                });
                let block = block.ok_or_else(|| out_of_memory(bytes))?;
                state.stats.allocations += 1;
                block
            }
        };
        state.stats.live += block.len() * LINE;
        state.stats.peak = state.stats.peak.max(state.stats.live);
        Ok(block)
    }

    /// Takes a block back. What is kept is at most as much again as was ever live at once: blocks of one size class
    /// wait while others are in use, so a steady state needs more than its peak. Beyond that, the blocks of sizes that nobody
    /// asked for the longest go to the system.
    pub(crate) fn give(&self, block: Block) {
        let bytes = block.len() * LINE;
        if bytes == 0 {
            return;
        }
        let mut state = self.lock();
        state.stats.live -= bytes;
        state.stats.cached += bytes;
        state.class(block.len()).blocks.push(block);
        while state.stats.live + state.stats.cached > 2 * state.stats.peak + SLACK {
            state.evict();
        }
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        self.lock().stats
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic while the lock is held cannot leave the lists half-changed: every update is a push or a pop.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    /// A free block of `lines` lines, or, where they are many, the smallest of up to half as many again: sizes that nearly agree
    /// share blocks.
    fn pop(&mut self, lines: usize) -> Option<Block> {
        let most = if lines * LINE > SLACK { lines + lines / 2 } else { lines };
        let mut fits = self
            .free
            .range(lines..=most)
            .filter(|(_, class)| !class.blocks.is_empty());
        let size = fits.next().map_or(lines, |(&size, _)| size);
        self.class(size).blocks.pop()
    }

    /// The class of blocks of `lines` lines, which is in use now.
    fn class(&mut self, lines: usize) -> &mut Class {
        self.clock += 1;
        let class = self.free.entry(lines).or_default();
        class.used = self.clock;
        class
    }

    /// Gives a block of the class that was used the longest ago to the system.
    fn evict(&mut self) {
        let stale = self.free.iter_mut().filter(|(_, class)| !class.blocks.is_empty());
        if let Some((lines, class)) = stale.min_by_key(|(_, class)| class.used) {
            class.blocks.pop();
            self.stats.cached -= lines * LINE;
        }
    }

    fn release(&mut self) {
        self.free.clear();
        self.stats.cached = 0;
    }
}

fn out_of_memory(bytes: usize) -> Error {
    Error::OutOfMemory {
        device: "cpu".into(),
        requested: bytes,
        free: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_are_reused_and_counted() {
        let pool = Pool::default();
        for _ in 0..10 {
            let (a, b) = (pool.take(1000).unwrap(), pool.take(5000).unwrap());
            pool.give(a);
            pool.give(b);
        }
        let stats = pool.stats();
        assert_eq!(stats.allocations, 2);
        assert_eq!(stats.live, 0);
        assert!(stats.cached >= 6000 && stats.peak == stats.cached);
        assert!(matches!(
            pool.take(isize::MAX as usize / 2),
            Err(Error::OutOfMemory { .. })
        ));
    }

    #[test]
    fn sizes_of_the_past_make_room() {
        let pool = Pool::default();
        // Sizes of many classes, alone for a while, fill what may be kept.
        for i in 0..30 {
            pool.give(pool.take((2 << 20) + (i << 18)).unwrap());
        }
        let before = pool.stats().allocations;
        for _ in 0..10 {
            let blocks = [1usize, 2, 3].map(|i| pool.take(i << 16).unwrap());
            blocks.into_iter().for_each(|block| pool.give(block));
        }
        assert_eq!(pool.stats().allocations - before, 3, "steady after its first step");
        assert!(pool.stats().cached <= 2 * pool.stats().peak + SLACK);
    }
}
