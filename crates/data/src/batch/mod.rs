//! Batches of any kind: their arrays in host memory, and the same values on a device.

mod any;
mod array;
mod containers;
mod fields;
mod host;
mod images;
mod labelled;
mod values;

pub use any::{AnyBatch, AnyBatchOn};
pub use fields::{ArraysOf, Fields};
pub use host::{Batch, Layout, arrays_of, storage};
pub use labelled::{Labelled, LabelledOn};
pub use values::{HostArray, OnDevice, OnDeviceMut};
