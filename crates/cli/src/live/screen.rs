//! The terminal while the live view has it, and as it was before on every way out.

use std::io::{Stdout, stdin, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use std::io::IsTerminal;

/// True while the terminal belongs to the live view.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The screen of the live view. Dropping it gives the terminal back.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

/// True if a live view can be shown: input and output are a terminal that can move its cursor, and its user is looking at this
/// program.
pub(crate) fn is_possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let terminals = stdin().is_terminal() && stdout().is_terminal();
    // A program in the background is stopped when it changes the terminal of its session.
    terminals && !dumb && tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp())
}

/// True if the user wants colours (<https://no-color.org>).
pub(super) fn is_colored() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Screen {
    pub(super) fn take() -> std::io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // The message is for the user, who would not see it on the screen of the live view.
                give_back();
                before(panic);
            }));
        });
        TAKEN.store(true, Ordering::SeqCst);
        let taken = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match taken {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// True while nothing has given the terminal back, as a panic on any thread does.
    pub(super) fn is_ours() -> bool {
        TAKEN.load(Ordering::SeqCst)
    }
}

/// Gives the terminal back if the live view has it.
pub(super) fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Where the terminal is gone there is nothing to give back.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}
