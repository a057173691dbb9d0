//! The walk over a module's fields, carrying the dotted path.

use super::{Counter, Mode, Module, Param, State};
use crate::Backend;

/// A finding of a walk.
#[derive(Debug)]
pub enum Entry<'a, B: Backend> {
    /// A parameter.
    Param(&'a Param<B>),
    /// A buffer of floats.
    State(&'a State<B>),
    /// A counter on the device.
    Counter(&'a Counter<B>),
    /// The mode of a layer.
    Mode(&'a Mode),
}

/// A finding of a walk, for changing.
#[derive(Debug)]
pub enum EntryMut<'a, B: Backend> {
    /// A parameter.
    Param(&'a mut Param<B>),
    /// A buffer of floats.
    State(&'a mut State<B>),
    /// A counter on the device.
    Counter(&'a mut Counter<B>),
    /// The mode of a layer.
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

/// The function that a walk calls on its way.
enum Visit<'w, 'a, B: Backend> {
    Entries(&'w mut dyn FnMut(&str, Entry<'a, B>)),
    Modules(&'w mut dyn FnMut(&str, &'a dyn Module<B>)),
}

/// A walk over a module's parameters and buffers.
pub struct Walk<'w, 'a, B: Backend> {
    path: String,
    visit: Visit<'w, 'a, B>,
}

impl<'w, 'a, B: Backend> Walk<'w, 'a, B> {
    /// A walk from the root of a model that calls `visit` with dotted names.
    pub fn new(visit: &'w mut dyn FnMut(&str, Entry<'a, B>)) -> Self {
        Walk {
            path: String::new(),
            visit: Visit::Entries(visit),
        }
    }

    /// A walk that calls `visit` with every field instead, those inside of it after it: modules, lists, parameters and
    /// plain data alike.
    pub(crate) fn modules(visit: &'w mut dyn FnMut(&str, &'a dyn Module<B>)) -> Self {
        Walk {
            path: String::new(),
            visit: Visit::Modules(visit),
        }
    }

    /// Visits a field under its name.
    pub fn field(&mut self, name: &str, module: &'a dyn Module<B>) {
        let len = push(&mut self.path, name);
        if let Visit::Modules(visit) = &mut self.visit {
            visit(&self.path, module);
        }
        module.walk(self);
        self.path.truncate(len);
    }

    /// Reports an entry at the present path.
    pub(super) fn entry(&mut self, entry: Entry<'a, B>) {
        if let Visit::Entries(visit) = &mut self.visit {
            visit(&self.path, entry);
        }
    }
}

impl<B: Backend> std::fmt::Debug for Walk<'_, '_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Walk({})", self.path)
    }
}

/// A walk over a module's parameters and buffers, for changing them.
pub struct WalkMut<'w, 'a, B: Backend> {
    path: String,
    visit: &'w mut dyn FnMut(&str, EntryMut<'a, B>),
}

impl<'w, 'a, B: Backend> WalkMut<'w, 'a, B> {
    /// A walk from the root of a model that calls `visit` with dotted names.
    pub fn new(visit: &'w mut dyn FnMut(&str, EntryMut<'a, B>)) -> Self {
        WalkMut {
            path: String::new(),
            visit,
        }
    }

    /// Visits a field under its name.
    pub fn field(&mut self, name: &str, module: &'a mut dyn Module<B>) {
        let len = push(&mut self.path, name);
        module.walk_mut(self);
        self.path.truncate(len);
    }

    /// Reports an entry at the present path.
    pub(super) fn entry(&mut self, entry: EntryMut<'a, B>) {
        (self.visit)(&self.path, entry);
    }
}

impl<B: Backend> std::fmt::Debug for WalkMut<'_, '_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WalkMut({})", self.path)
    }
}
