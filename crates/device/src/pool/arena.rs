//! The division of segments into parts, free and taken. The arena allocates nothing itself and knows no driver.

use std::collections::{BTreeMap, BTreeSet};

/// Every size is rounded up to a multiple of this, and every part begins at one (from its segment's start).
pub(super) const ALIGN: usize = 512;
/// Requests up to this size share segments among themselves.
const SMALL: usize = 1 << 20;
/// Bytes of a segment for small requests.
const SMALL_SEGMENT: usize = 2 << 20;
/// Requests from this size on have segments of their own size.
pub(super) const LARGE: usize = 10 << 20;
/// Bytes of a segment for requests between `SMALL` and `LARGE`.
const MIDDLE_SEGMENT: usize = 20 << 20;
/// Segments for requests from `LARGE` on have a multiple of this many bytes.
const GRAIN: usize = 2 << 20;

/// The rounded size of a request, and the segment that it would need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The bytes of the part.
    pub(super) bytes: usize,
    /// The bytes of a segment to make for the part.
    pub(super) segment: usize,
    class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Small,
    Large,
    /// Large requests whose places were chosen together.
    Planned,
    /// A segment for each request, and of exactly its size.
    Own,
}

impl Plan {
    /// True for a request that may lie in a segment of another one's size.
    pub(super) fn is_large(&self) -> bool {
        self.class == Class::Large
    }

    /// The plan for the same request in the segment of [`plan_all`].
    pub(super) fn planned(self) -> Self {
        let class = Class::Planned;
        Plan { class, ..self }
    }
}

/// The plan for all large requests in one segment of this many bytes, in which each has a place and others lie where all else is full.
pub(super) fn plan_all(bytes: usize) -> Option<Plan> {
    let segment = bytes.checked_next_multiple_of(GRAIN)?;
    let class = Class::Planned;
    (bytes >= LARGE && segment <= isize::MAX as usize).then_some(Plan { bytes, segment, class })
}

/// The plan for a request of this many bytes; `None` if no memory has that many. `direct` gives each request its own segment.
pub(super) fn plan(request: usize, direct: bool) -> Option<Plan> {
    let bytes = request.max(1).checked_next_multiple_of(ALIGN)?;
    let (segment, class) = match bytes {
        _ if direct => (request.max(1), Class::Own),
        ..=SMALL => (SMALL_SEGMENT, Class::Small),
        b if b < LARGE => (MIDDLE_SEGMENT, Class::Large),
        b => (b.checked_next_multiple_of(GRAIN)?, Class::Large),
    };
    let bytes = if direct { segment } else { bytes };
    (bytes <= isize::MAX as usize).then_some(Plan { bytes, segment, class })
}

#[derive(Clone, Copy, Debug)]
struct Part {
    bytes: usize,
    class: Class,
    /// The segment's first address.
    segment: u64,
    free: bool,
}

/// Segments from the driver, cut into parts that lie side by side.
#[derive(Debug, Default)]
pub(super) struct Arena {
    /// Every part, by its first address.
    parts: BTreeMap<u64, Part>,
    /// The free parts, in the order in which they are chosen: the smallest that fits, then the lowest.
    free: BTreeSet<(Class, usize, u64)>,
    /// The bytes of every segment, by its first address.
    segments: BTreeMap<u64, usize>,
}

impl Arena {
    /// A part for the request, if a free one fits. The choice depends on the parts alone, so equal sequences of requests
    /// and returns on equal segments give equal addresses.
    pub(super) fn take(&mut self, plan: Plan) -> Option<u64> {
        let from = (plan.class, plan.bytes, 0);
        let fits = |(class, bytes, _): &&(Class, usize, u64)| {
            *class == plan.class && (*class != Class::Own || *bytes == plan.bytes)
        };
        let &(class, bytes, at) = self.free.range(from..).next().filter(fits)?;
        self.free.remove(&(class, bytes, at));
        let rest = bytes - plan.bytes;
        let keep = match class {
            Class::Small => rest >= ALIGN,
            // A rest that only a small request could use is not worth a part of its own among large ones.
            Class::Large | Class::Planned => rest > SMALL,
            Class::Own => false,
        };
        let part = self.parts.get_mut(&at)?;
        part.free = false;
        if keep {
            part.bytes = plan.bytes;
            let right = Part {
                bytes: rest,
                class,
                segment: part.segment,
                free: true,
            };
            let start = at + plan.bytes as u64;
            self.parts.insert(start, right);
            self.free.insert((class, rest, start));
        }
        Some(at)
    }

    /// The part for a request at this address, if it is free there.
    pub(super) fn take_at(&mut self, plan: Plan, at: u64) -> Option<u64> {
        let (before, part) = self
            .parts
            .range(..=at)
            .next_back()
            .map(|(&before, &part)| (before, part))?;
        let (left, end) = ((at - before) as usize, at + plan.bytes as u64);
        if !part.free || part.class != plan.class || left + plan.bytes > part.bytes {
            return None;
        }
        self.free.remove(&(part.class, part.bytes, before));
        self.parts.remove(&before);
        let right = part.bytes - left - plan.bytes;
        for (start, bytes, free) in [(before, left, true), (at, plan.bytes, false), (end, right, true)] {
            if bytes > 0 {
                self.parts.insert(start, Part { bytes, free, ..part });
                if free {
                    self.free.insert((part.class, bytes, start));
                }
            }
        }
        Some(at)
    }

    /// The bytes of the part at this address.
    pub(super) fn size(&self, at: u64) -> usize {
        self.parts.get(&at).map_or(0, |p| p.bytes)
    }

    /// Adds a segment of `plan.segment` bytes at address `at`.
    pub(super) fn add(&mut self, plan: Plan, at: u64) {
        let part = Part {
            bytes: plan.segment,
            class: plan.class,
            segment: at,
            free: true,
        };
        self.parts.insert(at, part);
        self.free.insert((plan.class, plan.segment, at));
        self.segments.insert(at, plan.segment);
    }

    /// Frees a part and joins it with its free neighbours.
    pub(super) fn give(&mut self, at: u64) {
        let Some(mut part) = self.parts.remove(&at) else {
            debug_assert!(false, "no part at {at:#x}");
            return;
        };
        debug_assert!(!part.free, "{at:#x} was given back twice");
        let mut start = at;
        let after = at + part.bytes as u64;
        if let Some(right) = self
            .parts
            .get(&after)
            .copied()
            .filter(|p| p.free && p.segment == part.segment)
        {
            self.parts.remove(&after);
            self.free.remove(&(right.class, right.bytes, after));
            part.bytes += right.bytes;
        }
        let left = self.parts.range(..at).next_back().map(|(a, p)| (*a, *p));
        if let Some((before, left)) = left.filter(|(_, p)| p.free && p.segment == part.segment) {
            self.parts.remove(&before);
            self.free.remove(&(left.class, left.bytes, before));
            part.bytes += left.bytes;
            start = before;
        }
        part.free = true;
        self.free.insert((part.class, part.bytes, start));
        self.parts.insert(start, part);
    }

    /// Removes the segments that are wholly free, and returns their addresses and sizes.
    pub(super) fn release(&mut self) -> Vec<(u64, usize)> {
        let whole: Vec<(u64, usize)> = self
            .segments
            .iter()
            .map(|(&at, &bytes)| (at, bytes))
            .filter(|(at, bytes)| self.parts.get(at).is_some_and(|p| p.free && p.bytes == *bytes))
            .collect();
        for (at, bytes) in &whole {
            self.segments.remove(at);
            if let Some(part) = self.parts.remove(at) {
                self.free.remove(&(part.class, *bytes, *at));
            }
        }
        whole
    }

    /// Removes wholly free segments of large requests, the smallest first, until they have this many bytes, and returns their addresses
    /// and sizes.
    pub(super) fn release_large(&mut self, bytes: usize) -> Vec<(u64, usize)> {
        let mut whole: Vec<(usize, u64)> = self
            .free
            .iter()
            .filter(|(class, bytes, at)| *class == Class::Large && self.segments.get(at) == Some(bytes))
            .map(|&(_, bytes, at)| (bytes, at))
            .collect();
        let mut found = 0;
        whole.retain(|(more, _)| {
            let wanted = found < bytes;
            found += more;
            wanted
        });
        for &(bytes, at) in &whole {
            self.segments.remove(&at);
            self.parts.remove(&at);
            self.free.remove(&(Class::Large, bytes, at));
        }
        whole.into_iter().map(|(bytes, at)| (at, bytes)).collect()
    }

    /// Every segment's address and size, for giving them back to the driver.
    pub(super) fn segments(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.segments.iter().map(|(&at, &bytes)| (at, bytes))
    }
}
