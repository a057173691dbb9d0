//! The walk over the arrays of a batch.

use crate::{DataError, Result};
use kiln_core::Backend;
use kiln_nn::module::{StateDict, Value};
use kiln_nn::{Indices, Tensor};
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

    /// Visits what lies at the path `name` from here, which may be empty: here itself.
    pub(super) fn at(&mut self, name: &str, inner: impl FnOnce(&mut Self)) {
        match name {
            "" => inner(self),
            name => self.field(name, inner),
        }
    }

    /// Visits an array.
    pub fn value(&mut self, value: T) {
        (self.visit)(&self.path, value);
    }
}

/// Arrays on a device by the paths of the fields that they belong to, of which a batch is made: the opposite of [`Fields`].
pub struct ArraysOf<'a, B: Backend> {
    path: String,
    arrays: &'a StateDict<B>,
}

impl<'a, B: Backend> ArraysOf<'a, B> {
    /// The arrays of a whole batch.
    pub fn new(arrays: &'a StateDict<B>) -> Self {
        ArraysOf {
            path: String::new(),
            arrays,
        }
    }

    /// Makes what lies in the field `name`.
    ///
    /// # Errors
    /// Those of `inner`.
    pub fn field<R>(&mut self, name: impl Display, inner: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let length = self.path.len();
        let dot = if length > 0 { "." } else { "" };
        // Writing to a string does not fail.
        let _ = write!(self.path, "{dot}{name}");
        let made = inner(self);
        self.path.truncate(length);
        made
    }

    /// The arrays in the present field by their names, from there on.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Value<B>)> {
        self.arrays.iter().filter_map(|(name, value)| match &self.path[..] {
            "" => Some((name, value)),
            path => {
                let rest = name.strip_prefix(path)?;
                let rest = if rest.is_empty() { rest } else { rest.strip_prefix('.')? };
                Some((rest, value))
            }
        })
    }

    /// The names of the arrays in the present field, from there on.
    fn inside(&self) -> impl Iterator<Item = &str> {
        self.all().map(|(name, _)| name)
    }

    /// True if there is an array in the present field.
    pub fn is_present(&self) -> bool {
        self.inside().next().is_some()
    }

    /// The number of entries of the list in the present field.
    pub fn entries(&self) -> usize {
        let numbers = self
            .inside()
            .filter_map(|name| name.split('.').next()?.parse::<usize>().ok());
        numbers.max().map_or(0, |last| last.saturating_add(1))
    }

    fn lacks(&self, expected: &str) -> DataError {
        let found = self
            .arrays
            .iter()
            .map(|(name, value)| format!("{name}: {} {}", value.dtype(), value.shape()));
        DataError::Arrays {
            name: self.path.clone(),
            expected: expected.to_string(),
            found: found.collect::<Vec<_>>().join(", "),
        }
    }

    /// The array of the present field, which is of floats.
    ///
    /// # Errors
    /// [`DataError::Arrays`] if there is none.
    pub fn floats(&self) -> Result<Tensor<B>> {
        match self.arrays.get(&self.path) {
            Some(Value::Float(t)) => Ok(t.clone()),
            _ => Err(self.lacks("floats")),
        }
    }

    /// The array of the present field, which is of integers.
    ///
    /// # Errors
    /// [`DataError::Arrays`] if there is none.
    pub fn integers(&self) -> Result<Indices<B>> {
        match self.arrays.get(&self.path) {
            Some(Value::Int(i)) => Ok(i.clone()),
            _ => Err(self.lacks("integers")),
        }
    }
}
