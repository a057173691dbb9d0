//! Images that stay on a device as bytes, and batches that are made of them there.

mod images;
mod windows;

pub use images::DeviceImages;
pub(crate) use windows::Home;
pub use windows::Windows;
