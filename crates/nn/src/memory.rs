//! Device memory that tensors share.

use kiln_core::{Backend, Buffer, Result};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer with a unique id. Unlike an address, an id is never used again.
pub(crate) struct Memory<Buf> {
    id: u64,
    buffer: Buf,
}

impl<Buf> Memory<Buf> {
    pub(crate) fn new(buffer: Buf) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Memory { id, buffer })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl<Buf> Deref for Memory<Buf> {
    type Target = Buf;
    fn deref(&self) -> &Buf {
        &self.buffer
    }
}

/// The buffer of `memory` for writing in place. If others share it, `memory` first moves to a copy and they keep the old
/// values.
pub(crate) fn own<'a, B: Backend>(backend: &B, memory: &'a mut Arc<Memory<B::Buffer>>) -> Result<&'a mut B::Buffer> {
    if Arc::get_mut(memory).is_none() {
        let mut copy = backend.alloc(memory.dtype(), memory.len())?;
        backend.copy(memory, &mut copy)?;
        *memory = Memory::new(copy);
    }
    match Arc::get_mut(memory) {
        Some(memory) => Ok(&mut memory.buffer),
        None => unreachable!("the copy above is not shared"),
    }
}
