//! Drops a long chain of values, each of which owns the next, in a loop.

use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;

/// What remains to be dropped, if a drop is under way.
type Remains = RefCell<Option<Vec<Box<dyn Any>>>>;

thread_local! {
    /// What remains to be dropped while a long chain of nodes comes apart; `None` outside of that, so there is nothing to drop
    /// at the end of the thread: without a destructor of its own this is there for the destructors of other thread-locals.
    static REMAINS: ManuallyDrop<Remains> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Drops `first`. What is dropped by that and is passed to this function in turn waits until the drop that came before is done,
/// so that a chain of any length needs the stack of one link.
pub(super) fn in_a_loop(first: impl Any) {
    let mut first: Option<Box<dyn Any>> = Some(Box::new(first));
    let nested = REMAINS.with(|r| match &mut *r.borrow_mut() {
        Some(queue) => {
            queue.extend(first.take());
            true
        }
        empty => {
            *empty = Some(Vec::new());
            false
        }
    });
    if nested {
        return;
    }
    while let Some(item) = first.take() {
        drop(item);
        first = REMAINS.with(|r| r.borrow_mut().as_mut().and_then(Vec::pop));
    }
    REMAINS.with(|r| *r.borrow_mut() = None);
}
