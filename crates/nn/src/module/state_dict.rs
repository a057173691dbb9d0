//! State dictionaries: the parameters, buffers and counters of a model by dotted name.

use super::walk::{Entry, Walk, Walkable};
use crate::{Backend, DType, Indices, Result, Shape, Tensor};
use std::collections::BTreeMap;

/// An entry of a state dictionary.
#[derive(Clone, Debug)]
pub enum Value<B: Backend> {
    /// A parameter or a buffer.
    Float(Tensor<B>),
    /// A counter.
    Int(Indices<B>),
}

impl<B: Backend> From<&Tensor<B>> for Value<B> {
    fn from(tensor: &Tensor<B>) -> Self {
        Value::Float(tensor.detach())
    }
}

impl<B: Backend> From<&Indices<B>> for Value<B> {
    fn from(indices: &Indices<B>) -> Self {
        Value::Int(indices.clone())
    }
}

impl<B: Backend> Value<B> {
    /// The dimensions.
    pub fn shape(&self) -> &Shape {
        match self {
            Value::Float(t) => t.shape(),
            Value::Int(i) => i.shape(),
        }
    }

    /// The backend that the values lie on.
    pub fn backend(&self) -> &B {
        match self {
            Value::Float(t) => t.backend(),
            Value::Int(i) => i.backend(),
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match self {
            Value::Float(t) => t.dtype(),
            Value::Int(i) => i.dtype(),
        }
    }
}

/// Tensors by dotted name, sorted by name. A dictionary shares memory with the model that it came from until that model
/// changes: a snapshot without a copy.
///
/// A model that changes while a snapshot is held moves to new memory, which invalidates a captured step. A snapshot that is
/// kept during training, such as an average of weights, should be a [`copy`](StateDict::copy).
#[derive(Clone, Debug)]
pub struct StateDict<B: Backend> {
    entries: BTreeMap<String, Value<B>>,
}

impl<B: Backend> Default for StateDict<B> {
    fn default() -> Self {
        StateDict {
            entries: BTreeMap::new(),
        }
    }
}

impl<B: Backend> StateDict<B> {
    /// A dictionary without entries.
    pub fn new() -> Self {
        StateDict::default()
    }

    /// The contents of `module`: parameters, buffers and counters.
    pub fn of(module: &(impl Walkable<B> + ?Sized)) -> Self {
        let mut dict = StateDict::new();
        module.walk(&mut Walk::new(&mut |name, entry| match entry {
            Entry::Param(p) => dict.insert(name, Value::Float(p.tensor().detach())),
            Entry::State(s) => dict.insert(name, Value::Float(s.get())),
            Entry::Counter(c) => dict.insert(name, Value::Int(c.get())),
            Entry::Mode(_) => {}
        }));
        dict
    }

    /// The same values in memory of their own.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn copy(&self) -> Result<Self> {
        let copied = |value: &Value<B>| match value {
            Value::Float(t) => t.copy().map(Value::Float),
            Value::Int(i) => i.copy().map(Value::Int),
        };
        let entries = self.entries.iter().map(|(name, v)| Ok((name.clone(), copied(v)?)));
        Ok(StateDict {
            entries: entries.collect::<Result<_>>()?,
        })
    }

    /// Adds an entry, or replaces the one with this name.
    pub fn insert(&mut self, name: impl Into<String>, value: Value<B>) {
        self.entries.insert(name.into(), value);
    }

    /// The entry with this name.
    pub fn get(&self, name: &str) -> Option<&Value<B>> {
        self.entries.get(name)
    }

    /// The entry with this name if it is a [`Value::Float`].
    pub fn float(&self, name: &str) -> Option<&Tensor<B>> {
        match self.get(name)? {
            Value::Float(t) => Some(t),
            Value::Int(_) => None,
        }
    }

    /// The entry with this name if it is a [`Value::Int`].
    pub fn int(&self, name: &str) -> Option<&Indices<B>> {
        match self.get(name)? {
            Value::Int(i) => Some(i),
            Value::Float(_) => None,
        }
    }

    /// Removes and returns the entry with this name.
    pub fn remove(&mut self, name: &str) -> Option<Value<B>> {
        self.entries.remove(name)
    }

    /// Every entry, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value<B>)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries whose names begin with `prefix.`, under their names without it: one part of a checkpoint.
    pub fn part(&self, prefix: &str) -> Self {
        let inside = |name: &str| Some(name.strip_prefix(prefix)?.strip_prefix('.')?.to_string());
        let entries = self
            .entries
            .iter()
            .filter_map(|(name, v)| Some((inside(name)?, v.clone())))
            .collect();
        StateDict { entries }
    }

    /// Adds every entry of `other`, with `prefix.` before its name.
    pub fn insert_part(&mut self, prefix: &str, other: StateDict<B>) {
        for (name, value) in other.entries {
            self.insert(format!("{prefix}.{name}"), value);
        }
    }
}
