//! Threads after `fork`: the child has the one that forked, and a pool that waits for the others would wait for ever.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A pool made in a forked process, and which. It is never dropped: another fork's copy has no threads to end.
type Made = ManuallyDrop<Arc<ThreadPool>>;

/// Runs `f`, which shares out work, where there are threads: in rayon's current pool, and in a process that was forked from the
/// one in which this was first called, in a pool of that process's own. Results do not depend on which.
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
            // Where no thread can be had, this one is the pool.
            let alone = || ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
            let pool = ThreadPoolBuilder::new().build().or_else(|_| alone()).ok()?;
            let pool = ManuallyDrop::new(Arc::new(pool));
            *made = Some((process, pool.clone()));
            Some(pool)
        }
    }
}
