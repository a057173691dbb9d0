//! The state of each byte of an allocation: written or not.

use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};

/// One state for each byte: 0 when nothing has written it. Pages of states take memory when they are touched.
#[derive(Debug)]
pub struct Shadow(Box<[AtomicU8]>);

impl Shadow {
    /// States of `len` bytes that nothing has written.
    pub fn new(len: u64) -> Self {
        // The allocator knows fresh pages to be zero, and leaves them untouched.
        let bytes = Box::into_raw(vec![0u8; len as usize].into_boxed_slice());
        // SAFETY: `AtomicU8` has the size, alignment and validity of `u8`, and the box was given up just now.
        Self(unsafe { Box::from_raw(bytes as *mut [AtomicU8]) })
    }

    /// Marks `len` bytes from `start` on as written.
    pub fn mark(&self, start: u64, len: u64) {
        for byte in &self.0[start as usize..][..len as usize] {
            byte.store(1, Ordering::Relaxed);
        }
    }

    /// Takes over the states of `len` bytes of another allocation, or of this one.
    pub fn copy(&self, start: u64, from: &Shadow, at: u64, len: u64) {
        let (to, from) = (
            &self.0[start as usize..][..len as usize],
            &from.0[at as usize..][..len as usize],
        );
        if to.as_ptr() <= from.as_ptr() {
            for (to, from) in to.iter().zip(from) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        } else {
            for (to, from) in to.iter().zip(from).rev() {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
}

impl Deref for Shadow {
    type Target = [AtomicU8];

    fn deref(&self) -> &[AtomicU8] {
        &self.0
    }
}
