//! One file per command.

mod answers;
mod asked;
pub(crate) mod average;
mod boxes;
pub(crate) mod datasets;
pub(crate) mod devices;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod eval;
mod fill;
pub(crate) mod find_batch;
pub(crate) mod find_lr;
pub(crate) mod forecast;
pub(crate) mod generate;
pub(crate) mod models;
pub(crate) mod predict;
pub(crate) mod profile;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod summary;
pub(crate) mod sweep;
mod tags;
pub(crate) mod tokenize;
pub(crate) mod train;
pub(crate) mod transcribe;
pub(crate) mod verify_resume;
