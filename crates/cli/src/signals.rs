//! SIGINT (Ctrl-C) and SIGTERM: the first signal asks the run to stop, the second ends the program at once. SIGXFSZ is
//! handled so that the write that exceeds the limit returns an error.

use crate::error::{Error, Result, code};
use kiln_train::StopHandle;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The first signal that arrived.
#[derive(Clone, Default)]
pub(crate) struct Signals {
    requested: Arc<AtomicBool>,
    code: Arc<AtomicUsize>,
}

impl Signals {
    /// Installs handlers of both signals for the rest of the program.
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
        // The order matters: a signal that finds the flag set ends the program; otherwise the later handlers set code and flag.
        flag::register_conditional_shutdown(signal, i32::from(exit), self.requested.clone())?;
        flag::register_usize(signal, self.code.clone(), usize::from(exit))?;
        flag::register(signal, self.requested.clone())?;
        Ok(())
    }

    /// Makes a write beyond the limit on file sizes (`ulimit -f`) fail with an error; by default SIGXFSZ would end the program.
    pub(crate) fn survive_size_limit() -> Result<()> {
        let signal = libc::SIGXFSZ;
        // The flag is not read: the failed write returns the error.
        flag::register(signal, Arc::default())
            .map(drop)
            .map_err(|e| Error::failure(format!("cannot handle signal {signal}: {e}")))
    }

    /// A handle that asks a trainer to stop when a signal arrives.
    pub(crate) fn stop_handle(&self) -> StopHandle {
        StopHandle::from_flag(self.requested.clone())
    }

    /// The exit code of the signal that arrived, if one did.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        match self.code.load(Ordering::SeqCst) {
            0 => None,
            code => u8::try_from(code).ok(),
        }
    }
}
