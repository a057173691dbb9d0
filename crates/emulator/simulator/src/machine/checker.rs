//! The checker of a launch.

use super::warp::{Env, Observer};
use crate::Fault;

/// The checker of one launch. Its blocks run on several threads and share it.
pub(crate) trait LaunchChecker: Sync {
    /// The observer of the block with this index in the grid.
    fn block(&self, index: [u32; 3]) -> Box<dyn Observer>;

    /// The findings in blocks up to the one with this number, counted in the grid's order.
    fn findings(&self, last: u64) -> Vec<Fault>;
}

/// Makes the checker of a launch.
pub(crate) type MakeChecker = fn(&Env<'_>) -> Box<dyn LaunchChecker>;
