//! File formats. Every file is untrusted: sizes are computed with overflow checks and compared with the file's size and
//! with a limit before anything is allocated, and data after what the header announces is an error.

mod cifar;
mod clip;
mod clip_folder;
mod coco;
pub mod csv;
mod frames;
mod gif;
mod ids;
pub mod idx;
mod image;
mod image_folder;
mod input;
mod letterbox;
pub mod mnist;
mod object;
mod objects;
mod questions;
mod resize;
mod squad;
mod text;
mod text_pieces;
mod text_windows;
mod token_files;
mod tokens;
mod voc;
mod vocabulary;
mod y4m;
mod yolo;

pub use cifar::Cifar;
pub use clip::decode_clip;
pub use clip_folder::ClipFolder;
pub(crate) use coco::read as read_coco;
pub use frames::{Clip, ClipOptions};
pub(crate) use image::image_shape;
pub use image::{Decoded, ImageLimits, decode_image};
pub(crate) use image_folder::is_image;
pub use image_folder::{ImageFolder, ImageFolderOptions};
pub use letterbox::Letterbox;
pub use object::Object;
pub use objects::{ObjectImages, ObjectImagesOptions, Picture, Pictures};
pub(crate) use questions::{All as AllQuestions, Asked, Context, Paragraph};
pub use questions::{Question, Questions};
pub(crate) use resize::Scaling;
pub use resize::resize_bilinear;
pub(crate) use squad::read as read_squad;
pub use text::TextFile;
pub use text_windows::TextWindows;
pub use token_files::{TokenIndex, TokenPart, TokenizeStep, write_tokens};
pub(crate) use token_files::{is_token_folder, open_tokens};
pub use tokens::{SpecialTokens, TextTokenizer, TokenStream, TokenizerChoice, Tokens};
pub(crate) use voc::{annotations as voc_annotations, read as read_voc};
pub use vocabulary::Vocabulary;
pub(crate) use yolo::{Listing as YoloListing, read as read_yolo};

/// The default limit on the bytes read from one file: 1 GiB, some twenty times MNIST.
pub const DEFAULT_MAX_BYTES: u64 = 1 << 30;
