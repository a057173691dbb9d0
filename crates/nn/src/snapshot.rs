//! Identification of the memory that outlives a training step, by which captured steps see that it has moved.

use crate::memory::Memory;
use crate::module::{Counter, Entries, Entry, Module, State, entries};
use crate::{Indices, Tensor};
use kiln_core::Backend;
use std::sync::Arc;

/// The identity of all memory that a training step reads or writes and that outlives it: parameters, buffers, optimizer state,
/// input tensors.
///
/// A captured step ([`Runtime::capture`](kiln_core::Runtime::capture)) repeats on the same memory. It may be replayed
/// while a new snapshot is [`fixed`](StorageSnapshot::fixed) and equals the one taken after its capture. Values written
/// in place do not move, but values that something else shares (such as a [`StateDict`](crate::module::StateDict) that is
/// still held) move to a copy when they are next written.
///
/// ```
/// # use kiln_nn::{Init, Module, StorageSnapshot, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// let layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
/// let snapshot = || {
///     let mut snapshot = StorageSnapshot::new();
///     snapshot.module(&layer);
///     snapshot
/// };
/// assert!(snapshot().fixed() && snapshot() == snapshot());
/// let held = layer.state_dict(); // the next update of the layer moves it to new memory
/// assert!(!snapshot().fixed());
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSnapshot {
    ids: Vec<u64>,
    shared: bool,
}

impl StorageSnapshot {
    /// A snapshot of no memory, to which memory is added.
    ///
    /// See the example of [`StorageSnapshot`].
    pub fn new() -> Self {
        StorageSnapshot::default()
    }

    /// True if nothing else shares memory that a step writes, so that writing does not move it.
    ///
    /// See the example of [`StorageSnapshot`].
    pub fn fixed(&self) -> bool {
        !self.shared
    }

    /// Adds the parameters, buffers, counters and modes of `module`. Trainable parameters, buffers and counters count as
    /// written by the step.
    ///
    /// See the example of [`StorageSnapshot`].
    pub fn module<B: Backend>(&mut self, module: &(impl Module<B> + ?Sized)) {
        self.entries(&entries(module));
    }

    fn entries<B: Backend>(&mut self, entries: &Entries<'_, B>) {
        for (_, entry) in entries {
            match entry {
                Entry::Param(p) if p.is_trainable() => self.tensor(p.tensor()),
                Entry::Param(p) => {
                    let memory = p.tensor().memory();
                    self.numbers(&[0, memory.id(), memory.half_in_use().0]);
                }
                Entry::State(s) => self.state(s),
                Entry::Counter(c) => self.counter(c),
                Entry::Mode(mode) => self.numbers(&[u64::from(mode.is_training())]),
            }
        }
    }

    /// Adds a tensor that the step writes.
    ///
    /// ```
    /// # use kiln_nn::{DType, StorageSnapshot, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, mut snapshot) = (Tensor::zeros(&cpu, &[2], DType::F32)?, StorageSnapshot::new());
    /// snapshot.tensor(&x);
    /// assert!(snapshot.fixed());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn tensor<B: Backend>(&mut self, tensor: &Tensor<B>) {
        self.memory(tensor.memory());
    }

    /// Adds an integer tensor that the step writes.
    ///
    /// ```
    /// # use kiln_nn::{Indices, StorageSnapshot};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (labels, mut snapshot) = (Indices::from_slice(&cpu, &[1i32, 2], &[2])?, StorageSnapshot::new());
    /// snapshot.indices(&labels);
    /// assert!(snapshot.fixed());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn indices<B: Backend>(&mut self, indices: &Indices<B>) {
        self.memory(indices.memory());
    }

    /// Adds a buffer.
    ///
    /// ```
    /// # use kiln_nn::{DType, State, StorageSnapshot, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (mean, mut snapshot) = (State::new(Tensor::zeros(&cpu, &[2], DType::F32)?), StorageSnapshot::new());
    /// snapshot.state(&mean);
    /// assert!(snapshot.fixed());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn state<B: Backend>(&mut self, state: &State<B>) {
        state.with(|tensor| self.tensor(tensor));
    }

    fn counter<B: Backend>(&mut self, counter: &Counter<B>) {
        counter.with(|indices| self.indices(indices));
    }

    /// Adds numbers that must be equal for a replay.
    pub(crate) fn numbers(&mut self, numbers: &[u64]) {
        self.ids.extend(numbers);
    }

    fn memory<Buf>(&mut self, memory: &Arc<Memory<Buf>>) {
        // A step reads the copy of a parameter in half precision only while it is up to date.
        let (half, half_shared) = memory.half_in_use();
        self.ids.extend([memory.id(), half]);
        self.shared |= Arc::strong_count(memory) > 1 || half_shared;
    }
}
