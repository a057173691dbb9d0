//! The counters: what a launch asked of memory, how its loops ran and how its warps diverged.
//!
//! `rules` says how many sectors and wavefronts an access of a warp takes, `plan` which loops a kernel's code has, `tally` adds
//! up what blocks did, `block` is the observer of a block, and `counters` what is handed out at the end.
//!
//! Everything is a sum, a least or a largest value over warps, blocks or waves of blocks, so that it is the same whichever
//! thread runs which block. The interpreter calls the observer only where a launch is counted, as it does for the checker.

mod block;
mod counters;
mod lines;
mod plan;
mod rules;
mod tally;

pub(crate) use block::Counter;
pub use counters::{Access, AccessClass, Counters, Loop, Place, Spread, Traffic, Wait};
pub(crate) use plan::Plan;
