//! Fuzz targets: untrusted files, kernel images and programs of ops, each a function of bytes that may fail but not panic.
//!
//! The same [`TARGETS`] are run by the test suite for a few seconds, by `cargo xtask fuzz` for any time, and by libFuzzer
//! (`libfuzzer/`). The test suite and `cargo xtask fuzz` change seeds ([`mutate`]) in a way that depends on a number alone, so
//! every run can be repeated.

mod bytes;
pub mod mutate;
pub mod search;
mod targets;

pub use bytes::Bytes;
pub use targets::{TARGETS, Target, target};
