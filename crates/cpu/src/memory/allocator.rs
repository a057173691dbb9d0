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
    /// The largest number of bytes in blocks in use and free ones; `None` for no limit but the system's.
    limit: Option<usize>,
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
    /// Creates a pool that takes no more than this many bytes from the system.
    pub(crate) fn limited(limit: Option<usize>) -> Self {
        Pool {
            limit,
            ..Pool::default()
        }
    }

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
                if let Some(limit) = self.limit {
                    state.make_room(class.saturating_mul(LINE), limit)?;
                }
                let block = Block::new(class).or_else(|| {
                    state.release();
                    Block::new(class)
                });
                let block = block.ok_or_else(|| out_of_memory(bytes, None))?;
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

    /// Returns free blocks to the system until `more` bytes stay within the limit. If they cannot, nothing is returned.
    fn make_room(&mut self, more: usize, limit: usize) -> Result<()> {
        let free = limit.saturating_sub(self.stats.live);
        if more > free {
            return Err(out_of_memory(more, Some(free)));
        }
        while self.stats.live + self.stats.cached > limit - more {
            self.evict();
        }
        Ok(())
    }

    fn release(&mut self) {
        self.free.clear();
        self.stats.cached = 0;
    }
}

fn out_of_memory(requested: usize, free: Option<usize>) -> Error {
    Error::OutOfMemory {
        device: "cpu".into(),
        requested,
        free,
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
    fn a_limit_is_kept_and_a_request_beyond_it_leaves_nothing_behind() {
        const LIMIT: usize = 8 << 20;
        let pool = Pool::limited(Some(LIMIT));
        let held = pool.take(3 << 20).unwrap();
        // Free blocks make room for one that would not fit beside them.
        (0..4).for_each(|i| pool.give(pool.take((1 << 20) + (i << 16)).unwrap()));
        pool.give(pool.take(5 << 20).unwrap());
        let before = pool.stats();
        for _ in 0..100 {
            let Err(refused) = pool.take(2 * LIMIT) else {
                panic!("it is beyond the limit")
            };
            let (requested, free) = (2 * LIMIT, Some(LIMIT - before.live));
            assert!(matches!(refused, Error::OutOfMemory { requested: r, free: f, .. } if (r, f) == (requested, free)));
            let block = pool.take(1 << 20).unwrap();
            let now = pool.stats();
            assert!(now.live + now.cached <= LIMIT, "{now:?}");
            pool.give(block);
        }
        assert_eq!(pool.stats().live, before.live);
        pool.give(held);
        assert_eq!(pool.stats().live, 0);
        assert!(pool.take(LIMIT).is_ok());
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
