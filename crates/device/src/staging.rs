//! Pinned memory for small uploads.

use crate::context::Context;
use crate::error::Result;
use crate::pinned::Pinned;

/// An upload of at most this many bytes is staged in pinned memory and not waited for.
pub(crate) const STAGED: usize = 64 << 10;
/// The number of uploads that may be under way from the staging area.
const SLOTS: usize = 8;

/// Pinned memory through which small uploads travel.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    slots: Vec<Pinned>,
    next: usize,
}

impl Staging {
    /// A slot that no copy reads any more; it waits for the oldest if all are in use.
    pub(crate) fn slot(&mut self, context: &Context) -> Result<&mut Pinned> {
        if self.slots.len() < SLOTS {
            self.slots.push(Pinned::new(context, STAGED)?);
            self.next = 0;
            return Ok(self.slots.last_mut().expect("one was pushed"));
        }
        let at = self.next;
        self.next = (at + 1) % SLOTS;
        self.slots[at].wait()?;
        Ok(&mut self.slots[at])
    }
}
