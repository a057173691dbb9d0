//! The findings of one launch: each mistake is reported once, however many threads make it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::Fault;

/// A mistake of the program, by the pcs of the instructions that make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mistake {
    /// A race of two instructions, of which the one that comes first in the code stands first.
    Race(u32, u32),
    Uninitialised(u32),
}

impl Mistake {
    /// The race of two instructions, whichever of them ran first.
    pub(super) fn race(one: u32, other: u32) -> Mistake {
        Mistake::Race(one.min(other), one.max(other))
    }
}

/// The most mistakes that are reported of one launch.
const MOST: usize = 64;

/// The findings in the blocks of a launch.
#[derive(Debug, Default)]
pub(super) struct Findings(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    /// For each mistake: the block that is named, the index among the findings of that block, and the finding.
    first: HashMap<Mistake, (u64, usize, Fault)>,
    /// True if there were more than `MOST`.
    more: bool,
}

impl Findings {
    /// Keeps the finding of a block unless one of the same mistake in a lower block is known, so that the report does
    /// not depend on which block ran first. `place` orders the findings of one block.
    pub(super) fn add(&self, mistake: Mistake, block: u64, place: usize, fault: Fault) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if found.first.len() == MOST && !found.first.contains_key(&mistake) {
            found.more = true;
            return;
        }
        let known = found
            .first
            .entry(mistake)
            .or_insert_with(|| (block, place, fault.clone()));
        if block < known.0 {
            *known = (block, place, fault);
        }
    }

    /// The findings in blocks up to this one, in the order of the blocks.
    pub(super) fn take(&self, last: u64) -> Vec<Fault> {
        let found = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut list: Vec<_> = found.first.into_values().filter(|(block, ..)| *block <= last).collect();
        list.sort_by_key(|(block, place, _)| (*block, *place));
        let mut faults: Vec<Fault> = list.into_iter().map(|(.., fault)| fault).collect();
        if found.more
            && let Some(last) = faults.last_mut()
        {
            last.message += "; more findings of this launch are not listed";
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::{Findings, MOST, Mistake};
    use crate::{Fault, FaultKind};

    fn fault(message: &str) -> Fault {
        Fault {
            kind: FaultKind::Race,
            kernel: "k".into(),
            file: String::new(),
            line: 0,
            block: [0; 3],
            thread: [0; 3],
            message: message.into(),
        }
    }

    fn told(findings: &Findings, last: u64) -> Vec<String> {
        findings.take(last).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn a_mistake_is_told_once_for_its_lowest_block() {
        let findings = Findings::default();
        findings.add(Mistake::race(1, 2), 7, 0, fault("of 7"));
        findings.add(Mistake::race(1, 2), 3, 4, fault("of 3"));
        findings.add(Mistake::race(2, 1), 5, 0, fault("of 5"));
        findings.add(Mistake::Uninitialised(1), 3, 1, fault("another, earlier"));
        findings.add(Mistake::race(3, 1), 9, 0, fault("beyond"));
        assert_eq!(told(&findings, 8), ["another, earlier", "of 3"]);
        assert_eq!(told(&findings, u64::MAX), [""; 0], "they are taken once");
    }

    #[test]
    fn more_than_are_told_is_said() {
        let findings = Findings::default();
        for n in 0..MOST as u32 + 5 {
            findings.add(Mistake::Uninitialised(n), 0, n as usize, fault("one"));
        }
        let told = told(&findings, u64::MAX);
        assert_eq!(told.len(), MOST);
        assert!(told[MOST - 1].ends_with("more findings of this launch are not listed"));
    }
}
