//! The allocations: every address that a kernel may touch lies in one of them.
//!
//! All devices share one address space, the host's own: a device pointer is the host address of the bytes behind it.
//! Each allocation lies alone between pages that nothing may touch, is filled with `0xFF` (a NaN in every float
//! format), and keeps its addresses for a while after it was freed, so that a late access is reported as one.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use thiserror::Error;

mod mapping;
mod shadow;
mod transfer;

use crate::sync::lock;
use mapping::Mapping;
pub use shadow::Shadow;
pub use transfer::{copy, fill};

/// The number of freed allocations that keep their addresses.
const QUARANTINE: usize = 256;

/// The kind of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory of one device.
    Device,
    /// A variable of a module, in the memory of one device.
    Variable,
    /// Managed memory: reachable from the host and from every device.
    Managed,
    /// Page-locked host memory that the driver allocated.
    Pinned,
    /// Host memory of the program's own that it registered.
    Registered,
}

impl Kind {
    /// True if every device reaches it without peer access.
    pub fn everywhere(self) -> bool {
        matches!(self, Kind::Managed | Kind::Pinned | Kind::Registered)
    }

    /// True if it is host memory.
    pub fn host(self) -> bool {
        matches!(self, Kind::Pinned | Kind::Registered)
    }
}

/// One allocation, in the unified address space of all devices.
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
    /// Its kind.
    pub kind: Kind,
    /// In checker mode, one byte of state for each byte of the allocation: 0 means never written. Memory that the host
    /// writes without the driver has none.
    pub shadow: Option<Arc<Shadow>>,
}

impl Range {
    /// True if the address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.len
    }

    /// Marks `len` bytes from `address` on as written.
    pub fn mark(&self, address: u64, len: u64) {
        if let Some(shadow) = &self.shadow {
            shadow.mark(address - self.base, len);
        }
    }
}

/// The allocations at one moment, as one device sees them. Their pages stay as long as the snapshot, whatever is freed
/// meanwhile, and even after the registry itself is gone.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The allocations that the device may touch, sorted by `base`; they do not overlap.
    live: Arc<[Range]>,
    /// Allocations that were freed lately, the newest first, also after the snapshot: they name a use after free.
    freed: FreedList,
    /// Live memory of other devices to which there is no peer access.
    foreign: Arc<[Range]>,
    /// The pages of the live allocations.
    _pages: Arc<[Arc<Mapping>]>,
}

impl Snapshot {
    /// The live range that holds the address.
    pub fn find(&self, address: u64) -> Option<&Range> {
        let after = self.live.partition_point(|r| r.base <= address);
        self.live[..after].last().filter(|r| r.contains(address))
    }

    /// True if the address lies in an allocation that was freed lately.
    pub fn was_freed(&self, address: u64) -> bool {
        lock(&self.freed).iter().any(|gone| gone.range.contains(address))
    }

    /// A description of an address that lies in no live allocation, for a message: freed, another device's, close to the end
    /// of an allocation, or not device memory at all.
    pub fn describe(&self, address: u64) -> String {
        if let Some(gone) = lock(&self.freed).iter().find(|gone| gone.range.contains(address)) {
            let (at, r) = (address - gone.range.base, &gone.range);
            return format!("byte {at} of allocation #{} ({} bytes), which was freed", r.id, r.len);
        }
        if let Some(r) = self.foreign.iter().find(|r| r.contains(address)) {
            return format!("memory of device {}, to which peer access is not enabled", r.device);
        }
        let after = self.live.partition_point(|r| r.base <= address);
        let near = self.live[..after]
            .last()
            .map(|r| (address - (r.base + r.len), "past the end", r));
        let next = self.live.get(after).map(|r| (r.base - address, "before the start", r));
        match near.into_iter().chain(next).min_by_key(|(distance, ..)| *distance) {
            Some((n, side, r)) if n < 1 << 16 => format!("{n} bytes {side} of allocation #{} ({} bytes)", r.id, r.len),
            _ if address < 4096 => "a null pointer".into(),
            _ => "no device memory: a host pointer, or nothing".into(),
        }
    }
}

/// The reason why memory cannot be allocated, freed or registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// The device's memory is used up.
    #[error("device {device} has {free} of {total} bytes free, {requested} were asked for")]
    OutOfMemory {
        /// The device.
        device: u32,
        /// The bytes that were asked for.
        requested: u64,
        /// The bytes that are left.
        free: u64,
        /// The bytes of the device.
        total: u64,
    },
    /// The host refuses the address space.
    #[error("the host refuses {requested} bytes of address space")]
    Host {
        /// The bytes that were asked for.
        requested: u64,
    },
    /// No allocation begins there.
    #[error("no allocation begins at {address:#x}")]
    Unknown {
        /// The address.
        address: u64,
    },
    /// The range is registered already, in whole or in part.
    #[error("{address:#x} is page-locked or device memory already")]
    Overlap {
        /// The address.
        address: u64,
    },
}

/// An allocation that [`Memory::free`] has ended.
#[derive(Debug)]
pub struct Freed {
    /// The allocation.
    pub range: Range,
    /// The first byte beyond its end, counted from its start, that something wrote; negative before its start.
    pub damaged: Option<i64>,
}

/// The registry of allocations.
#[derive(Debug)]
pub struct Memory {
    inner: Mutex<Inner>,
    freed: FreedList,
    next_id: AtomicU64,
    /// The bytes of each device.
    capacity: u64,
    check: bool,
    poison: bool,
}

#[derive(Debug, Default)]
struct Inner {
    live: BTreeMap<u64, Entry>,
    used: HashMap<u32, u64>,
    /// Pairs (device, peer): kernels on `device` may touch the memory of `peer`.
    peers: HashSet<(u32, u32)>,
    /// The snapshots that were made for each device since the last change.
    views: HashMap<u32, Snapshot>,
    all: Option<Snapshot>,
}

#[derive(Debug)]
struct Entry {
    range: Range,
    /// None for host memory of the program's own.
    mapping: Option<Arc<Mapping>>,
}

/// Freed allocations, the newest first. Locked after the registry, where both are.
type FreedList = Arc<Mutex<VecDeque<Gone>>>;

/// A freed allocation, which keeps its addresses.
#[derive(Debug)]
struct Gone {
    range: Range,
    mapping: Arc<Mapping>,
    /// True if its pages were given back, or wait to be used again.
    retired: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(4 << 30, false)
    }
}

impl Memory {
    /// An empty registry of devices with `capacity` bytes each; with `check`, device memory has a shadow.
    pub fn new(capacity: u64, check: bool) -> Self {
        Self {
            inner: Mutex::default(),
            freed: FreedList::default(),
            next_id: AtomicU64::new(1),
            capacity,
            check,
            poison: true,
        }
    }

    /// Memory reads as zero where nothing was written, and takes pages of the host where something was: for programs whose
    /// kernels do not run.
    #[must_use]
    pub fn without_poison(self) -> Self {
        Self { poison: false, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Allocates `len` bytes, 512-byte aligned and filled with `0xFF`, or zero [without poison](Self::without_poison).
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`] if the device has not that much left, or the host refuses.
    pub fn allocate(&self, device: u32, len: u64, kind: Kind) -> Result<Range, MemoryError> {
        if !kind.host() {
            let mut inner = self.lock();
            let used = inner.used.entry(device).or_default();
            let free = self.capacity.saturating_sub(*used);
            if len > free {
                return Err(MemoryError::OutOfMemory {
                    device,
                    requested: len,
                    free,
                    total: self.capacity,
                });
            }
            *used += len;
        }
        // Pages are mapped and poisoned while other threads go on.
        // A late access of the host's to its own memory is a fault, so those pages are not used again.
        let reused = matches!(kind, Kind::Device | Kind::Variable);
        let Some(mapping) = Mapping::new(len, self.poison, reused) else {
            if !kind.host() {
                *self.lock().used.entry(device).or_default() -= len;
            }
            return Err(MemoryError::Host { requested: len });
        };
        let shadow = (self.check && kind == Kind::Device).then(|| Arc::new(Shadow::new(len)));
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let range = Range {
            base: mapping.base(),
            len,
            id,
            device,
            kind,
            shadow,
        };
        let mut inner = self.lock();
        inner.changed();
        inner.live.insert(
            range.base,
            Entry {
                range: range.clone(),
                mapping: Some(Arc::new(mapping)),
            },
        );
        Ok(range)
    }

    /// Adds host memory of the program's own.
    ///
    /// # Errors
    /// A [`MemoryError`] if a part of it is registered or allocated already.
    ///
    /// # Safety
    /// The `len` bytes from `base` on can be read and written until [`Memory::free`] takes them away, and then until
    /// every snapshot that was taken before is gone.
    pub unsafe fn register(&self, device: u32, base: u64, len: u64) -> Result<Range, MemoryError> {
        let mut inner = self.lock();
        let before = inner.live.range(..base.saturating_add(len)).next_back();
        if before.is_some_and(|(_, e)| e.range.base + e.range.len > base) {
            return Err(MemoryError::Overlap { address: base });
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let range = Range {
            base,
            len,
            id,
            device,
            kind: Kind::Registered,
            shadow: None,
        };
        inner.changed();
        inner.live.insert(
            base,
            Entry {
                range: range.clone(),
                mapping: None,
            },
        );
        Ok(range)
    }

    /// Frees the allocation that begins at `base`. Its pages stay until [`Memory::collect`], and while a snapshot holds
    /// them, so that work which runs meanwhile and uses them by mistake reads stale bytes and does not crash.
    ///
    /// # Errors
    /// [`MemoryError::Unknown`] if none begins there.
    pub fn free(&self, base: u64) -> Result<Freed, MemoryError> {
        let mut inner = self.lock();
        let entry = inner.live.remove(&base).ok_or(MemoryError::Unknown { address: base })?;
        inner.changed();
        let Entry { range, mapping } = entry;
        if !range.kind.host() {
            *inner.used.entry(range.device).or_default() -= range.len;
        }
        let Some(mapping) = mapping else {
            return Ok(Freed { range, damaged: None });
        };
        let gone = Gone {
            range: Range {
                shadow: None,
                ..range.clone()
            },
            mapping: Arc::clone(&mapping),
            retired: false,
        };
        lock(&self.freed).push_front(gone);
        drop(inner);
        let damaged = mapping.damaged();
        Ok(Freed { range, damaged })
    }

    /// Gives the pages of freed allocations back, but for those that a snapshot holds.
    pub fn collect(&self) {
        let mut freed = lock(&self.freed);
        for gone in freed.iter_mut().filter(|gone| !gone.retired) {
            if let Some(mapping) = Arc::get_mut(&mut gone.mapping) {
                mapping.retire();
                gone.retired = true;
            }
        }
        freed.truncate(QUARANTINE);
    }

    /// The bytes of the pages of freed allocations that [`Memory::collect`] has not given back yet.
    pub fn uncollected(&self) -> u64 {
        let freed = lock(&self.freed);
        let waiting = freed.iter().take_while(|gone| !gone.retired);
        waiting.map(|gone| gone.mapping.size()).sum()
    }

    /// True if the address lies in an allocation that was freed lately.
    pub fn was_freed(&self, address: u64) -> bool {
        lock(&self.freed).iter().any(|gone| gone.range.contains(address))
    }

    /// The live allocation that holds the address, whichever device owns it.
    pub fn find(&self, address: u64) -> Option<Range> {
        let inner = self.lock();
        let (_, entry) = inner.live.range(..=address).next_back()?;
        entry.range.contains(address).then(|| entry.range.clone())
    }

    /// Every live allocation.
    pub fn snapshot(&self) -> Snapshot {
        let mut inner = self.lock();
        if inner.all.is_none() {
            inner.all = Some(inner.build(&self.freed, |_| true));
        }
        inner.all.clone().unwrap_or_default()
    }

    /// The live allocations as kernels on `device` see them.
    pub fn view(&self, device: u32) -> Snapshot {
        let mut inner = self.lock();
        if let Some(view) = inner.views.get(&device) {
            return view.clone();
        }
        let view = inner.build(&self.freed, |r| {
            r.device == device || r.kind.everywhere() || inner.peers.contains(&(device, r.device))
        });
        inner.views.insert(device, view.clone());
        view
    }

    /// Lets kernels on `device` touch the memory of `peer`, or no longer. Returns true if that changed anything.
    pub fn set_peer(&self, device: u32, peer: u32, enabled: bool) -> bool {
        let mut inner = self.lock();
        inner.changed();
        if enabled {
            inner.peers.insert((device, peer))
        } else {
            inner.peers.remove(&(device, peer))
        }
    }

    /// True if kernels on `device` may touch the memory of `peer`.
    pub fn is_peer(&self, device: u32, peer: u32) -> bool {
        self.lock().peers.contains(&(device, peer))
    }

    /// Free and total bytes of a device.
    pub fn info(&self, device: u32) -> (u64, u64) {
        let used = self.lock().used.get(&device).copied().unwrap_or(0);
        (self.capacity.saturating_sub(used), self.capacity)
    }

    /// The live allocations of a device, without its modules' variables and without host memory.
    pub fn of_device(&self, device: u32) -> Vec<Range> {
        let inner = self.lock();
        let ours = |r: &Range| r.device == device && matches!(r.kind, Kind::Device | Kind::Managed);
        inner
            .live
            .values()
            .map(|e| &e.range)
            .filter(|r| ours(r))
            .cloned()
            .collect()
    }
}

impl Inner {
    fn changed(&mut self) {
        self.views.clear();
        self.all = None;
    }

    fn build(&self, freed: &FreedList, reachable: impl Fn(&Range) -> bool) -> Snapshot {
        let (live, foreign): (Vec<_>, Vec<_>) = self.live.values().map(|e| e.range.clone()).partition(reachable);
        let pages = self.live.values().filter_map(|e| e.mapping.clone()).collect();
        Snapshot {
            live: live.into(),
            freed: Arc::clone(freed),
            foreign: foreign.into(),
            _pages: pages,
        }
    }
}

#[cfg(test)]
mod tests;
