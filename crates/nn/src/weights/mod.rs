//! Weights in safetensors files and in dictionaries: reading, writing, and loading into a model.

mod convert;
mod error;
mod file;
mod header;
mod load;
mod read;
mod snapshot;
mod torch;

pub use error::{LoadReport, Mismatch, WeightsError};
pub use file::{encode, write};
pub use header::Metadata;
pub use load::LoadOptions;
pub use read::{WeightsFile, decode, read};
pub use snapshot::Snapshot;
pub use torch::{Layout, columns_from_torch, columns_to_torch};

pub(crate) use load::load_state_dict;
pub(crate) use torch::torch_state_dict;
