//! Event files of TensorBoard: [`SummaryWriter`] for loops of your own, as `torch.utils.tensorboard` has it, and [`TensorBoard`], a
//! callback of the trainer.
//!
//! ```
//! use kiln_tensorboard::SummaryWriter;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = std::env::temp_dir().join(format!("kiln-tensorboard-doc-{}", std::process::id()));
//! # let folder = parent.join("run");
//! let mut writer = SummaryWriter::new(&folder)?;
//! writer.add_text("config", "lr = 0.001", 0)?;
//! for step in 0..10 {
//!     writer.add_scalar("loss/train", 1.0 / (step + 1) as f64, step)?;
//!     writer.add_histogram("weight", &[-0.5, 0.25, 1.0], step)?;
//! }
//! writer.add_image("digit", &[0.0_f32, 0.5, 0.5, 1.0], [2, 2, 1], 9)?;
//! writer.flush()?;
//! # std::fs::remove_dir_all(parent)?;
//! # Ok(())
//! # }
//! ```
//!
//! `tensorboard --logdir FOLDER` shows them, also while the run goes on.

mod callback;
mod error;
mod event;
mod histogram;
mod image;
mod proto;
mod record;
mod writer;

pub use callback::{TensorBoard, View};
pub use error::{Result, TensorBoardError};
pub use image::Pixel;
pub use writer::{SummaryWriter, SummaryWriterBuilder};
