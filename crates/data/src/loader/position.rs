//! The place of a batch in a run.

/// A place in a run: which batch comes next. Saved with a checkpoint and given to [`Loader::resume`](super::Loader::resume), it goes on with
/// the very batches that an uninterrupted run would have seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The next batch of the epoch, from 0.
    pub batch: u64,
}
