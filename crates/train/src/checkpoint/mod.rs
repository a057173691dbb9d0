//! Checkpoints: everything that a run needs to go on as if it had never stopped.
//!
//! A checkpoint is a safetensors file and a JSON manifest beside it, which is written last: a checkpoint without a manifest does
//! not exist. The format is described in `docs/checkpoints.md`.

mod manifest;
mod memory;
mod snapshot;
mod store;
mod writer;

pub use manifest::Manifest;
pub use store::Checkpoint;

pub(crate) use manifest::{EpochState, Mean, MetricState, NormState, PhaseState, ProgressState, TensorFile};
pub(crate) use memory::{EpochStart, Kept};
pub(crate) use store::contents;
pub(crate) use writer::Writer;
