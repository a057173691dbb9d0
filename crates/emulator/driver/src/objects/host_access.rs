//! Page-locked memory that the host must leave alone.

use crate::page_guard::{self, Pages};
use crate::types::{CUcontext, CUstream};

/// The pages that are guarded, and the copies that they are guarded for.
#[derive(Debug, Default)]
pub(crate) struct HostAccess {
    pub(crate) pending: Vec<Pending>,
    /// The number of pieces of work that run.
    pub(crate) running: u32,
}

/// One side of a copy in page-locked memory that the host has not waited for.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) stream: CUstream,
    pub(crate) context: CUcontext,
    pub(crate) seq: u64,
    pub(crate) pages: Pages,
    /// The bytes that are copied.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The allocation, in words.
    pub(crate) name: String,
}

impl HostAccess {
    fn close(&self) {
        let pages: Vec<_> = self.pending.iter().map(|p| (p.seq, p.pages)).collect();
        // SAFETY: `freed` removes the pages of an allocation before it is freed, and `begin` opens all of them before
        // work runs.
        unsafe { page_guard::close(&pages) };
    }

    fn open(&self) {
        page_guard::open();
        page_guard::forget();
    }

    /// Work begins to run.
    pub(crate) fn begin(&mut self) {
        if self.running == 0 && !self.pending.is_empty() {
            self.open();
        }
        self.running += 1;
    }

    /// Work has run.
    pub(crate) fn end(&mut self) {
        self.running -= 1;
        if self.running == 0 && !self.pending.is_empty() {
            self.close();
        }
    }

    /// Changes the list of pending copies.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Vec<Pending>)) {
        let closed = self.running == 0;
        if closed && !self.pending.is_empty() {
            self.open();
        }
        change(&mut self.pending);
        if closed && !self.pending.is_empty() {
            self.close();
        }
    }

    /// The pages from `base` on are about to be freed.
    pub(crate) fn freed(&mut self, base: u64, len: u64) {
        if self.pending.iter().any(|p| (base..base + len).contains(&p.start)) {
            self.change(|pending| pending.retain(|p| !(base..base + len).contains(&p.start)));
        }
    }
}
