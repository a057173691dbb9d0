//! Interruption of work that takes too long. Ops that can fail check between two chunks, all ops when they allocate. An
//! interrupted op returns an error, so no output is left half computed without one.

use kiln_core::{Error, Interrupt, Result};
use std::cell::RefCell;

thread_local! {
    /// The interrupt of the work of this thread.
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// Restores the outer interrupt when dropped, also during a panic.
struct Restore(Option<Interrupt>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Runs `body`, whose ops `interrupt` can end.
pub(crate) fn with(interrupt: &Interrupt, body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let _restore = Restore(CURRENT.replace(Some(interrupt.clone())));
    body()
}

/// The interrupt of the op that this thread runs, for the chunks that other threads work on.
pub(crate) fn current() -> Option<Interrupt> {
    // A thread may drop tensors at its end, when this variable is already gone.
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Returns an error if the op is to end.
pub(crate) fn look(interrupt: &Option<Interrupt>) -> Result<()> {
    match interrupt {
        Some(interrupt) if interrupt() => Err(Error::Interrupted { device: "cpu".into() }),
        _ => Ok(()),
    }
}

/// As [`look`], for the interrupt of this thread.
pub(crate) fn check() -> Result<()> {
    CURRENT.try_with(|current| look(&current.borrow())).unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use crate::Cpu;
    use crate::parallel::try_chunks_mut;
    use kiln_core::{DType, Error, Interrupt, Runtime};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// An interrupt that is false for the first `questions` calls, and true from then on.
    fn after(questions: usize) -> Interrupt {
        let asked = AtomicUsize::new(0);
        Arc::new(move || asked.fetch_add(1, Ordering::Relaxed) >= questions)
    }

    #[test]
    fn ops_end_between_chunks_on_any_thread() {
        let (cpu, done) = (Cpu::new(), AtomicUsize::new(0));
        let mut y = vec![0u8; 1000];
        let mut work = |parallel| {
            done.store(0, Ordering::Relaxed);
            cpu.interruptible(&after(10), &mut || {
                try_chunks_mut(&mut y, 1, parallel, |_, _| {
                    done.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
            })
        };
        for parallel in [false, true] {
            assert!(matches!(work(parallel), Err(Error::Interrupted { .. })));
            assert_eq!(done.load(Ordering::Relaxed), 10);
        }
    }

    #[test]
    fn nothing_is_interrupted_outside() {
        let cpu = Cpu::new();
        let inner = cpu.interruptible(&after(1), &mut || {
            cpu.alloc(DType::F32, 4)?;
            // The inner interrupt replaces the outer one while it lasts.
            cpu.interruptible(&after(1), &mut || cpu.alloc(DType::F32, 4).map(drop))?;
            cpu.alloc(DType::F32, 4).map(drop)
        });
        assert!(inner.unwrap_err().is_interrupted());
        cpu.alloc(DType::F32, 4).unwrap();
    }
}
