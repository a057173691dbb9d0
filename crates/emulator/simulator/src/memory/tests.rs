use std::sync::atomic::Ordering;

use super::*;

fn bytes(range: &Range) -> &'static mut [u8] {
    // SAFETY: the range is live and only this test accesses it.
    unsafe { std::slice::from_raw_parts_mut(range.base as *mut u8, range.len as usize) }
}

#[test]
fn allocations_are_aligned_poisoned_and_apart() {
    let memory = Memory::new(1 << 30, false);
    for len in [
        1,
        31,
        33,
        511,
        512,
        3583,
        3584,
        3585,
        4096,
        1 << 20,
        (1 << 20) + 7,
        (17 << 20) + 1,
    ] {
        let range = memory.allocate(0, len, Kind::Device).unwrap();
        assert_eq!(range.base % 512, 0);
        assert!(bytes(&range).iter().all(|b| *b == 0xFF), "{len}");
        let freed = memory.free(range.base).unwrap();
        assert_eq!(freed.damaged, None, "{len}");
    }
}

#[test]
fn what_is_not_touched_costs_nothing() {
    let memory = Memory::new(1 << 40, false);
    let range = memory.allocate(0, 64 << 30, Kind::Device).unwrap();
    let last = range.base + range.len - 1;
    // SAFETY: the byte lies in the range.
    assert_eq!(unsafe { *(last as *const u8) }, 0xFF);
    memory.free(range.base).unwrap();
}

#[test]
fn canaries_tell_a_write_outside() {
    let memory = Memory::new(1 << 20, false);
    for at in [-1i64, -512, 5, 100] {
        let range = memory.allocate(0, 5, Kind::Device).unwrap();
        // SAFETY: the byte lies in the pages of the allocation, outside what was asked for.
        unsafe { *((range.base as i64 + at) as *mut u8) = 0 };
        assert_eq!(memory.free(range.base).unwrap().damaged, Some(at));
    }
}

#[test]
fn capacity_is_accounted_per_device() {
    let memory = Memory::new(1000, false);
    let a = memory.allocate(0, 600, Kind::Device).unwrap();
    let refused = memory.allocate(0, 401, Kind::Device).unwrap_err();
    assert_eq!(
        refused,
        MemoryError::OutOfMemory {
            device: 0,
            requested: 401,
            free: 400,
            total: 1000
        }
    );
    memory.allocate(1, 1000, Kind::Device).unwrap();
    memory.allocate(0, 5000, Kind::Pinned).unwrap();
    memory.free(a.base).unwrap();
    assert_eq!(memory.info(0), (1000, 1000));
    assert_eq!(
        memory.free(a.base).unwrap_err(),
        MemoryError::Unknown { address: a.base }
    );
}

#[test]
fn snapshots_are_sorted_cached_and_remember_what_was_freed() {
    let memory = Memory::new(1 << 30, false);
    let ranges: Vec<_> = (1..40)
        .map(|n| memory.allocate(0, n * 97, Kind::Device).unwrap())
        .collect();
    let snapshot = memory.snapshot();
    assert!(snapshot.live.is_sorted_by_key(|r| r.base));
    assert!(Arc::ptr_eq(&snapshot.live, &memory.snapshot().live));
    for r in &ranges {
        assert_eq!(snapshot.find(r.base + r.len - 1).unwrap().id, r.id);
        assert!(snapshot.find(r.base + r.len).is_none());
        assert!(snapshot.find(r.base - 1).is_none());
    }
    let gone = &ranges[7];
    memory.free(gone.base).unwrap();
    let later = memory.snapshot();
    assert!(later.find(gone.base).is_none());
    assert!(later.describe(gone.base + 3).contains("freed"));
    assert!(memory.was_freed(gone.base) && !memory.was_freed(ranges[0].base));
    assert!(
        later
            .describe(ranges[0].base + ranges[0].len + 4)
            .contains("4 bytes past the end")
    );
    assert!(later.describe(ranges[0].base - 8).contains("8 bytes before the start"));
    assert!(later.describe(0).contains("null"));
    let host = 0u8;
    assert!(later.describe(&raw const host as u64).contains("host pointer"));
}

#[test]
fn the_quarantine_is_bounded() {
    let memory = Memory::new(1 << 30, false);
    for _ in 0..3 * QUARANTINE {
        let range = memory.allocate(0, 100, Kind::Device).unwrap();
        memory.free(range.base).unwrap();
        memory.collect();
    }
    assert_eq!(lock(&memory.freed).len(), QUARANTINE);
}

#[test]
fn another_devices_memory_needs_peer_access() {
    let memory = Memory::new(1 << 30, false);
    let here = memory.allocate(0, 64, Kind::Device).unwrap();
    let there = memory.allocate(1, 64, Kind::Device).unwrap();
    let pinned = memory.allocate(1, 64, Kind::Pinned).unwrap();
    let view = memory.view(0);
    assert!(view.find(here.base).is_some() && view.find(pinned.base).is_some());
    assert!(view.find(there.base).is_none());
    assert!(view.describe(there.base).contains("peer"));
    assert!(memory.set_peer(0, 1, true) && !memory.set_peer(0, 1, true));
    assert!(memory.view(0).find(there.base).is_some());
    assert!(memory.view(1).find(here.base).is_none());
    assert!(memory.set_peer(0, 1, false));
    assert!(memory.view(0).find(there.base).is_none());
}

#[test]
fn registered_memory_does_not_overlap() {
    let memory = Memory::default();
    let mut host = [0u8; 256];
    let base = host.as_mut_ptr() as u64;
    // SAFETY: the array outlives the registry, and nothing accesses it.
    let register = |at: u64, len: u64| unsafe { memory.register(0, base + at, len) };
    register(64, 64).unwrap();
    for (at, len) in [(0, 65), (64, 1), (100, 10), (127, 100), (0, 256)] {
        assert!(register(at, len).is_err(), "{at} {len}");
    }
    register(0, 64).unwrap();
    register(128, 128).unwrap();
    assert_eq!(memory.free(base + 64).unwrap().damaged, None);
    assert!(lock(&memory.freed).is_empty());
}

#[test]
fn shadows_follow_copies_and_fills() {
    let memory = Memory::new(1 << 20, true);
    let a = memory.allocate(0, 64, Kind::Device).unwrap();
    let b = memory.allocate(0, 64, Kind::Device).unwrap();
    let state = |r: &Range, at: usize| r.shadow.as_ref().unwrap()[at].load(Ordering::Relaxed);
    let host = [7u8; 16];
    // SAFETY: every span lies in a live range or in `host`.
    unsafe {
        copy(&memory, a.base + 8, host.as_ptr() as u64, 16);
        fill(&memory, a.base + 32, 0x0102_0304, 4, 2);
        copy(&memory, b.base, a.base, 64);
    }
    for at in 0..64 {
        let written = (8..24).contains(&at) || (32..40).contains(&at);
        assert_eq!(
            (state(&a, at), state(&b, at)),
            (u8::from(written), u8::from(written)),
            "{at}"
        );
    }
    assert_eq!(bytes(&b)[8..24], host);
    assert_eq!(bytes(&b)[32..40], [4, 3, 2, 1, 4, 3, 2, 1]);
    // Copies inside one allocation, over themselves, to both sides.
    // SAFETY: the spans lie in a live range.
    unsafe {
        copy(&memory, b.base + 20, b.base + 8, 32);
        copy(&memory, b.base, b.base + 20, 16);
    }
    for at in 0..64 {
        let written = (0..16).contains(&at) || (16..36).contains(&at) || (44..52).contains(&at);
        assert_eq!(state(&b, at), u8::from(written), "{at}");
    }
    assert!(memory.allocate(0, 8, Kind::Pinned).unwrap().shadow.is_none());
}

#[test]
fn small_pages_are_used_again_as_if_new() {
    let memory = Memory::new(1 << 30, false);
    let mut bases = std::collections::HashSet::new();
    for turn in 0..4 * QUARANTINE {
        // Lengths of one page, each with its own end.
        let len = 1 + turn as u64 * 37 % 3500;
        let range = memory.allocate(0, len, Kind::Device).unwrap();
        assert!(bytes(&range).iter().all(|b| *b == 0xFF), "{len}");
        bytes(&range).fill(7);
        bases.insert(range.base);
        assert_eq!(memory.free(range.base).unwrap().damaged, None, "{len}");
        memory.collect();
    }
    assert!(bases.len() < 3 * QUARANTINE, "{} mappings", bases.len());
}

#[test]
fn pages_stay_while_a_snapshot_holds_them() {
    let memory = Memory::new(1 << 20, false);
    let (kept, gone) = (
        memory.allocate(0, 64, Kind::Device).unwrap(),
        memory.allocate(0, 64, Kind::Device).unwrap(),
    );
    let retired = |base: u64| {
        let freed = lock(&memory.freed);
        freed.iter().find(|g| g.range.base == base).is_none_or(|g| g.retired)
    };
    memory.free(gone.base).unwrap();
    let snapshot = memory.view(0);
    memory.free(kept.base).unwrap();
    memory.collect();
    assert!(retired(gone.base) && !retired(kept.base));
    assert!(bytes(&kept).iter().all(|b| *b == 0xFF));
    drop(snapshot);
    memory.collect();
    assert!(retired(kept.base));
}
