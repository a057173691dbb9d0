//! Fuzz targets: untrusted files, kernel images and programs of ops, each a function of bytes that may fail but not panic.
//!
//! The same [`TARGETS`] are run by the test suite, a few seconds of them, by `cargo xtask fuzz`, as long as one likes, and by
//! libFuzzer (`libfuzzer/`). An input is a seed with changes ([`mutate`]) that a number decides, so
//! every run can be repeated.

mod bytes;
pub mod mutate;
pub mod search;
mod targets;

pub use bytes::Bytes;
pub use targets::{TARGETS, Target, target};
