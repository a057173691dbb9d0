//! A caching allocator: memory that is given back is kept for the next request, since the driver's own calls wait for
//! the device.

mod arena;
mod layout;
mod room;
mod tally;
#[cfg(test)]
mod tests;

use crate::context::Context;
use crate::error::Result;
pub(crate) use room::Room;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
pub use tally::PoolStats;

/// A caching allocator of a device. Clones are the same pool.
///
/// Sizes are rounded up to 512 bytes. Requests up to 1 MiB are cut from segments of 2 MiB, those below 10 MiB from
/// segments of 20 MiB, larger ones have segments of their own size (rounded to 2 MiB) that later ones may share. Of the
/// free parts the smallest that fits is taken, of equal ones the lowest: equal sequences of requests and returns give
/// equal addresses.
///
/// Before a large request is given a segment of its own, segments that are wholly free go back to the driver, up to its size and a few
/// hundred times in all: the sizes of a first step come in another order than it gives them back. A [private pool](Self::private) cannot
/// do so. It begins with one segment for all large requests since the last private pool or [`begin`](Self::begin), in which those that
/// come again have places that were chosen for all of them together.
///
/// A block goes back to its pool when it is dropped, while kernels that use it may still be queued. That is sound
/// because the next owner's work is queued after them, on the one stream that computes: **work on a pool's blocks is
/// ordered on one stream**. Work of another stream on a block, such as copies, has to be ordered by events before the block
/// is dropped.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    main: Arc<Room>,
    /// The threads that have entered a private pool, each with its pool, the latest last.
    entered: Mutex<Vec<(ThreadId, Arc<Room>)>>,
    direct: bool,
}

impl Pool {
    /// An empty pool.
    pub fn new(context: &Context) -> Self {
        Self::with(context, false)
    }

    /// A pool without a cache: every block is an allocation of the driver of exactly its size, and goes back to the driver
    /// when it is dropped (those of a private pool: with the pool). It is slow, and for checkers: they see a kernel step
    /// past the end of a block only where the driver's memory ends too.
    pub fn direct(context: &Context) -> Self {
        Self::with(context, true)
    }

    fn with(context: &Context, direct: bool) -> Self {
        Self(Arc::new(Shared {
            main: Arc::new(Room::new(context, Arc::default(), direct, false)),
            entered: Mutex::default(),
            direct,
        }))
    }

    /// A block of this many bytes, uninitialised. A block of zero bytes is allowed.
    ///
    /// If the driver has no memory left, cached memory is given back to it and it is asked again, at last for a segment of the size
    /// of this request; while a private pool is entered, nothing is given back, since waiting is forbidden in a capture.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), after which the pool is as before; the driver's.
    pub fn alloc(&self, bytes: usize) -> Result<Block> {
        let room = self.room();
        let ptr = match room.take(bytes, false) {
            Err(crate::Error::OutOfMemory { .. }) => {
                if Arc::ptr_eq(&room, &self.0.main) {
                    // A step that fails for want of memory says nothing about what the next one will need.
                    self.begin();
                    self.release_cached()?;
                }
                room.take(bytes, true)?
            }
            ptr => ptr?,
        };
        let held = Arc::new(Held { ptr, room });
        Ok(Block { held, len: bytes })
    }

    /// A separate pool for a captured graph: see [`enter`](Self::enter).
    ///
    /// # Errors
    /// The driver's, but not that memory is full.
    pub fn private(&self) -> Result<PrivatePool> {
        let main = &self.0.main;
        let room = Room::new(main.context(), main.tally(), self.0.direct, true);
        room.reserve(main.places())?;
        Ok(PrivatePool(Arc::new(room)))
    }

    /// Begins to look at what the next private pool will need.
    pub fn begin(&self) {
        self.0.main.begin();
    }

    /// Until the guard is dropped, this thread's allocations come from the private pool and go back to it. Memory that the
    /// graph will write again is thus given to no one else.
    pub fn enter(&self, private: &PrivatePool) -> Entered<'_> {
        let room = private.0.clone();
        self.entered().push((thread::current().id(), room.clone()));
        Entered {
            pool: self,
            room,
            thread: PhantomData,
        }
    }

    /// The counts of this pool and its private pools together.
    pub fn stats(&self) -> PoolStats {
        self.0.main.tally().read()
    }

    /// Gives segments without a block back to the driver, after waiting for the device. Private pools keep theirs. While a
    /// stream of this process is captured, waiting for the whole device is forbidden; the driver then waits for each segment.
    ///
    /// # Errors
    /// The driver's, among them those of kernels that ran earlier.
    pub fn release_cached(&self) -> Result<()> {
        self.0.main.release()
    }

    /// True if the block is this pool's, or of one of its private pools.
    pub fn owns(&self, block: &Block) -> bool {
        Arc::ptr_eq(&self.0.main.tally(), &block.held.room.tally())
    }

    /// The context that the memory is of.
    pub fn context(&self) -> &Context {
        self.0.main.context()
    }

    fn entered(&self) -> MutexGuard<'_, Vec<(ThreadId, Arc<Room>)>> {
        self.0.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The room that serves this thread's requests.
    fn room(&self) -> Arc<Room> {
        let entered = self.entered();
        if entered.is_empty() {
            return self.0.main.clone();
        }
        let me = thread::current().id();
        let mine = entered.iter().rev().find(|(thread, _)| *thread == me);
        mine.map_or_else(|| self.0.main.clone(), |(_, room)| room.clone())
    }
}

/// Memory of a captured graph. It lives as long as this handle, a block of it, or a graph that uses one.
#[derive(Clone, Debug)]
pub struct PrivatePool(Arc<Room>);

impl PrivatePool {
    /// The bytes that the driver gave for it.
    pub fn reserved(&self) -> usize {
        self.0.reserved()
    }
}

/// While it lives, its thread allocates from a private pool.
#[derive(Debug)]
#[must_use = "the private pool is left when the guard is dropped"]
pub struct Entered<'a> {
    pool: &'a Pool,
    room: Arc<Room>,
    /// Keeps the guard on its thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let me = thread::current().id();
        let mut entered = self.pool.entered();
        let mine = entered
            .iter()
            .rposition(|(thread, room)| *thread == me && Arc::ptr_eq(room, &self.room));
        if let Some(at) = mine {
            entered.remove(at);
        }
    }
}

/// Memory of a device; it goes back to its pool when it is dropped, or with the last graph that uses it.
#[derive(Debug)]
pub struct Block {
    held: Arc<Held>,
    len: usize,
}

/// The memory of a block, shared by the block and the graphs that use it.
#[derive(Debug)]
pub(crate) struct Held {
    ptr: u64,
    room: Arc<Room>,
}

impl Held {
    /// The private pool that it lies in, if it does.
    pub(crate) fn private_room(&self) -> Option<&Arc<Room>> {
        self.room.private().then_some(&self.room)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.give(self.ptr);
    }
}

impl Block {
    /// Its address on the device.
    pub fn ptr(&self) -> u64 {
        self.held.ptr
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// The bytes that were asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no bytes were asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The context that the memory is of.
    pub fn context(&self) -> &Context {
        self.held.room.context()
    }
}
