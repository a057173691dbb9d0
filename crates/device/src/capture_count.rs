//! The number of streams of the process that are captured.

use std::sync::{Mutex, MutexGuard, PoisonError};

static UNDER_WAY: Mutex<usize> = Mutex::new(0);

fn under_way() -> MutexGuard<'static, usize> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` while no stream of the process is captured, and keeps captures from beginning meanwhile. `None`, without running
/// `f`, if a stream is captured.
///
/// `f` may then wait for a whole context: the driver refuses that while any stream of the context is captured, and
/// invalidates the capture, whichever thread captures.
pub(crate) fn outside<R>(f: impl FnOnce() -> R) -> Option<R> {
    let under_way = under_way();
    (*under_way == 0).then(f)
}

/// Counts one capture, from before it begins until this is dropped.
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
