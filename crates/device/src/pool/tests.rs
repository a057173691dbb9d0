//! The arena on addresses without memory.

use super::arena::{ALIGN, Arena, plan, plan_all};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// One request of this many bytes, or the return of one of the live blocks.
#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    Give(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![
        4 => 0usize..5000,
        3 => (1usize << 19)..(3 << 20),
        2 => (9usize << 20)..(23 << 20),
        1 => prop::sample::select(vec![0, 1, 511, 512, 513, 1 << 20, (1 << 20) + 1, 10 << 20, (10 << 20) - 511]),
    ];
    let step = prop_oneof![3 => size.prop_map(Step::Take), 2 => any::<usize>().prop_map(Step::Give)];
    prop::collection::vec(step, 1..60)
}

/// An arena whose driver gives the next address, with a gap here and there as a driver has.
#[derive(Default)]
struct Machine {
    arena: Arena,
    next: u64,
    segments: BTreeMap<u64, usize>,
    live: Vec<(u64, usize)>,
    direct: bool,
}

impl Machine {
    fn take(&mut self, bytes: usize) -> u64 {
        let plan = plan(bytes, self.direct).expect("sizes of tests exist");
        let at = self.arena.take(plan).unwrap_or_else(|| {
            // Segments that touch stay separate.
            let gap = if self.segments.len().is_multiple_of(2) { 0 } else { 4096 };
            let at = (1 << 30) + self.next + gap;
            self.next += plan.segment as u64 + gap;
            self.segments.insert(at, plan.segment);
            self.arena.add(plan, at);
            self.arena.take(plan).expect("a new segment fits")
        });
        self.live.push((at, bytes));
        at
    }

    fn give(&mut self, which: usize) {
        if !self.live.is_empty() {
            let (at, _) = self.live.swap_remove(which % self.live.len());
            self.arena.give(at);
        }
    }

    /// Runs the steps, gives back all blocks that are left, and returns the addresses.
    fn run(&mut self, steps: &[Step]) -> Vec<u64> {
        let mut addresses = Vec::new();
        for step in steps {
            match step {
                Step::Take(bytes) => addresses.push(self.take(*bytes)),
                Step::Give(which) => self.give(*which),
            }
        }
        while !self.live.is_empty() {
            self.give(0);
        }
        addresses
    }

    /// Checks that live blocks lie apart, inside of segments, and at multiples of `ALIGN`.
    fn check(&self) -> Result<(), TestCaseError> {
        let mut live: Vec<_> = self
            .live
            .iter()
            .map(|&(at, bytes)| (at, bytes, self.arena.size(at)))
            .collect();
        live.sort_unstable();
        for &(at, bytes, size) in &live {
            prop_assert!(size >= bytes.max(1));
            let (start, segment) = self.segments.range(..=at).next_back().expect("a segment below");
            prop_assert!((at - start).is_multiple_of(ALIGN as u64));
            prop_assert!(
                at + size as u64 <= start + *segment as u64,
                "{at:#x}+{size} leaves its segment"
            );
        }
        for pair in live.windows(2) {
            prop_assert!(pair[0].0 + pair[0].2 as u64 <= pair[1].0, "{pair:?} overlap");
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn live_blocks_lie_apart_and_everything_comes_back(steps in steps(), direct: bool) {
        let mut machine = Machine { direct, ..Machine::default() };
        for step in &steps {
            match step {
                Step::Take(bytes) => {
                    machine.take(*bytes);
                }
                Step::Give(which) => machine.give(*which),
            }
            machine.check()?;
        }
        machine.run(&[]);
        let released: BTreeMap<u64, usize> = machine.arena.release().into_iter().collect();
        prop_assert_eq!(&released, &machine.segments);
        prop_assert_eq!(machine.arena.segments().count(), 0);
        prop_assert!(machine.arena.take(plan(1, false).unwrap()).is_none());
    }

    #[test]
    fn equal_sequences_give_equal_addresses(steps in steps()) {
        let (mut one, mut two) = (Machine::default(), Machine::default());
        prop_assert_eq!(one.run(&steps), two.run(&steps));
        // Once a run needs no new segment, each later one finds the pool as the one before it did.
        let mut before = None;
        for _ in 0..20 {
            let segments = one.segments.len();
            let addresses = one.run(&steps);
            if one.segments.len() == segments {
                if let Some(before) = before {
                    prop_assert_eq!(addresses, before);
                    return Ok(());
                }
                before = Some(addresses);
            } else {
                before = None;
            }
        }
        prop_assert!(false, "twenty repetitions still grow the pool");
    }

    /// Of holes of these sizes, the smallest that fits is taken, of equal ones the lowest.
    #[test]
    fn the_best_fit_is_taken(holes in prop::collection::vec(1usize..20, 1..12), wanted in 1usize..20) {
        let mut machine = Machine::default();
        let mut parts = Vec::new();
        for hole in &holes {
            parts.push((*hole, machine.take(hole * ALIGN)));
            machine.take(1);
        }
        // Take the rest of the segment, so that only the holes are free.
        let left = (2 << 20) - holes.iter().map(|h| (h + 1) * ALIGN).sum::<usize>();
        for size in [1 << 20, left - (1 << 20)] {
            machine.take(size);
        }
        prop_assert_eq!(machine.segments.len(), 1);
        for (_, at) in &parts {
            machine.arena.give(*at);
        }
        let best = parts.iter().filter(|(size, _)| *size >= wanted).min();
        let found = machine.arena.take(plan(wanted * ALIGN, false).unwrap());
        prop_assert_eq!(found, best.map(|(_, at)| *at));
    }
}

/// A part is taken where it is asked for if all of it is free there, and what is left around it is found and joined again.
#[test]
fn a_part_is_taken_where_it_is_planned() {
    let (mut arena, all) = (Arena::default(), plan_all(40 << 20).unwrap());
    let (part, at) = (plan(12 << 20, false).unwrap().planned(), 1 << 30);
    arena.add(all, at);
    assert_eq!(arena.take_at(part, at + (8 << 20)), Some(at + (8 << 20)));
    for taken in [0, 7, 8, 19, 29] {
        assert_eq!(arena.take_at(part, at + (taken << 20)), None);
    }
    // A request without a place comes in no other's way.
    let other = plan(8 << 20, false).unwrap();
    assert_eq!(arena.take(other), None);
    assert_eq!(arena.take(other.planned()), Some(at));
    assert_eq!(arena.take_at(part, at + (28 << 20)), Some(at + (28 << 20)));
    for taken in [8, 0, 28] {
        arena.give(at + (taken << 20));
    }
    assert_eq!(arena.release(), [(at, 40 << 20)]);
    assert_eq!(arena.take_at(part, at), None);
}

#[test]
fn sizes_that_no_memory_has_are_refused() {
    for direct in [false, true] {
        for size in [usize::MAX, usize::MAX - 511, isize::MAX as usize + 1] {
            assert_eq!(plan(size, direct), None, "{size}");
        }
        assert!(plan(0, direct).is_some());
    }
}
