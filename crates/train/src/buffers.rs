//! The values that a forward pass changes in a model, kept so that a step that is not made can be taken back.

use kiln_core::{Backend, Result};
use kiln_nn::{Entry, Indices, Module, Tensor, Walk};

/// The buffers and counters of a model as they were: running statistics, and how often random layers have drawn.
pub(crate) struct Buffers<B: Backend> {
    states: Vec<Tensor<B>>,
    counters: Vec<Indices<B>>,
}

impl<B: Backend> Buffers<B> {
    /// The present values, in the model's order. Memory is shared until the model changes them.
    pub(crate) fn of<M: Module<B> + ?Sized>(model: &M) -> Self {
        let (mut states, mut counters) = (Vec::new(), Vec::new());
        model.walk(&mut Walk::new(&mut |_, entry| match entry {
            Entry::State(s) => states.push(s.get()),
            Entry::Counter(c) => counters.push(c.get()),
            Entry::Param(_) | Entry::Mode(_) => {}
        }));
        Buffers { states, counters }
    }

    /// True if there are any.
    pub(crate) fn any(&self) -> bool {
        !self.states.is_empty() || !self.counters.is_empty()
    }

    /// Gives the values back to the model they were taken from.
    pub(crate) fn restore<M: Module<B> + ?Sized>(self, model: &M) -> Result<()> {
        let (mut states, mut counters) = (self.states.iter(), self.counters.iter());
        let mut result = Ok(());
        model.walk(&mut Walk::new(&mut |_, entry| {
            let done = match entry {
                Entry::State(s) => states.next().map_or(Ok(()), |kept| s.assign(kept)),
                Entry::Counter(c) => counters.next().map_or(Ok(()), |kept| c.assign(kept)),
                Entry::Param(_) | Entry::Mode(_) => Ok(()),
            };
            if result.is_ok() {
                result = done;
            }
        }));
        result
    }
}
