//! The position of a batch in a run.

/// A position in a run: the batch that comes next. Given to [`Loader::resume`](super::Loader::resume), a position saved
/// with a checkpoint continues with the same batches as an uninterrupted run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The next batch of the epoch, from 0.
    pub batch: u64,
}
