//! A caching allocator: freed blocks are kept by size class and reused, so a steady state allocates nothing.

use crate::memory::aligned::{Block, LINE};
use kiln_core::{Error, MemoryStats, Result};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The number of cached bytes that are always allowed, and the size above which a larger block may serve a request.
const SLACK: usize = 1 << 20;

/// The free blocks by size class, and the statistics.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: BTreeMap<usize, Class>,
    stats: MemoryStats,
    /// The number of blocks taken and given back so far.
    clock: u64,
}

/// The free blocks of one size, and the clock when one was last taken or given back.
#[derive(Default)]
struct Class {
    blocks: Vec<Block>,
    used: u64,
}

/// Rounds a size up to a multiple of 1/8 of the power of two below it, which wastes at most 1/8.
fn size_class(lines: usize) -> usize {
    let step = (lines.next_power_of_two() / 16).max(1);
    lines.next_multiple_of(step)
}

impl Pool {
    /// Takes a block of at least `bytes` bytes with unspecified contents.
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

    /// Takes a block back. Blocks in use and free blocks together are limited to twice the peak of blocks in use, plus
    /// [`SLACK`]: the free blocks of one size class wait while others are in use, so a steady state needs more than its peak.
    /// Beyond that, blocks of the size class that was unused for the longest time are returned to the system.
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
        // A panic while the lock is held cannot leave the lists inconsistent: every update is a push or a pop.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    /// Takes a free block of `lines` lines or, for large blocks, the smallest of up to half as many again, so that similar
    /// sizes share blocks.
    fn pop(&mut self, lines: usize) -> Option<Block> {
        let most = if lines * LINE > SLACK { lines + lines / 2 } else { lines };
        let mut fits = self
            .free
            .range(lines..=most)
            .filter(|(_, class)| !class.blocks.is_empty());
        let size = fits.next().map_or(lines, |(&size, _)| size);
        self.class(size).blocks.pop()
    }

    /// The size class of `lines` lines, marked as used now.
    fn class(&mut self, lines: usize) -> &mut Class {
        self.clock += 1;
        let class = self.free.entry(lines).or_default();
        class.used = self.clock;
        class
    }

    /// Returns a block of the least recently used size class to the system.
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
        // Blocks of many size classes fill the memory that may be cached.
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
