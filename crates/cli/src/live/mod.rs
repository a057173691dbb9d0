//! The live view of a run: curves, speed and machine on the screen of a terminal, and keys.
//!
//! It has a thread of its own, so that keys and the clock go on during a long step. The callbacks only change what it shows.

mod draw;
mod model;
mod screen;

use crate::signals::Signals;
use draw::{Palette, draw};
use kiln_monitor::Watch;
use kiln_train::{Control, EpochRecord, Plan, StepInfo};
use model::Model;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use screen::{Screen, give_back, is_colored};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use model::About;
pub(crate) use screen::is_possible;

/// The time between two looks at the keys and at signals.
const LOOK: Duration = Duration::from_millis(50);

/// The time between two drawings of the screen, unless a key is pressed.
const FRAME: Duration = Duration::from_millis(250);

/// The factor of the learning rate for `+`, and for `-`.
const LARGER: f64 = 1.25;
const SMALLER: f64 = 0.8;

/// The request that a key stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    Stop,
    Save,
    ScaleLr(f64),
    Help,
}

fn asked(key: &KeyEvent) -> Option<Asked> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('c'), true) => Some(Asked::Stop),
        (_, true) => None,
        (KeyCode::Char('q' | 'Q'), _) => Some(Asked::Stop),
        (KeyCode::Char('s' | 'S'), _) => Some(Asked::Save),
        (KeyCode::Char('+' | '='), _) => Some(Asked::ScaleLr(LARGER)),
        (KeyCode::Char('-' | '_'), _) => Some(Asked::ScaleLr(SMALLER)),
        (KeyCode::Char('?' | 'h'), _) => Some(Asked::Help),
        (KeyCode::Esc, _) => Some(Asked::Help),
        _ => None,
    }
}

fn locked(model: &Mutex<Model>) -> MutexGuard<'_, Model> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handles through which the live view stops, saves and changes the rate.
#[derive(Clone)]
pub(crate) struct Hands {
    pub(crate) control: Control,
    pub(crate) signals: Signals,
    pub(crate) watch: Option<Watch>,
}

/// A live view on the terminal.
pub(crate) struct Live {
    model: Arc<Mutex<Model>>,
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Takes the terminal.
    pub(crate) fn start(about: About, plan: Plan, hands: Hands) -> std::io::Result<Self> {
        let model = Arc::new(Mutex::new(Model::new(about, plan)));
        let screen = Screen::take()?;
        let (ends, ended) = channel();
        let shown = Arc::clone(&model);
        let work = move || {
            let signals = hands.signals.clone();
            // Without a terminal the run goes on, and its lines are shown.
            let _ = show(screen, &shown, &hands, &ended);
            signals.end_view();
        };
        let thread = std::thread::Builder::new().name("kiln-live".to_string()).spawn(work)?;
        Ok(Live {
            model,
            ends: Some(ends),
            thread: Some(thread),
        })
    }

    pub(crate) fn step(&self, info: &StepInfo) {
        locked(&self.model).step(info);
    }

    pub(crate) fn epoch(&self, record: &EpochRecord) {
        locked(&self.model).epoch(record);
    }

    pub(crate) fn say(&self, message: impl Into<String>) {
        locked(&self.model).say(message);
    }

    /// True while the view is on the screen.
    pub(crate) fn is_shown(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Live {
    /// Gives the terminal back.
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has been shown.
            let _ = thread.join();
        }
    }
}

/// Shows the view until the sender is dropped or the terminal is given back.
fn show(mut screen: Screen, model: &Mutex<Model>, hands: &Hands, ended: &Receiver<()>) -> std::io::Result<()> {
    let palette = Palette { colored: is_colored() };
    let mut signals = hands.signals.watch()?;
    let mut drawn: Option<Instant> = None;
    while ended.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Timeout) && Screen::is_ours() {
        if drawn.is_none_or(|at| at.elapsed() >= FRAME) {
            let mut model = locked(model);
            if let Some(watch) = &hands.watch {
                model.machine = watch.sample();
            }
            model.stops = hands.control.stop_handle().is_requested();
            screen.terminal.draw(|frame| draw(frame, &model, palette))?;
            drawn = Some(Instant::now());
        }
        if let Some(code) = signals.second() {
            leave(code);
        }
        if !event::poll(LOOK)? {
            continue;
        }
        let asked = match event::read()? {
            Event::Key(key) => asked(&key),
            Event::Resize(..) => {
                drawn = None;
                None
            }
            _ => None,
        };
        if let Some(asked) = asked {
            act(asked, model, hands);
            drawn = None;
        }
    }
    Ok(())
}

/// Ends the program at once, with the terminal as it was.
fn leave(code: u8) -> ! {
    give_back();
    signal_hook::low_level::exit(i32::from(code))
}

fn act(asked: Asked, model: &Mutex<Model>, hands: &Hands) {
    let control = &hands.control;
    let said = match asked {
        Asked::Stop if control.stop_handle().is_requested() => leave(crate::error::code::INTERRUPTED),
        Asked::Stop => {
            control.stop();
            "stopping after this step; the same key again ends at once"
        }
        Asked::Save => {
            control.save();
            "a checkpoint is saved after this step"
        }
        Asked::ScaleLr(factor) => match control.scale_lr(factor) {
            Ok(()) if factor > 1.0 => "the learning rate grows after this step",
            Ok(()) => "the learning rate falls after this step",
            // The factors are constants that are valid.
            Err(_) => return,
        },
        Asked::Help => {
            let mut model = locked(model);
            model.helps = !model.helps;
            return;
        }
    };
    locked(model).say(said);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ask_for_what_the_help_says() {
        let of = |c: char, modifiers| asked(&KeyEvent::new(KeyCode::Char(c), modifiers));
        let plain = |c| of(c, KeyModifiers::NONE);
        assert_eq!(plain('q'), Some(Asked::Stop));
        assert_eq!(of('c', KeyModifiers::CONTROL), Some(Asked::Stop));
        assert_eq!((plain('c'), of('q', KeyModifiers::CONTROL)), (None, None));
        assert_eq!(plain('s'), Some(Asked::Save));
        assert_eq!(of('+', KeyModifiers::SHIFT), Some(Asked::ScaleLr(LARGER)));
        assert_eq!(plain('-'), Some(Asked::ScaleLr(SMALLER)));
        assert_eq!((plain('?'), plain('x')), (Some(Asked::Help), None));
        // Once up and once down is the rate of before.
        assert_eq!(LARGER * SMALLER, 1.0);
    }
}
