//! Memory and kernels that captured work uses, kept for as long as it may run again.

use crate::capture_count::Counted;
use crate::module::Function;
use crate::pool::{Block, Held, Room};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The memory that a graph reads and writes, and the kernels that it runs.
///
/// Blocks that lie in a private pool are kept by keeping that pool: it gives nothing back to others, and a block that is
/// dropped within a capture makes room for the next one there.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Things>);

#[derive(Debug, Default)]
struct Things {
    blocks: HashMap<u64, Arc<Held>>,
    rooms: Vec<Arc<Room>>,
    functions: HashMap<usize, Function>,
}

impl Kept {
    fn things(&self) -> MutexGuard<'_, Things> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The captures that are under way in this process.
///
/// A stream that an event makes part of another one's capture has no capture of its own. A captured block or kernel is
/// therefore kept by all captures under way, of which there is nearly always one: keeping too much is sound.
static ACTIVE: Mutex<Vec<Arc<Kept>>> = Mutex::new(Vec::new());

fn active() -> MutexGuard<'static, Vec<Arc<Kept>>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A capture that begins; it is under way for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Capture {
    kept: Arc<Kept>,
    _counted: Counted,
}

impl Capture {
    pub(crate) fn begin() -> Self {
        let kept = Arc::new(Kept::default());
        active().push(kept.clone());
        Capture {
            kept,
            _counted: Counted::new(),
        }
    }

    pub(crate) fn kept(&self) -> Arc<Kept> {
        self.kept.clone()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        active().retain(|kept| !Arc::ptr_eq(kept, &self.kept));
    }
}

/// True if any stream of the process is captured.
pub(crate) fn under_way() -> bool {
    !active().is_empty()
}

/// Keeps a block for the captures under way.
pub(crate) fn keep(block: &Block) {
    for kept in active().iter() {
        let mut things = kept.things();
        match block.held().private_room() {
            Some(room) if things.rooms.iter().any(|r| Arc::ptr_eq(r, room)) => {}
            Some(room) => things.rooms.push(room.clone()),
            None => {
                things.blocks.insert(block.ptr(), block.held().clone());
            }
        }
    }
}

/// Keeps a kernel for the captures under way.
pub(crate) fn keep_function(function: &Function) {
    for kept in active().iter() {
        kept.things()
            .functions
            .entry(function.handle() as usize)
            .or_insert_with(|| function.clone());
    }
}
