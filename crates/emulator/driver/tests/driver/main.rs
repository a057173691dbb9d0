//! The driver through its exported functions. Options are read once in a process, so each test runs in one of its own.

#[macro_use]
mod harness;
mod host_access;

mod capture;
mod cooperative;
mod counters;
mod errors;
mod graphs;
mod images;
mod launches;
mod libraries;
mod memory;
mod streams;
mod system;
mod tensor_maps;
mod trace;
