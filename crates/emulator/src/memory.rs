//! What is allocated: every address that a kernel may touch lies in one of these ranges.

use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Mutex};

/// One live allocation, in the unified address space of all devices.
#[derive(Clone, Debug)]
pub struct Range {
    /// The first address: a host pointer, valid for reads and writes of `len` bytes while the allocation lives.
    pub base: u64,
    /// The size in bytes.
    pub len: u64,
    /// A number that no other allocation of this process has.
    pub id: u64,
    /// The ordinal of the device that owns it.
    pub device: u32,
    /// In checker mode, one byte of state for each byte of the allocation: 0 means never written.
    pub shadow: Option<Arc<[AtomicU8]>>,
}

/// The live allocations at one moment, sorted by address.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Sorted by `base`; they do not overlap.
    pub live: Arc<[Range]>,
    /// Allocations that were freed lately, the newest first: they name a use after free.
    pub freed: Arc<[Range]>,
}

/// The registry of allocations.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<Snapshot>,
}

impl Memory {
    /// The live allocations now; they stay mapped until the launches that use the snapshot are done.
    pub fn snapshot(&self) -> Snapshot {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    /// Adds a range. The caller keeps its memory mapped until [`Memory::remove`].
    pub fn insert(&self, range: Range) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut live = state.live.to_vec();
        let at = live.partition_point(|r| r.base < range.base);
        live.insert(at, range);
        state.live = live.into();
    }

    /// Takes the range that starts at `base` out of the live ones.
    pub fn remove(&self, base: u64) -> Option<Range> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut live = state.live.to_vec();
        let at = live.iter().position(|r| r.base == base)?;
        let range = live.remove(at);
        state.live = live.into();
        let mut freed = state.freed.to_vec();
        freed.insert(0, range.clone());
        freed.truncate(64);
        state.freed = freed.into();
        Some(range)
    }
}
