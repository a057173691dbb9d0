//! The different cache lines that blocks touch, and waves of blocks.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use super::counters::Spread;

/// A set of numbers of cache lines.
pub(super) type Set = HashSet<u64, BuildHasherDefault<Mix>>;

/// Spreads the bits of one number: lines are counted for each access, and nobody chooses them to collide.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// The lines of the blocks that have ended.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) blocks: Spread,
    pub(super) waves: Spread,
    pub(super) launch: Set,
    open: HashMap<u64, (u64, Set)>,
}

impl Lines {
    /// Adds the lines of a block, one of the `blocks` of its wave.
    pub(super) fn add(&mut self, wave: u64, blocks: u64, lines: &mut Set) {
        self.blocks.add(lines.len() as u64);
        self.launch.extend(lines.iter());
        let (left, all) = self.open.entry(wave).or_insert_with(|| (blocks, Set::default()));
        all.extend(lines.drain());
        *left -= 1;
        if *left == 0 {
            let count = all.len() as u64;
            self.open.remove(&wave);
            self.waves.add(count);
        }
    }
}
