//! The networks that Kiln ships, generic over the backend: one file for each network, its recipe and its task, and a table of
//! all ([`Model`]).
//!
//! A task says how samples become batches, which losses a step has and which parameters each of them trains, what is measured, and
//! what the network makes to look at: classes of images, images, text. [`Net`] is a network with its task, of whatever kind.
//!
//! ```
//! use kiln_cpu::Cpu;
//! use kiln_models::Model;
//! use kiln_nn::{DType, Module, Tensor};
//!
//! # fn main() -> kiln_core::Result<()> {
//! let cpu = Cpu::new();
//! let net = Model::Lenet.build(&cpu, 0)?;
//! let images = Tensor::zeros(&cpu, &[4, 32, 32, 3], DType::F32)?;
//! let logits = net.classify(&images).expect("lenet tells classes apart")?;
//! assert_eq!(logits.shape().dims(), [4, 10]);
//! assert_eq!(net.num_parameters(), 62_006);
//! # Ok(())
//! # }
//! ```

mod bert;
mod bert_classifier;
mod bert_encoder;
mod bert_mini;
mod bert_reader;
mod bert_tagger;
mod by_name;
mod card;
mod classes;
mod conv_lstm;
mod dcgan;
mod deep_speech;
mod detection;
mod faster_rcnn;
mod generate;
mod gpt;
mod gpt2;
mod images;
mod kinds;
mod language;
mod lenet;
mod masked;
mod mlp;
mod mnist_cnn;
mod mobilenet_v2;
mod net;
mod optimizer;
mod padded;
mod published;
mod recipe;
mod registry;
mod regression;
mod resnet;
mod sample;
mod spans;
mod speech;
mod squares;
mod steps;
mod stylegan2;
mod task;
mod text;
mod tied;
mod transformer;
mod transformer_small;
mod translation;
mod twin;
mod vae;
mod vgg;
mod video_resnet;
mod wgan_gp;
mod wgan_gp_conv;
mod wide_resnet;
mod yolo;

pub use bert::{Bert, BertConfig, BertHead, BertPredictions, BertTransform};
pub use bert_classifier::BertClassifier;
pub use bert_encoder::{
    BertAttention, BertEmbeddings, BertEncoder, BertIntermediate, BertLayer, BertModel, BertOutput, BertPooler,
    BertSelfAttention,
};
pub use bert_reader::BertReader;
pub use bert_tagger::BertTagger;
pub use card::{Card, Form, Shown};
pub use conv_lstm::{ConvLstm, ConvLstmConfig};
pub use dcgan::{Dcgan, DcganConfig, DcganSide};
pub use deep_speech::{DeepSpeech2, DeepSpeech2Config, SpeechLayer};
pub use faster_rcnn::{BodyConfig, FasterRcnn, FasterRcnnConfig, FasterRcnnLosses, RoiConfig, RpnConfig};
pub use generate::Generator;
pub use gpt::{Attention, Gpt, GptBlock, GptConfig, Mlp};
pub use gpt2::{Gpt2, Gpt2Attention, Gpt2Block, Gpt2Config, Gpt2Mlp, Gpt2Transformer};
pub(crate) use kinds::NetSizes;
pub use kinds::{Input, OutputKind};
pub use language::{LanguageModel, TextCache};
pub use lenet::Lenet;
pub use mlp::Perceptron;
pub use mnist_cnn::MnistCnn;
pub use mobilenet_v2::{ConvNormRelu6, InvertedResidual, MobileNetV2, MobileNetV2Config, MobileNetV2Stage};
pub use net::{AnyTask, Look, Net, OneBatch, Update};
pub use optimizer::{OptimizerKind, OptimizerOptions, OptionValue};
pub use published::published;
pub use recipe::{Augment, PhaseOptions, PhaseRecipe, Recipe, ScheduleKind};
pub use registry::Model;
pub use resnet::{ResNet, ResNetBlock, ResNetConfig, ResNetStem, Shortcut};
pub use sample::Sampler;
pub use spans::{Answer, LONGEST_ANSWER, best_span};
pub use steps::{Part, Steps};
pub use stylegan2::{
    DiscriminatorBlock, DiscriminatorEpilogue, EqualConv, EqualLinear, StyleDiscriminator, StyleGan2, StyleGan2Config,
    StyleGenerator, StyleMapping, Synthesis, SynthesisBlock, SynthesisLayer, ToRgb,
};
pub use task::Batches;
pub use transformer::{Seq2Seq, Seq2SeqConfig};
pub use vae::Vae;
pub use vgg::{Vgg, VggConfig, VggHead};
pub use video_resnet::{
    FactoredConv, NormedVideoConv, VideoBlock, VideoConv, VideoResNet, VideoResNetConfig, VideoShortcut, VideoStem,
};
pub use wgan_gp::WganGp;
pub use wide_resnet::{PreActivationBlock, WideResNet, WideResNetConfig};
pub use yolo::{Yolo, YoloConfig, YoloLosses, YoloTargets};
