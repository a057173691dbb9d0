//! The memory that outlives a step, as captured steps compare it.

use crate::memory::Memory;
use crate::module::{Counter, Entry, Module, State, Walk};
use crate::{Indices, Tensor};
use kiln_core::Backend;
use std::sync::Arc;

/// The memory of everything that a step reads and writes from one run to the next: parameters, buffers, optimizer state,
/// input slots.
///
/// A captured step ([`Runtime::capture`](kiln_core::Runtime::capture)) repeats on the same memory. It may be replayed
/// while a snapshot is [`fixed`](StorageSnapshot::fixed) and equals that after its capture: values written in place stay where
/// they are, values that something shares (a [`StateDict`](crate::module::StateDict) that is still held) move to a copy
/// when they are next written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSnapshot {
    ids: Vec<u64>,
    shared: bool,
}

impl StorageSnapshot {
    /// Of nothing yet.
    pub fn new() -> Self {
        StorageSnapshot::default()
    }

    /// True if nothing shares a value that a step writes: then writing does not move it.
    pub fn fixed(&self) -> bool {
        !self.shared
    }

    /// Adds the parameters, buffers and counters of `module`. Those that train and those that a forward pass may change
    /// count as written.
    pub fn module<B: Backend>(&mut self, module: &(impl Module<B> + ?Sized)) {
        module.walk(&mut Walk::new(&mut |_, entry| match entry {
            Entry::Param(p) if p.is_trainable() => self.tensor(p.tensor()),
            Entry::Param(p) => self.numbers(&[0, p.tensor().memory().id()]),
            Entry::State(s) => self.state(s),
            Entry::Counter(c) => self.counter(c),
            Entry::Mode(mode) => self.numbers(&[u64::from(mode.is_training())]),
        }));
    }

    /// Adds a tensor that is written.
    pub fn tensor<B: Backend>(&mut self, tensor: &Tensor<B>) {
        self.memory(tensor.memory());
    }

    /// Adds an integer tensor that is written.
    pub fn indices<B: Backend>(&mut self, indices: &Indices<B>) {
        self.memory(indices.memory());
    }

    /// Adds a buffer.
    pub fn state<B: Backend>(&mut self, state: &State<B>) {
        state.with(|tensor| self.tensor(tensor));
    }

    fn counter<B: Backend>(&mut self, counter: &Counter<B>) {
        counter.with(|indices| self.indices(indices));
    }

    /// Adds anything else that must be what it was.
    pub(crate) fn numbers(&mut self, numbers: &[u64]) {
        self.ids.extend(numbers);
    }

    fn memory<Buf>(&mut self, memory: &Arc<Memory<Buf>>) {
        self.ids.push(memory.id());
        self.shared |= Arc::strong_count(memory) > 1;
    }
}
