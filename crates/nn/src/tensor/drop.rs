//! Drops a long chain of values, each of which owns the next, in a loop.

use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;

/// The values that are still to be dropped, while a drop is under way.
type Remains = RefCell<Option<Vec<Box<dyn Any>>>>;

thread_local! {
    /// The values of a long chain that are still to be dropped; `None` outside of such a drop, so nothing is left at the end of
    /// the thread. It has no destructor of its own, so that the destructors of other thread-locals can use it.
    static REMAINS: ManuallyDrop<Remains> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Drops `first`. Values that are passed to this function during that drop wait until it has ended, so that a chain of any
/// length needs the stack of one link.
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
