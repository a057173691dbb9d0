//! The pages behind one allocation.

use std::ptr::null_mut;
use std::sync::OnceLock;

const PAGE: u64 = 4096;
/// Bytes before an allocation in its first page. A pointer is 512-byte aligned, as a real driver's, and not more.
const FRONT: u64 = 512;
const POISON: u8 = 0xFF;
const CANARY: u8 = 0xA5;
/// Above this size, poison comes from a file whose pages are copied when they are written.
const LAZY: u64 = 1 << 20;
/// The size of that file.
const TILE: u64 = 8 << 20;

/// Pages between two guard pages.
#[derive(Debug)]
pub(super) struct Mapping {
    /// The first guard page.
    start: u64,
    /// The size in bytes, with both guard pages.
    size: u64,
    /// The bytes that the program asked for.
    len: u64,
}

impl Mapping {
    /// Maps room for `len` bytes, poisoned or zero, with canaries on both sides; None when the host refuses.
    pub(super) fn new(len: u64, poison: bool) -> Option<Self> {
        let body = len.checked_add(FRONT)?.checked_next_multiple_of(PAGE)?;
        let size = body.checked_add(2 * PAGE)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(null_mut(), size as usize, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let mapping = Self {
            start: start as u64,
            size,
            len,
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
        let end = first + body;
        // SAFETY: [first, end) was made readable and writable just now, and nothing else knows of it.
        unsafe {
            if poison && !poisoned {
                std::ptr::write_bytes(mapping.base() as *mut u8, POISON, len as usize);
            }
            std::ptr::write_bytes(first as *mut u8, CANARY, FRONT as usize);
            let after = mapping.base() + len;
            std::ptr::write_bytes(after as *mut u8, CANARY, (end - after) as usize);
        }
        Some(mapping)
    }

    /// The allocation's first address.
    pub(super) fn base(&self) -> u64 {
        self.start + PAGE + FRONT
    }

    /// The place of an overwritten canary, counted from the base.
    pub(super) fn damaged(&self) -> Option<i64> {
        let (first, end) = (self.start + PAGE, self.start + self.size - PAGE);
        let after = self.base() + self.len;
        // SAFETY: both spans lie between the guard pages, which are mapped until `retire`, which comes later; only the
        // driver, which does not write there, and kernels, which have been waited for, know these addresses.
        let (front, back) = unsafe {
            (
                std::slice::from_raw_parts(first as *const u8, FRONT as usize),
                std::slice::from_raw_parts(after as *const u8, (end - after) as usize),
            )
        };
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

    /// Gives the pages back and keeps the addresses.
    pub(super) fn retire(&mut self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the mapping is this one's own, and no snapshot holds it: it is borrowed exclusively.
        unsafe { libc::mmap(self.start as *mut _, self.size as usize, libc::PROT_NONE, flags, -1, 0) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
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
