//! Weights in files and in dictionaries: what loads where, and what does not fit.

mod error;
mod file;
mod load;
mod torch;

pub use error::{LoadReport, Mismatch, WeightsError};
pub use file::{Metadata, decode, encode, read, write};
pub use load::{Layout, LoadOptions};
pub use torch::{columns_from_torch, columns_to_torch};

pub(crate) use load::load_state_dict;
pub(crate) use torch::torch_state_dict;
