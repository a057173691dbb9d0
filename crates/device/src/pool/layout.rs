//! The places that large blocks would have side by side in one segment: how large it has to be for a step that has run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Blocks in a segment without an end, each in the smallest free part that fits, as the arena chooses them.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// The bytes of every part by its first address, and true if it is free.
    parts: BTreeMap<u64, (usize, bool)>,
    free: BTreeSet<(usize, u64)>,
    end: u64,
    /// The places of the blocks by their addresses on the device.
    placed: HashMap<u64, u64>,
    live: usize,
}

impl Layout {
    /// Forgets all blocks.
    pub(super) fn clear(&mut self) {
        *self = Layout::default();
    }

    /// The bytes of a segment for the blocks that have been given back.
    pub(super) fn needed(&self) -> usize {
        (self.end as usize).saturating_sub(self.live)
    }

    /// Places the block at this address of the device.
    pub(super) fn take(&mut self, block: u64, bytes: usize) {
        let at = match self.free.range((bytes, 0)..).next().copied() {
            Some((found, at)) => {
                self.free.remove(&(found, at));
                self.put(at + bytes as u64, found - bytes);
                at
            }
            None => {
                let last = self.parts.last_key_value().map(|(&at, &part)| (at, part));
                let at = match last {
                    Some((at, (bytes, true))) => {
                        self.free.remove(&(bytes, at));
                        at
                    }
                    _ => self.end,
                };
                self.end = at + bytes as u64;
                at
            }
        };
        self.parts.insert(at, (bytes, false));
        self.placed.insert(block, at);
        self.live += bytes;
    }

    fn put(&mut self, at: u64, bytes: usize) {
        if bytes > 0 {
            self.parts.insert(at, (bytes, true));
            self.free.insert((bytes, at));
        }
    }

    /// Takes a block away, if it was placed.
    pub(super) fn give(&mut self, block: u64) {
        let Some(mut at) = self.placed.remove(&block) else {
            return;
        };
        let Some((mut bytes, _)) = self.parts.remove(&at) else {
            return;
        };
        self.live -= bytes;
        if let Some(&(more, true)) = self.parts.get(&(at + bytes as u64)) {
            let right = at + bytes as u64;
            self.parts.remove(&right);
            self.free.remove(&(more, right));
            bytes += more;
        }
        let left = self.parts.range(..at).next_back().map(|(&at, &part)| (at, part));
        if let Some((left, (more, true))) = left {
            self.parts.remove(&left);
            self.free.remove(&(more, left));
            (at, bytes) = (left, bytes + more);
        }
        self.put(at, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_share_what_others_leave() {
        let mut layout = Layout::default();
        for (block, bytes) in [(1, 100), (2, 50), (3, 50)] {
            layout.take(block, bytes);
        }
        layout.give(2);
        layout.give(3);
        // The two parts are one, and the end moves by what it lacks.
        layout.take(4, 120);
        assert_eq!((layout.end, layout.needed()), (220, 0));
        layout.give(1);
        layout.take(5, 40);
        layout.take(6, 60);
        assert_eq!(layout.end, 220);
        for block in [4, 5, 6, 7] {
            layout.give(block);
        }
        assert_eq!((layout.needed(), layout.parts.len(), layout.free.len()), (220, 1, 1));
        layout.clear();
        layout.give(4);
        assert_eq!(layout.needed(), 0);
    }
}
