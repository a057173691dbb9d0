//! Tests of the built program as a user runs it.

mod bad_data;
mod commands;
mod common;
mod compare;
mod datasets;
mod faults;
mod find_batch;
mod live;
mod names;
mod profile;
mod program;
mod replay;
mod report;
mod resume;
mod runs;
mod signals;
mod tasks;
mod text;
mod training;
mod weights;
