//! Copies of `cp.async` that are under way.

/// One lane's copy that was issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) lane: u32,
    /// The group that it was issued in, counted for its lane.
    pub(crate) group: u32,
    pub(crate) from: u64,
    /// Host address of its shared bytes.
    pub(crate) to: u64,
    pub(crate) size: u32,
    /// Bytes that are read; the rest is zero.
    pub(crate) read: u32,
}

/// The copies of a warp that are under way, in the order of their issue.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub(crate) pending: Vec<Copy>,
    /// Groups that each lane has committed.
    pub(crate) committed: [u32; 32],
}

impl Copies {
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.committed = [0; 32];
    }
}
