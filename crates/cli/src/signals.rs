//! Ctrl-C and SIGTERM: the first asks the run to stop, the second ends the program at once. And SIGXFSZ, which is an error
//! of whoever writes.

use crate::error::{Error, Result, code};
use kiln_train::StopHandle;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The signal that came first.
#[derive(Clone, Default)]
pub(crate) struct Signals {
    requested: Arc<AtomicBool>,
    code: Arc<AtomicUsize>,
}

impl Signals {
    /// Takes over both signals for the rest of the program.
    pub(crate) fn install() -> Result<Self> {
        let signals = Signals::default();
        for (signal, exit) in [(SIGINT, code::INTERRUPTED), (SIGTERM, code::TERMINATED)] {
            signals
                .register(signal, exit)
                .map_err(|e| Error::failure(format!("cannot handle signal {signal}: {e}")))?;
        }
        Ok(signals)
    }

    fn register(&self, signal: i32, exit: u8) -> std::io::Result<()> {
        // In this order: a signal that finds the flag set ends the program, one that does not sets it.
        flag::register_conditional_shutdown(signal, i32::from(exit), self.requested.clone())?;
        flag::register_usize(signal, self.code.clone(), usize::from(exit))?;
        flag::register(signal, self.requested.clone())?;
        Ok(())
    }

    /// Lets a write beyond the limit on the size of files (`ulimit -f`) fail, where it would end the program without a word.
    pub(crate) fn survive_size_limit() -> Result<()> {
        let signal = libc::SIGXFSZ;
        // Nobody looks at the flag: the write says what is wrong.
        flag::register(signal, Arc::default())
            .map(drop)
            .map_err(|e| Error::failure(format!("cannot handle signal {signal}: {e}")))
    }

    /// A handle that asks a trainer to stop when a signal comes.
    pub(crate) fn stop_handle(&self) -> StopHandle {
        StopHandle::from_flag(self.requested.clone())
    }

    /// The exit code of the signal that came, if one did.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        match self.code.load(Ordering::SeqCst) {
            0 => None,
            code => u8::try_from(code).ok(),
        }
    }
}
