//! The walk over the arrays of a batch.

use std::fmt::{Display, Write};

/// A visitor of the arrays of a batch, which tells each by the path of its fields: `image`, `boxes.3`.
pub struct Fields<'f, T> {
    path: String,
    visit: &'f mut dyn FnMut(&str, T),
}

impl<'f, T> Fields<'f, T> {
    /// Creates a visitor at the top of a batch.
    pub fn new(visit: &'f mut dyn FnMut(&str, T)) -> Self {
        Fields {
            path: String::new(),
            visit,
        }
    }

    /// Visits what lies in the field `name`.
    pub fn field(&mut self, name: impl Display, inner: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        let dot = if length > 0 { "." } else { "" };
        // Writing to a string does not fail.
        let _ = write!(self.path, "{dot}{name}");
        inner(self);
        self.path.truncate(length);
    }

    /// Visits an array.
    pub fn value(&mut self, value: T) {
        (self.visit)(&self.path, value);
    }
}
