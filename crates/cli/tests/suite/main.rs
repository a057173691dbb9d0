//! Tests of the built program as a user runs it.

mod bad_data;
mod bert;
mod clips;
mod commands;
mod common;
mod compare;
mod datasets;
mod devices;
mod faults;
mod find_batch;
mod live;
mod lora;
mod names;
mod nvtx;
mod objects;
mod profile;
mod profiler;
mod program;
#[allow(dead_code)]
#[path = "../../../tensorboard/tests/suite/reader.rs"]
mod reader;
mod replay;
mod report;
mod resume;
mod runs;
mod signals;
mod speech;
mod tasks;
mod tensorboard;
mod text;
mod training;
mod translation;
mod weights;
