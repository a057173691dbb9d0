//! File formats. Every file is untrusted: sizes are computed with overflow checks and compared with the file's size and
//! with a limit before anything is allocated, and data after what the header announces is an error.

mod cifar;
pub mod csv;
mod ids;
pub mod idx;
mod image;
mod image_folder;
mod input;
pub mod mnist;
mod resize;
mod text;
mod tokens;
mod vocabulary;

pub use cifar::Cifar;
pub use image::{Decoded, ImageLimits, decode_image};
pub use image_folder::{ImageFolder, ImageFolderOptions};
pub use resize::resize_bilinear;
pub use text::{TextFile, TextWindows};
pub use tokens::{SpecialTokens, TextTokenizer, TokenStream, TokenizerChoice, Tokens};
pub use vocabulary::Vocabulary;

/// The default limit on the bytes read from one file: 1 GiB, some twenty times MNIST.
pub const DEFAULT_MAX_BYTES: u64 = 1 << 30;
