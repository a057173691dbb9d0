//! How many streams of the process are captured.

use std::sync::{Mutex, MutexGuard, PoisonError};

static UNDER_WAY: Mutex<usize> = Mutex::new(0);

fn under_way() -> MutexGuard<'static, usize> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` with no stream of the process captured: none begins meanwhile. `None`, without running it, if one is captured.
///
/// Waiting for a whole context is such an `f`: the driver refuses it while any stream of the context is captured, and makes the
/// capture worthless, whichever thread captures.
pub(crate) fn outside<R>(f: impl FnOnce() -> R) -> Option<R> {
    let under_way = under_way();
    (*under_way == 0).then(f)
}

/// One capture more, from before it begins until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(());

impl Counted {
    pub(crate) fn new() -> Self {
        *under_way() += 1;
        Counted(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *under_way() -= 1;
    }
}
