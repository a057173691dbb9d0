//! The pages behind one allocation.

use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};

use crate::sync::lock;

const PAGE: u64 = 4096;
/// Bytes before an allocation in its first page. A pointer is 512-byte aligned, as a real driver's, and not more.
const FRONT: u64 = 512;
const POISON: u8 = 0xFF;
const CANARY: u8 = 0xA5;
/// Above this size, poison comes from a file whose pages are copied when they are written.
const LAZY: u64 = 1 << 20;
/// The size of that file.
const TILE: u64 = 8 << 20;
/// The largest mapping that is used again, and the most of one size that are kept for that. Mapping pages, touching them first and
/// unmapping them takes longer than most kernels of a test.
const SMALL: u64 = 1 << 16;
const MOST_SPARE: usize = 64;

/// The first guard pages of mappings that can be used again, by their sizes.
static SPARE: Mutex<BTreeMap<u64, Vec<u64>>> = Mutex::new(BTreeMap::new());

/// Pages between two guard pages.
#[derive(Debug)]
pub(super) struct Mapping {
    /// The first guard page.
    start: u64,
    /// The size in bytes, with both guard pages.
    size: u64,
    /// The bytes that the program asked for.
    len: u64,
    /// True if its pages stay as they are when it is given up, for another of this size.
    reused: bool,
}

impl Mapping {
    /// Maps room for `len` bytes, poisoned or zero, with canaries on both sides; None when the host refuses. Small ones are used again
    /// later if `reused` says so: then an access after the end finds the old pages, and is no fault.
    pub(super) fn new(len: u64, poison: bool, reused: bool) -> Option<Self> {
        let body = len.checked_add(FRONT)?.checked_next_multiple_of(PAGE)?;
        let size = body.checked_add(2 * PAGE)?;
        let reused = reused && size <= SMALL;
        if let Some(start) = reused.then(|| lock(&SPARE).get_mut(&size)?.pop()).flatten() {
            let mapping = Self {
                start,
                size,
                len,
                reused,
            };
            // SAFETY: the pages between the guards were the last owner's, which is gone, and are this one's own now.
            unsafe { std::ptr::write_bytes(mapping.base() as *mut u8, if poison { POISON } else { 0 }, len as usize) };
            mapping.write_canaries();
            return Some(mapping);
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(null_mut(), size as usize, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let mut mapping = Self {
            start: start as u64,
            size,
            len,
            reused: false,
        };
        let first = mapping.start + PAGE;
        let poisoned = poison && len > LAZY && tile().is_some_and(|file| map_tiles(file, first, body));
        if !poisoned {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the pages between the guards are this mapping's own.
            let refused = unsafe { libc::mprotect(first as *mut _, body as usize, access) };
            if refused != 0 {
                return None;
            }
        }
        if poison && !poisoned {
            // SAFETY: the pages were made readable and writable just now, and nothing else knows of them.
            unsafe { std::ptr::write_bytes(mapping.base() as *mut u8, POISON, len as usize) };
        }
        mapping.write_canaries();
        mapping.reused = reused;
        Some(mapping)
    }

    /// Writes the canaries of a mapping that nothing else knows of yet.
    fn write_canaries(&self) {
        let (first, end) = (self.start + PAGE, self.start + self.size - PAGE);
        let after = self.base() + self.len;
        // SAFETY: both spans lie between the guard pages, which can be written.
        unsafe {
            std::ptr::write_bytes(first as *mut u8, CANARY, FRONT as usize);
            std::ptr::write_bytes(after as *mut u8, CANARY, (end - after) as usize);
        }
    }

    /// The bytes of its pages, with those that guard it.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The allocation's first address.
    pub(super) fn base(&self) -> u64 {
        self.start + PAGE + FRONT
    }

    /// The place of an overwritten canary, counted from the base.
    pub(super) fn damaged(&self) -> Option<i64> {
        let (first, end) = (self.start + PAGE, self.start + self.size - PAGE);
        let after = self.base() + self.len;
        // SAFETY: both spans lie between the guard pages, which are mapped until `retire`, which comes later. Nothing writes there: kernels
        // are kept from it, and a program that does with its own code has finished, or races this and may be missed.
        let (front, back) = unsafe {
            (
                std::slice::from_raw_parts(first as *const u8, FRONT as usize),
                std::slice::from_raw_parts(after as *const u8, (end - after) as usize),
            )
        };
        // Compared at once first: looking byte by byte for what is hardly ever there takes as long as a small kernel.
        let whole = |span: &[u8]| span == &[CANARY; PAGE as usize][..span.len()];
        if whole(front) && whole(back) {
            return None;
        }
        let before = front
            .iter()
            .rposition(|b| *b != CANARY)
            .map(|at| at as i64 - FRONT as i64);
        before.or_else(|| {
            back.iter()
                .position(|b| *b != CANARY)
                .map(|at| (self.len + at as u64) as i64)
        })
    }

    /// Gives the pages back, but for those that are used again, and keeps the addresses.
    pub(super) fn retire(&mut self) {
        if self.reused {
            return;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the mapping is this one's own, and no snapshot holds it: it is borrowed exclusively.
        unsafe { libc::mmap(self.start as *mut _, self.size as usize, libc::PROT_NONE, flags, -1, 0) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.reused {
            let mut spare = lock(&SPARE);
            let same = spare.entry(self.size).or_default();
            if same.len() < MOST_SPARE {
                same.push(self.start);
                return;
            }
        }
        // SAFETY: the mapping is this one's own, and dropping it ends the last knowledge of its addresses.
        unsafe { libc::munmap(self.start as *mut _, self.size as usize) };
    }
}

/// A file of poison in memory.
fn tile() -> Option<i32> {
    static FILE: OnceLock<Option<i32>> = OnceLock::new();
    *FILE.get_or_init(|| {
        // SAFETY: the name is a C string; the descriptor stays open for the life of the process.
        let file = unsafe { libc::memfd_create(c"kiln-poison".as_ptr(), libc::MFD_CLOEXEC) };
        let poison = vec![POISON; 1 << 16];
        for _ in 0..TILE / poison.len() as u64 {
            // SAFETY: the buffer is as long as is said.
            let wrote = unsafe { libc::write(file, poison.as_ptr().cast(), poison.len()) };
            if wrote != poison.len() as isize {
                return None;
            }
        }
        Some(file)
    })
}

/// Covers `[first, first + body)` with private copies of the file of poison.
fn map_tiles(file: i32, first: u64, body: u64) -> bool {
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED,
    );
    (0..body).step_by(TILE as usize).all(|at| {
        let size = TILE.min(body - at) as usize;
        // SAFETY: the caller owns these pages, which nothing else knows yet.
        let there = unsafe { libc::mmap((first + at) as *mut _, size, access, flags, file, 0) };
        there != libc::MAP_FAILED
    })
}
