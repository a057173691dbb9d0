//! Weights in files and in dictionaries: what loads where, and what does not fit.

mod convert;
mod error;
mod file;
mod header;
mod load;
mod read;
mod torch;

pub use error::{LoadReport, Mismatch, WeightsError};
pub use file::{Metadata, encode, write};
pub use load::{Layout, LoadOptions};
pub use read::{WeightsFile, decode, read};
pub use torch::{columns_from_torch, columns_to_torch};

pub(crate) use load::load_state_dict;
pub(crate) use torch::torch_state_dict;
