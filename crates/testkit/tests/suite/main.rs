//! The tests of the crate's checks and lists.

mod misfit;
mod negative;
mod suites;
