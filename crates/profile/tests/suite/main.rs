//! The tests of the crate.

mod half_copies;
mod pieces;
mod step;
