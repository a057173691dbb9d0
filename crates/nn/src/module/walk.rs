//! The walk over a module's fields, carrying the dotted path.

use super::{Counter, Mode, Module, Param, State};
use crate::Backend;

/// What a walk finds.
#[derive(Debug)]
pub enum Entry<'a, B: Backend> {
    /// A parameter.
    Param(&'a Param<B>),
    /// A buffer of floats.
    State(&'a State<B>),
    /// A counter on the device.
    Counter(&'a Counter<B>),
    /// Whether a layer is training.
    Mode(&'a Mode),
}

/// What a walk finds, for changing.
#[derive(Debug)]
pub enum EntryMut<'a, B: Backend> {
    /// A parameter.
    Param(&'a mut Param<B>),
    /// A buffer of floats.
    State(&'a mut State<B>),
    /// A counter on the device.
    Counter(&'a mut Counter<B>),
    /// Whether a layer is training.
    Mode(&'a mut Mode),
}

/// Appends a field's name for the length of its visit.
fn push(path: &mut String, name: &str) -> usize {
    let len = path.len();
    if len > 0 {
        path.push('.');
    }
    path.push_str(name);
    len
}

macro_rules! walk {
    ($(#[$doc:meta])* $walk:ident, $entry:ident, ($($module:tt)*)) => {
        $(#[$doc])*
        pub struct $walk<'w, 'a, B: Backend> {
            path: String,
            visit: &'w mut dyn FnMut(&str, $entry<'a, B>),
        }

        impl<'w, 'a, B: Backend> $walk<'w, 'a, B> {
            /// A walk from the root of a model that calls `visit` with dotted names.
            pub fn new(visit: &'w mut dyn FnMut(&str, $entry<'a, B>)) -> Self {
                $walk { path: String::new(), visit }
            }

            /// Visits a field under its name.
            pub fn field(&mut self, name: &str, module: $($module)*) {
                let len = push(&mut self.path, name);
                module.walk_by(self);
                self.path.truncate(len);
            }

            /// Reports an entry at the present path.
            pub(super) fn entry(&mut self, entry: $entry<'a, B>) {
                (self.visit)(&self.path, entry);
            }
        }

        impl<B: Backend> std::fmt::Debug for $walk<'_, '_, B> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($walk), "({})"), self.path)
            }
        }
    };
}

trait WalkBy<'a, B: Backend> {
    fn walk_by(self, walk: &mut Walk<'_, 'a, B>);
}
impl<'a, B: Backend> WalkBy<'a, B> for &'a (dyn Module<B> + 'a) {
    fn walk_by(self, walk: &mut Walk<'_, 'a, B>) {
        self.walk(walk);
    }
}
trait WalkByMut<'a, B: Backend> {
    fn walk_by(self, walk: &mut WalkMut<'_, 'a, B>);
}
impl<'a, B: Backend> WalkByMut<'a, B> for &'a mut (dyn Module<B> + 'a) {
    fn walk_by(self, walk: &mut WalkMut<'_, 'a, B>) {
        self.walk_mut(walk);
    }
}

walk! {
    /// A walk over a module's parameters and buffers.
    Walk, Entry, (&'a (dyn Module<B> + 'a))
}
walk! {
    /// A walk over a module's parameters and buffers, for changing them.
    WalkMut, EntryMut, (&'a mut (dyn Module<B> + 'a))
}
