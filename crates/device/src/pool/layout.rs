//! The places of large blocks side by side in one segment, for a step that is recorded after it has run once.
//!
//! When each block was taken and given back is known by then, so the places are chosen for all of them together: the largest first, each
//! in the smallest part that is free for as long as it lives (greedy by size: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural
//! Net Inference", 2020). Chosen one at a time, in their order, blocks leave holes that none of the later ones fits.

use super::arena::LARGE;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The most blocks that are looked at; the time to place them grows with their square.
const MOST: usize = 4096;
/// The part of a step, as a fraction, for which a block lives that has no place beside others.
const LONG: (usize, usize) = (7, 8);
/// How many blocks of the step may be left out between two requests of the recording.
const LEFT_OUT: usize = 256;

/// A block: its bytes, and the numbers of the events by which it was taken and given back.
#[derive(Clone, Copy, Debug)]
struct Span {
    bytes: usize,
    from: usize,
    until: Option<usize>,
}

/// The blocks of a step in their order.
#[derive(Debug, Default)]
pub(super) struct Layout {
    spans: Vec<Span>,
    /// The numbers of the blocks that are taken, by their addresses on the device.
    open: HashMap<u64, usize>,
    events: usize,
}

impl Layout {
    /// Notes the block at this address of the device.
    pub(super) fn take(&mut self, block: u64, bytes: usize) {
        if self.spans.len() == MOST {
            *self = Layout::default();
        }
        self.open.insert(block, self.spans.len());
        self.spans.push(Span {
            bytes,
            from: self.events,
            until: None,
        });
        self.events += 1;
    }

    /// Notes that the block is given back, if its taking was noted.
    pub(super) fn give(&mut self, block: u64) {
        if let Some(span) = self.open.remove(&block).and_then(|i| self.spans.get_mut(i)) {
            span.until = Some(self.events);
            self.events += 1;
        }
    }

    /// Bytes and life of the blocks that have been given back: the others outlive the step.
    fn given_back(&self) -> Vec<(usize, usize, usize)> {
        let spans = self.spans.iter();
        spans
            .filter_map(|span| Some((span.bytes, span.from, span.until?)))
            .collect()
    }

    /// True for a block that lives for nearly all of the step, and that would have a segment of its own size.
    fn is_long(&self, (bytes, from, until): (usize, usize, usize)) -> bool {
        bytes >= LARGE && (until - from) * LONG.1 >= self.events * LONG.0
    }

    /// The places of those blocks that have been given back. A large one that lives for nearly all of the step shares its part with next to
    /// nothing; it gets a segment of its own if it is asked for, which a batch is not: it lies in memory before.
    pub(super) fn places(&self) -> Places {
        let spans = self.given_back();
        let mut order: Vec<usize> = (0..spans.len()).filter(|&i| !self.is_long(spans[i])).collect();
        order.sort_by_key(|&i| Reverse(spans[i].0));
        let mut blocks: Vec<(usize, Option<u64>)> = spans.iter().map(|span| (span.0, None)).collect();
        // Bytes, place, and the number of the block, by places.
        let mut placed: Vec<(u64, u64, usize)> = Vec::new();
        let mut end = 0;
        for i in order {
            let (bytes, from, until) = (spans[i].0 as u64, spans[i].1, spans[i].2);
            let (mut free, mut best) = (0, None);
            for &(at, size, _) in placed.iter().filter(|p| spans[p.2].1 < until && from < spans[p.2].2) {
                let part = at.saturating_sub(free);
                if part >= bytes && best.is_none_or(|(least, _)| part < least) {
                    best = Some((part, free));
                }
                free = free.max(at + size);
            }
            let at = best.map_or(free, |(_, at)| at);
            blocks[i].1 = Some(at);
            end = end.max(at + bytes);
            let next = placed.partition_point(|p| p.0 <= at);
            placed.insert(next, (at, bytes, i));
        }
        Places {
            end: end as usize,
            base: 0,
            blocks,
            next: 0,
        }
    }
}

/// Where the large requests of a recording are to lie, in the order in which they come.
#[derive(Debug, Default)]
pub(super) struct Places {
    end: usize,
    base: u64,
    /// Bytes and places; those without a place lie elsewhere.
    blocks: Vec<(usize, Option<u64>)>,
    next: usize,
}

impl Places {
    /// The bytes of a segment for all of them.
    pub(super) fn needed(&self) -> usize {
        self.end
    }

    /// The same in the segment at this address.
    pub(super) fn at(self, base: u64) -> Self {
        Places { base, ..self }
    }

    /// The address for the next request, of this many bytes. What the step asked for besides is passed over; `None` for a request that it
    /// had not, or that has no place.
    pub(super) fn next(&mut self, bytes: usize) -> Option<u64> {
        let mut left = self.blocks.get(self.next..)?.iter().take(LEFT_OUT);
        let passed = left.position(|block| block.0 == bytes)?;
        let at = self.blocks[self.next + passed].1;
        self.next += passed + 1;
        at.map(|at| self.base + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_share_what_others_leave() {
        let mut layout = Layout::default();
        for (block, bytes) in [(1, 40), (2, 10), (3, 70)] {
            layout.take(block, bytes);
        }
        layout.give(1);
        layout.give(2);
        // In their order it would not fit the hole of 50 in front of the third.
        layout.take(4, 60);
        layout.take(5, 20);
        for block in [3, 4, 6] {
            layout.give(block);
        }
        let mut places = layout.places().at(1000);
        // The fifth is never given back.
        assert_eq!(places.needed(), 130);
        let at: Vec<_> = [40, 10, 70, 60].into_iter().map(|bytes| places.next(bytes)).collect();
        assert_eq!(at, [Some(1070), Some(1110), Some(1000), Some(1070)]);
        assert_eq!(places.next(60), None);
        assert_eq!(Layout::default().places().needed(), 0);
    }

    #[test]
    fn a_request_that_lives_long_takes_no_place_of_another() {
        let mut layout = Layout::default();
        layout.take(0, LARGE);
        for block in 1..9 {
            layout.take(block, if block == 8 { LARGE } else { 10 });
            layout.give(block);
        }
        layout.give(0);
        let mut places = layout.places();
        assert_eq!(places.needed(), LARGE);
        assert_eq!(places.next(LARGE), None);
        let at: Vec<_> = [10, 10, LARGE].into_iter().map(|bytes| places.next(bytes)).collect();
        assert_eq!(at, [Some(0), Some(0), Some(0)]);
    }

    #[test]
    fn requests_that_are_left_out_are_passed_over() {
        let mut layout = Layout::default();
        for block in 0..4 {
            layout.take(block, 10 + block as usize);
        }
        (0..4).for_each(|block| layout.give(block));
        let mut places = layout.places();
        assert_eq!(places.needed(), 46);
        assert_eq!(places.next(5), None);
        assert!(places.next(11).is_some() && places.next(10).is_none() && places.next(13).is_some());
    }

    proptest! {
        /// Blocks that live at a time lie apart, and inside of the segment.
        #[test]
        fn blocks_lie_apart(steps in prop::collection::vec((1usize..50, any::<usize>(), any::<bool>()), 1..80)) {
            let (mut layout, mut live) = (Layout::default(), Vec::new());
            for (block, &(bytes, which, take)) in steps.iter().enumerate() {
                if take || live.is_empty() {
                    layout.take(block as u64, bytes);
                    live.push(block as u64);
                } else {
                    layout.give(live.swap_remove(which % live.len()));
                }
            }
            live.into_iter().for_each(|block| layout.give(block));
            let (places, spans) = (layout.places(), layout.given_back());
            prop_assert_eq!(spans.len(), places.blocks.len());
            for (i, a) in spans.iter().enumerate() {
                let Some(at) = places.blocks[i].1 else { continue };
                prop_assert!(at as usize + a.0 <= places.needed());
                for (j, b) in spans.iter().enumerate().skip(i + 1) {
                    let Some(to) = places.blocks[j].1 else { continue };
                    let apart = at + a.0 as u64 <= to || to + b.0 as u64 <= at;
                    prop_assert!(apart || a.2 <= b.1 || b.2 <= a.1, "{a:?} {b:?}");
                }
            }
        }
    }
}
