//! The networks that Kiln ships, generic over the backend: one file for each network and its recipe, and a table of all
//! ([`Model`]).
//!
//! ```
//! use kiln_cpu::Cpu;
//! use kiln_models::Model;
//! use kiln_nn::Module;
//!
//! # fn main() -> kiln_core::Result<()> {
//! let cpu = Cpu::new();
//! let net = Model::Lenet.build(&cpu, 0)?;
//! let logits = net.forward(&Model::Lenet.zeros(&cpu, 4)?)?;
//! assert_eq!(logits.shape().dims(), [4, 10]);
//! assert_eq!(net.num_parameters(), 62_006);
//! # Ok(())
//! # }
//! ```

mod by_name;
mod card;
mod gpt;
mod lenet;
mod mnist_cnn;
mod net;
mod optimizer;
mod recipe;
mod registry;
mod resnet;
mod sample;
mod vgg;

pub use card::{Card, InputKind};
pub use gpt::{Attention, Gpt, GptBlock, GptConfig, Mlp};
pub use lenet::Lenet;
pub use mnist_cnn::MnistCnn;
pub use net::{Input, LanguageModel, Net};
pub use optimizer::{OptimizerKind, OptimizerOptions};
pub use recipe::{Augment, DataKind, MetricKind, Recipe, ScheduleKind};
pub use registry::Model;
pub use resnet::{BasicBlock, ResNet18, Shortcut};
pub use sample::Sampler;
pub use vgg::Vgg11;
