//! Pages of page-locked memory that the host must leave alone for a while.
//!
//! Their protection is changed, and a handler of SIGSEGV notes accesses to them, opens them and lets the
//! access happen. Faults at other addresses go to whatever handled the signal before.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most stretches of pages guarded at one time, and the most accesses remembered until they are asked for.
const MOST: usize = 256;

const PAGE: u64 = 4096;

/// Whole pages that the host must leave alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// True if the host may read them.
    pub(crate) readable: bool,
}

impl Pages {
    /// The pages of `[start, end)` on which no other bytes of the allocation `[base, base + len)` lie: none when there are
    /// no such pages. An allocation shares its pages with no other.
    pub(crate) fn of(start: u64, end: u64, (base, len): (u64, u64), readable: bool) -> Option<Pages> {
        let first = if start == base {
            start / PAGE * PAGE
        } else {
            start.next_multiple_of(PAGE)
        };
        let last = if end == base + len {
            end.next_multiple_of(PAGE)
        } else {
            end / PAGE * PAGE
        };
        (first < last).then_some(Pages {
            start: first,
            end: last,
            readable,
        })
    }
}

/// An access of the host's to guarded pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    /// The number of the copy that the pages were guarded for.
    pub(crate) id: u64,
    pub(crate) address: u64,
    pub(crate) write: bool,
}

/// An entry of the table that the signal handler looks pages up in. `end` is 0 in an unused one.
struct Entry {
    start: AtomicU64,
    end: AtomicU64,
    id: AtomicU64,
    readable: AtomicU32,
}

/// A slot for an access that the handler saw: the id, 0 while it is free; the address; 1 for a write and 0 for a read.
struct Seen {
    id: AtomicU64,
    address: AtomicU64,
    write: AtomicU32,
}

static ENTRIES: [Entry; MOST] = [const {
    Entry {
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        id: AtomicU64::new(0),
        readable: AtomicU32::new(0),
    }
}; MOST];

static SEEN: [Seen; MOST] = [const {
    Seen {
        id: AtomicU64::new(0),
        address: AtomicU64::new(0),
        write: AtomicU32::new(0),
    }
}; MOST];

/// The handler of SIGSEGV before this one.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Guards these pages, each for an id from 1 on, in place of all that were guarded; those beyond the first `MOST` are not.
///
/// # Safety
/// All are pages of live allocations of page-locked memory, and the caller opens them (`open`) before it gives them back
/// or lets anything but the host's own code touch them.
pub(crate) unsafe fn close(pages: &[(u64, Pages)]) {
    install();
    // Pages that forbid reading too come last, so that they win where pages are guarded twice.
    let order = |readable| pages.iter().filter(move |(_, p)| p.readable == readable);
    for ((id, pages), entry) in order(true).chain(order(false)).zip(&ENTRIES) {
        entry.id.store(*id, Ordering::Relaxed);
        entry.readable.store(pages.readable.into(), Ordering::Relaxed);
        entry.start.store(pages.start, Ordering::Relaxed);
        entry.end.store(pages.end, Ordering::Release);
        protect(
            pages.start,
            pages.end,
            if pages.readable {
                libc::PROT_READ
            } else {
                libc::PROT_NONE
            },
        );
    }
}

/// Opens all pages again. The entries stay, for an access that was under way: its thread finds the pages open.
pub(crate) fn open() {
    for entry in &ENTRIES {
        let end = entry.end.load(Ordering::Relaxed);
        if end == 0 {
            return;
        }
        protect(
            entry.start.load(Ordering::Relaxed),
            end,
            libc::PROT_READ | libc::PROT_WRITE,
        );
    }
}

/// Forgets all pages; they are open.
pub(crate) fn forget() {
    for entry in &ENTRIES {
        entry.end.store(0, Ordering::Release);
    }
}

/// The accesses since the last question.
pub(crate) fn touches() -> Vec<Touch> {
    let take = |seen: &Seen| {
        let id = seen.id.load(Ordering::Acquire);
        let touch = Touch {
            id,
            address: seen.address.load(Ordering::Relaxed),
            write: seen.write.load(Ordering::Relaxed) != 0,
        };
        // A slot that is being written has the highest id until it is whole.
        (id != 0 && id != u64::MAX).then(|| {
            seen.id.store(0, Ordering::Release);
            touch
        })
    };
    SEEN.iter().filter_map(take).collect()
}

fn protect(start: u64, end: u64, access: c_int) {
    // SAFETY: the caller of `close` promises that these pages stay mapped until `forget`. A refusal leaves them as they
    // are, and then an access is missed or another fault of this handler opens them.
    unsafe { libc::mprotect(start as *mut c_void, (end - start) as usize, access) };
}

fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: a zeroed sigaction is one without flags; both structures live for the calls.
        unsafe {
            let mut ours: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = handler as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut ours.sa_mask);
            libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut before);
            // The handler reads `BEFORE` after it was set: nothing is guarded until `install` returns.
            libc::sigaction(libc::SIGSEGV, &ours, std::ptr::null_mut());
            before
        }
    });
}

/// Notes an access to guarded pages and opens them. Nothing here takes a lock or allocates.
extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives both to a handler with SA_SIGINFO, for the call; the pointer to errno is this thread's.
    let (address, write, errno) = unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        // Bit 1 of the page fault's error code: a write.
        let write = context.uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0;
        ((*info).si_addr() as u64, write, *libc::__errno_location())
    };
    let mut ours = false;
    for entry in &ENTRIES {
        let end = entry.end.load(Ordering::Acquire);
        if end == 0 {
            break;
        }
        let start = entry.start.load(Ordering::Relaxed);
        if !(start..end).contains(&address) {
            continue;
        }
        let readable = entry.readable.load(Ordering::Relaxed) != 0;
        if (write || !readable) && !ours {
            note(entry.id.load(Ordering::Relaxed), address, write);
        }
        ours = true;
        protect(start, end, libc::PROT_READ | libc::PROT_WRITE);
    }
    // SAFETY: as above; what handled the signal before is called as the kernel would.
    unsafe {
        if ours {
            *libc::__errno_location() = errno;
            return;
        }
        let Some(before) = BEFORE.get() else {
            libc::signal(signal, libc::SIG_DFL);
            return;
        };
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                // The instruction runs again and ends the program, as it would have.
                libc::sigaction(signal, before, std::ptr::null_mut());
            }
            action if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let action: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = std::mem::transmute(action);
                action(signal, info, context);
            }
            action => {
                let action: extern "C" fn(c_int) = std::mem::transmute(action);
                action(signal);
            }
        }
    }
}

fn note(id: u64, address: u64, write: bool) {
    for seen in &SEEN {
        if seen
            .id
            .compare_exchange(0, u64::MAX, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            seen.address.store(address, Ordering::Relaxed);
            seen.write.store(write.into(), Ordering::Relaxed);
            seen.id.store(id, Ordering::Release);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pages;

    #[test]
    fn only_pages_that_nothing_else_shares_are_guarded() {
        let base = (10 << 12) + 512;
        let of = |start, end, len| Pages::of(start, end, (base, len), false).map(|p| (p.start >> 12, p.end >> 12));
        assert_eq!(
            of(base, base + 4, 4),
            Some((10, 11)),
            "a small allocation has its page for itself"
        );
        assert_eq!(of(base, base + 4, 8), None);
        assert_eq!(of(base + 4, base + 8, 8), None);
        assert_eq!(of(base, base + 10_000, 10_000), Some((10, 13)));
        assert_eq!(of(base, base + 9_999, 10_000), Some((10, 12)));
        assert_eq!(of(base + 1, base + 10_000, 10_000), Some((11, 13)));
    }
}
