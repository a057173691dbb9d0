//! Threads after `fork`: the child has only the thread that forked, and work given to the parent's pool would never run.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A thread pool made in a forked process. It is never dropped: a copy in a further fork has no threads to stop.
type Made = ManuallyDrop<Arc<ThreadPool>>;

/// Runs `f`, which runs parallel work, in a pool that has threads: rayon's current pool or, in a process forked from the
/// one in which this was first called, a pool of that process. Results do not depend on the pool.
pub(crate) fn in_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let process = std::process::id();
    if first_process() == process {
        return f();
    }
    match pool_of(process) {
        Some(pool) => pool.install(f),
        None => f(),
    }
}

/// The process that may use rayon's own pool.
pub(crate) fn first_process() -> u32 {
    static FIRST: OnceLock<u32> = OnceLock::new();
    *FIRST.get_or_init(std::process::id)
}

fn pool_of(process: u32) -> Option<Made> {
    static POOL: Mutex<Option<(u32, Made)>> = Mutex::new(None);
    let mut made = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*made {
        Some((of, pool)) if *of == process => Some(pool.clone()),
        _ => {
            // If no thread can be started, the pool is the current thread.
            let alone = || ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
            let pool = ThreadPoolBuilder::new().build().or_else(|_| alone()).ok()?;
            let pool = ManuallyDrop::new(Arc::new(pool));
            *made = Some((process, pool.clone()));
            Some(pool)
        }
    }
}
