//! File formats. Every file is untrusted: sizes are multiplied with checks, compared with what the file can hold and
//! with a limit before anything is allocated, and data beyond what the header announces is an error.

pub mod cifar;
pub mod csv;
pub mod idx;
mod image;
mod image_folder;
mod input;
pub mod mnist;
mod resize;
mod text;

pub use image::{Decoded, ImageLimits, decode_image};
pub use image_folder::{ImageFolder, ImageFolderOptions};
pub use resize::resize_bilinear;
pub use text::{TextFile, TextWindows, Vocabulary};

/// Bytes that a reader accepts in one file by default: 1 GiB, some twenty times MNIST.
pub const DEFAULT_MAX_BYTES: u64 = 1 << 30;
