//! The settings of a run of `cargo xtask bench`.

use super::framework::Framework;

/// The settings that all rows are measured with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) threads: usize,
    pub(super) quick: bool,
    pub(super) peers: bool,
    pub(super) rounds: usize,
    /// Seconds of a turn.
    pub(super) seconds: f64,
}

impl Plan {
    /// The frameworks of `who` that take part: none of them without peers.
    pub(super) fn peers(self, who: &'static [Framework]) -> &'static [Framework] {
        if self.peers { who } else { &[] }
    }
}
