//! Device memory that tensors share.

use kiln_core::{Backend, Buffer, DType, Result};
use std::mem;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A buffer with a unique id. Unlike an address, an id is never used again.
///
/// Beside the buffer may lie its values rounded to bf16 or f16, for mixed precision: the update of a parameter writes both, and that of a
/// frozen one is made once, so that the next forward pass need not cast. Memory is written through [`own`] and [`own_with_half`] alone. After the first the copy is
/// out of date, whoever wrote, and nobody reads it before it has been written again.
pub(crate) struct Memory<Buf> {
    id: u64,
    buffer: Buf,
    half: Mutex<Half<Buf>>,
}

/// The copy of a buffer of f32 in half precision.
struct Half<Buf> {
    /// The dtype in which a cast has asked for a copy since the last update.
    wanted: Option<DType>,
    copy: Option<Arc<Memory<Buf>>>,
    state: State,
    /// True once something kept a copy beyond the update that was to write it.
    given_up: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// The copy has the values of another time, or none.
    #[default]
    Stale,
    /// An update is writing it.
    Written,
    /// The copy has the bits of a cast of the buffer.
    Current,
}

impl<Buf> Default for Half<Buf> {
    fn default() -> Self {
        Half {
            wanted: None,
            copy: None,
            state: State::Stale,
            given_up: false,
        }
    }
}

impl<Buf> Half<Buf> {
    fn current(&self) -> Option<&Arc<Memory<Buf>>> {
        self.copy.as_ref().filter(|_| self.state == State::Current)
    }
}

impl<Buf> Memory<Buf> {
    pub(crate) fn new(buffer: Buf) -> Arc<Self> {
        Memory::with_half(buffer, Half::default())
    }

    fn with_half(buffer: Buf, half: Half<Buf>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Memory {
            id,
            buffer,
            half: Mutex::new(half),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The lock is held for assignments and a cast, and `state` says `Current` only after either is complete.
    fn lock(&self) -> MutexGuard<'_, Half<Buf>> {
        self.half.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the copy in half precision, if it is up to date, and true if something else than this memory holds it.
    pub(crate) fn half_in_use(&self) -> (u64, bool) {
        match self.lock().current() {
            Some(copy) => (copy.id, Arc::strong_count(copy) > 1),
            None => (0, false),
        }
    }

    /// Marks the copy as up to date, after the update that [`own_with_half`] began.
    pub(crate) fn half_written(&self) {
        let mut half = self.lock();
        if half.state == State::Written {
            half.state = State::Current;
        }
    }
}

impl<Buf: Buffer> Memory<Buf> {
    /// The copy in `dtype`, if it is up to date. If not, the next update that can is asked to write one.
    pub(crate) fn half(&self, dtype: DType) -> Option<Arc<Self>> {
        let mut half = self.lock();
        half.wanted = Some(dtype);
        half.current().filter(|copy| copy.buffer.dtype() == dtype).cloned()
    }
}

impl<Buf> Deref for Memory<Buf> {
    type Target = Buf;
    fn deref(&self) -> &Buf {
        &self.buffer
    }
}

/// The memory, after it has moved to a copy if others share it; they keep the old values.
fn unshared<'a, B: Backend>(backend: &B, memory: &'a mut Arc<Memory<B::Buffer>>) -> Result<&'a mut Memory<B::Buffer>> {
    if Arc::get_mut(memory).is_none() {
        let mut copy = backend.alloc(memory.dtype(), memory.len())?;
        backend.copy(memory, &mut copy)?;
        let half = mem::take(&mut *memory.lock());
        *memory = Memory::with_half(copy, half);
    }
    match Arc::get_mut(memory) {
        Some(memory) => Ok(memory),
        None => unreachable!("the copy above is not shared"),
    }
}

/// The buffer of `memory` for writing in place. If others share it, `memory` first moves to a copy and they keep the old
/// values.
pub(crate) fn own<'a, B: Backend>(backend: &B, memory: &'a mut Arc<Memory<B::Buffer>>) -> Result<&'a mut B::Buffer> {
    let memory = unshared(backend, memory)?;
    let half = memory.half.get_mut().unwrap_or_else(PoisonError::into_inner);
    half.state = State::Stale;
    Ok(&mut memory.buffer)
}

/// As [`own`], for an update that can write the copy in half precision too: with its buffer, if casts have asked for one since the
/// update before. [`Memory::half_written`] ends the update. With `may_leave` the update may write neither of the two.
pub(crate) fn own_with_half<'a, B: Backend>(
    backend: &B,
    memory: &'a mut Arc<Memory<B::Buffer>>,
    may_leave: bool,
) -> Result<(&'a mut B::Buffer, Option<&'a mut B::Buffer>)> {
    let Memory { buffer, half, .. } = unshared(backend, memory)?;
    let half = half.get_mut().unwrap_or_else(PoisonError::into_inner);
    let mut state = mem::take(&mut half.state);
    half.given_up |= half.copy.as_ref().is_some_and(|copy| Arc::strong_count(copy) > 1);
    let wanted = half
        .wanted
        .take()
        .filter(|_| !half.given_up && buffer.dtype() == DType::F32);
    if half.copy.as_ref().map(|copy| copy.dtype()) != wanted {
        half.copy = None;
    }
    if let (None, Some(dtype)) = (&half.copy, wanted) {
        half.copy = Some(Memory::new(backend.alloc(dtype, buffer.len())?));
        state = State::Stale;
    }
    let Some(copy) = half.copy.as_mut().and_then(Arc::get_mut) else {
        return Ok((buffer, None));
    };
    if may_leave && state != State::Current {
        backend.cast(buffer, &mut copy.buffer)?;
    }
    half.state = State::Written;
    Ok((buffer, Some(&mut copy.buffer)))
}

/// Brings a copy in half precision up to date that was written past, where it lies, if there is one.
pub(crate) fn refresh_half<B: Backend>(backend: &B, memory: &Memory<B::Buffer>) -> Result<()> {
    let mut half = memory.lock();
    if half.state != State::Current
        && let Some(copy) = half.copy.as_mut().and_then(Arc::get_mut)
    {
        backend.cast(&memory.buffer, &mut copy.buffer)?;
        half.state = State::Current;
    }
    Ok(())
}

/// As [`refresh_half`], for memory that no update writes: the copy is made if casts have asked for one, and stays.
pub(crate) fn keep_half<B: Backend>(backend: &B, memory: &Memory<B::Buffer>) -> Result<()> {
    {
        let mut half = memory.lock();
        let wanted = half.wanted.filter(|_| memory.dtype() == DType::F32);
        let lacks = half.copy.as_ref().is_none_or(|copy| {
            let held = half.state != State::Current && Arc::strong_count(copy) > 1;
            held || Some(copy.dtype()) != wanted
        });
        if let (Some(dtype), true) = (wanted, lacks) {
            half.copy = Some(Memory::new(backend.alloc(dtype, memory.len())?));
            half.state = State::Stale;
        }
    }
    refresh_half(backend, memory)
}
