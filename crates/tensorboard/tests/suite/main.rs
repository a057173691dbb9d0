//! The tests of the crate.

mod callback;
mod golden;
mod reader;
