//! Locks that outlive a panic of the thread that held them.

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex. What it guards is whole after a panic too: nothing here panics between two writes that belong together.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
