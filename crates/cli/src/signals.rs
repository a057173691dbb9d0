//! SIGINT (Ctrl-C) and SIGTERM: the first signal asks the run to stop, the second ends the program at once. While a live view has
//! the terminal, it is the view that sees the second, and gives the terminal back first. SIGXFSZ is handled so that the write that
//! exceeds the limit returns an error.

use crate::error::{Error, Result, code};
use kiln_train::StopHandle;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The first signal that arrived.
#[derive(Clone, Default)]
pub(crate) struct Signals {
    requested: Arc<AtomicBool>,
    /// True once a signal ends the program at once.
    armed: Arc<AtomicBool>,
    code: Arc<AtomicUsize>,
}

/// The signals that a live view sees.
pub(crate) struct Watched {
    signals: iterator::Signals,
    seen: usize,
}

impl Watched {
    /// The exit code of a signal that came after another one.
    pub(crate) fn second(&mut self) -> Option<u8> {
        let mut code = None;
        for signal in self.signals.pending() {
            self.seen += 1;
            if self.seen > 1 {
                code = Some(if signal == SIGTERM {
                    code::TERMINATED
                } else {
                    code::INTERRUPTED
                });
            }
        }
        code
    }
}

impl Signals {
    /// Installs handlers of both signals for the rest of the program.
    pub(crate) fn install() -> Result<Self> {
        let requested: Arc<AtomicBool> = Arc::default();
        Signals {
            armed: requested.clone(),
            requested,
            code: Arc::default(),
        }
        .installed()
    }

    /// As [`install`](Signals::install), for a program that may show a live view: until
    /// [`end_view`](Signals::end_view) no signal ends the program by itself.
    pub(crate) fn install_for_view() -> Result<Self> {
        Signals::default().installed()
    }

    fn installed(self) -> Result<Self> {
        let signals = self;
        for (signal, exit) in [(SIGINT, code::INTERRUPTED), (SIGTERM, code::TERMINATED)] {
            signals
                .register(signal, exit)
                .map_err(|e| Error::failure(format!("cannot handle signal {signal}: {e}")))?;
        }
        Ok(signals)
    }

    fn register(&self, signal: i32, exit: u8) -> std::io::Result<()> {
        // The order matters: a signal that finds the flag set ends the program; otherwise the later handlers set code and flag.
        flag::register_conditional_shutdown(signal, i32::from(exit), self.armed.clone())?;
        flag::register_usize(signal, self.code.clone(), usize::from(exit))?;
        flag::register(signal, self.requested.clone())?;
        Ok(())
    }

    /// Lets signals act without a live view: the next one ends the program at once if one has come already, else the one after it.
    pub(crate) fn end_view(&self) {
        if self.requested.load(Ordering::SeqCst) {
            self.armed.store(true, Ordering::SeqCst);
        }
        for signal in [SIGINT, SIGTERM] {
            // Without this handler every signal but SIGKILL asks the run to stop.
            let _ = flag::register(signal, self.armed.clone());
        }
    }

    /// The signals from now on, for a live view.
    pub(crate) fn watch(&self) -> std::io::Result<Watched> {
        Ok(Watched {
            signals: iterator::Signals::new([SIGINT, SIGTERM])?,
            seen: usize::from(self.requested.load(Ordering::SeqCst)),
        })
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
