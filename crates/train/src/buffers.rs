//! Saves the values that a forward pass changes in a model, so that an abandoned step can be undone.

use kiln_core::{Backend, Result};
use kiln_nn::{Entry, Indices, Module, Tensor, Walk};

/// A snapshot of a model's buffers and counters: running statistics, and the step counts of random layers.
pub(crate) struct Buffers<B: Backend> {
    states: Vec<Tensor<B>>,
    counters: Vec<Indices<B>>,
}

impl<B: Backend> Buffers<B> {
    /// Takes a snapshot. Its memory is shared with the model until the model changes the values.
    pub(crate) fn of<M: Module<B> + ?Sized>(model: &M) -> Self {
        let (mut states, mut counters) = (Vec::new(), Vec::new());
        model.walk(&mut Walk::new(&mut |_, entry| match entry {
            Entry::State(s) => states.push(s.get()),
            Entry::Counter(c) => counters.push(c.get()),
            Entry::Param(_) | Entry::Mode(_) => {}
        }));
        Buffers { states, counters }
    }

    /// As [`of`](Buffers::of), in memory of its own.
    pub(crate) fn copy_of<M: Module<B> + ?Sized>(model: &M) -> Result<Self> {
        let Buffers { states, counters } = Buffers::of(model);
        Ok(Buffers {
            states: states.iter().map(Tensor::copy).collect::<Result<_>>()?,
            counters: counters.iter().map(Indices::copy).collect::<Result<_>>()?,
        })
    }

    /// Restores the values where `found_inf`, i32 `[1]`, is not 0, by device work alone.
    pub(crate) fn restore_where<M: Module<B> + ?Sized>(self, model: &M, found_inf: &Indices<B>) -> Result<()> {
        let mask = found_inf.reshape(())?.to_mask()?;
        let (mut states, mut counters) = (self.states.into_iter(), self.counters.into_iter());
        let mut result = Ok(());
        model.walk(&mut Walk::new(&mut |_, entry| {
            let done = match entry {
                Entry::State(s) => states.next().map_or(Ok(()), |kept| {
                    let chosen = Tensor::where_(&mask, &kept, &s.get())?;
                    s.assign(&chosen)
                }),
                Entry::Counter(c) => counters.next().map_or(Ok(()), |kept| {
                    let chosen = Indices::where_(&mask, &kept, &c.get())?;
                    c.assign(&chosen)
                }),
                Entry::Param(_) | Entry::Mode(_) => Ok(()),
            };
            if result.is_ok() {
                result = done;
            }
        }));
        result
    }

    /// True if the model has buffers or counters.
    pub(crate) fn any(&self) -> bool {
        !self.states.is_empty() || !self.counters.is_empty()
    }

    /// Restores the values of the model that the snapshot was taken of.
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
