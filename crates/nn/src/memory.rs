//! Device memory that tensors share, and where the values lie that outlive a step.

use crate::module::{Entry, Module, Walk};
use crate::{Backend, Counter, Indices, Optimizer, Result, State, Tensor};
use kiln_core::Buffer;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer with a number of its own. The number is never given again, an address may be.
pub(crate) struct Memory<Buf> {
    id: u64,
    buffer: Buf,
}

impl<Buf> Memory<Buf> {
    pub(crate) fn new(buffer: Buf) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Memory { id, buffer })
    }
}

impl<Buf> Deref for Memory<Buf> {
    type Target = Buf;
    fn deref(&self) -> &Buf {
        &self.buffer
    }
}

/// The buffer for writing in place. When others share it they keep the old values: `memory` moves to a copy.
pub(crate) fn own<'a, B: Backend>(backend: &B, memory: &'a mut Arc<Memory<B::Buffer>>) -> Result<&'a mut B::Buffer> {
    if Arc::get_mut(memory).is_none() {
        let mut copy = backend.alloc(memory.dtype(), memory.len())?;
        backend.copy(memory, &mut copy)?;
        *memory = Memory::new(copy);
    }
    match Arc::get_mut(memory) {
        Some(memory) => Ok(&mut memory.buffer),
        None => unreachable!("the copy above is not shared"),
    }
}

/// Where the values lie that a step reads and writes from one run to the next: parameters, buffers, optimizer state,
/// input slots.
///
/// A captured step ([`Runtime::capture`](kiln_core::Runtime::capture)) repeats on the same memory. It may be replayed
/// while the places are [`fixed`](Places::fixed) and equal those after its capture: values written in place stay where
/// they are, values that something shares (a [`StateDict`](crate::module::StateDict) that is still held) move to a copy
/// when they are next written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    ids: Vec<u64>,
    shared: bool,
}

impl Places {
    /// None yet.
    pub fn new() -> Self {
        Places::default()
    }

    /// Whether nothing shares a value that a step writes: then writing does not move it.
    pub fn fixed(&self) -> bool {
        !self.shared
    }

    /// Adds the parameters, buffers and counters of `module`. Those that train and those that a forward pass may change
    /// count as written.
    pub fn module<B: Backend>(&mut self, module: &(impl Module<B> + ?Sized)) {
        module.walk(&mut Walk::new(&mut |_, entry| match entry {
            Entry::Param(p) if p.is_trainable() => self.tensor(p.tensor()),
            Entry::Param(p) => self.numbers(&[0, p.tensor().memory().id]),
            Entry::State(s) => self.state(s),
            Entry::Counter(c) => self.counter(c),
            Entry::Mode(mode) => self.numbers(&[u64::from(mode.is_training())]),
        }));
    }

    /// Adds what `optimizer` keeps on the device.
    pub fn optimizer<B: Backend>(&mut self, optimizer: &(impl Optimizer<B> + ?Sized)) {
        optimizer.places(self);
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
        self.ids.push(memory.id);
        self.shared |= Arc::strong_count(memory) > 1;
    }
}
