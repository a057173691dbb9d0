//! Counts of a pool: bytes in use and bytes that the driver gave.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The memory and the history of a pool, in bytes and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes in blocks, each rounded up.
    pub live: usize,
    /// Bytes that the driver gave and that are in no block.
    pub cached: usize,
    /// The most bytes that were live at once.
    pub peak: usize,
    /// Allocations of the driver.
    pub allocations: usize,
    /// Allocations that were given back to the driver.
    pub releases: usize,
    /// Requests for a block.
    pub requests: usize,
}

/// The counts of a pool and its private pools together.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<(PoolStats, usize)>);

impl Tally {
    pub(super) fn read(&self) -> PoolStats {
        let (stats, reserved) = *self.lock();
        PoolStats {
            cached: reserved - stats.live,
            ..stats
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, (PoolStats, usize)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn taken(&self, bytes: usize) {
        let (stats, _) = &mut *self.lock();
        stats.live += bytes;
        stats.peak = stats.peak.max(stats.live);
    }

    pub(super) fn given(&self, bytes: usize) {
        self.lock().0.live -= bytes;
    }

    pub(super) fn allocated(&self, bytes: usize) {
        let (stats, reserved) = &mut *self.lock();
        stats.allocations += 1;
        *reserved += bytes;
    }

    pub(super) fn released(&self, bytes: usize) {
        let (stats, reserved) = &mut *self.lock();
        stats.releases += 1;
        *reserved -= bytes;
    }
}
