//! The table of networks, one row for each.

use crate::{Card, Input, Net, NetSizes, OutputKind, Recipe, Steps};
use crate::{text, twin};
use kiln_core::{Backend, Result};
use kiln_data::{Compose, Facts, Shared, Sizes};
use kiln_nn::Init;
use kiln_train::Twin;
use std::sync::OnceLock;

/// The card of a row.
macro_rules! card {
    ($file:ident) => {
        &crate::$file::CARD
    };
    ($file:ident $row:ident) => {
        &crate::$file::$row.card
    };
}

/// The network of a row with its task, of initial weights and sizes.
macro_rules! task {
    ($init:expr, $sizes:expr, $file:ident) => {
        crate::$file::task($init, $sizes)
    };
    ($init:expr, $sizes:expr, $file:ident $row:ident) => {
        crate::$file::task(&crate::$file::$row, $init, $sizes)
    };
}

/// Makes the enum, its names and its builders from rows `Name: "name" in file`; the file has a `CARD` and a `task`. A family of networks is
/// one file with several rows, `Name: "name" in file at ROW`, which its `task` takes.
macro_rules! registry {
    ($($(#[$doc:meta])* $model:ident: $name:literal in $file:ident $(at $row:ident)?;)*) => {
        /// The networks by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Model {
            $($(#[$doc])* $model,)*
        }

        impl Model {
            /// All networks.
            pub const ALL: [Model; [$($name),*].len()] = [$(Model::$model),*];

            /// The network's name on command lines and in benches: `resnet18`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Model::$model => $name,)*
                }
            }

            /// Facts about the network that are known before it is built.
            pub const fn card(self) -> &'static Card {
                match self {
                    $(Model::$model => card!($file $($row)?),)*
                }
            }

            /// The network in f32 with the initial weights of a seed, for data of these sizes; those that are `None` are its own.
            ///
            /// # Errors
            /// Sizes of 0, memory.
            pub fn build_for<B: Backend>(self, backend: &B, seed: u64, sizes: Sizes) -> Result<Net<B>> {
                let (init, sizes) = (Init::new(backend, seed), self.sizes(sizes));
                Ok(match self {
                    $(Model::$model => Net::new(task!(init, sizes, $file $($row)?)?),)*
                })
            }
        }
    };
}

registry! {
    /// The convolutional net of the Keras tutorials: [`MnistCnn`](crate::MnistCnn).
    MnistCnn: "mnist-cnn" in mnist_cnn;
    /// The net of the PyTorch tutorial: [`Lenet`](crate::Lenet).
    Lenet: "lenet" in lenet;
    /// ResNet-18 for images of 32×32: [`ResNet`](crate::ResNet) by [`ResNetConfig::small`](crate::ResNetConfig::small).
    ResNet18: "resnet18" in resnet at SMALL_18;
    /// VGG-11 with batch norm for images of 32×32: [`Vgg`](crate::Vgg) by [`VggConfig::small`](crate::VggConfig::small).
    Vgg11: "vgg11" in vgg at SMALL_11;
    /// A GPT of 6 layers over characters: [`Gpt`](crate::Gpt) by [`GptConfig::MINI`](crate::GptConfig::MINI).
    GptMini: "gpt-mini" in gpt;
    /// A variational autoencoder for digits: [`Vae`](crate::Vae).
    Vae: "vae" in vae;
    /// A Wasserstein GAN for digits: [`WganGp`](crate::WganGp).
    WganGp: "wgan-gp" in wgan_gp;
    /// A Wasserstein GAN of convolutions: [`WganGp`](crate::WganGp).
    WganGpConv: "wgan-gp-conv" in wgan_gp_conv;
    /// DCGAN: [`Dcgan`](crate::Dcgan) by [`DcganConfig::DIGITS`](crate::DcganConfig::DIGITS).
    Dcgan: "dcgan" in dcgan;
    /// StyleGAN2: [`StyleGan2`](crate::StyleGan2) by [`StyleGan2Config::SMALL`](crate::StyleGan2Config::SMALL).
    StyleGan2: "stylegan2" in stylegan2 at SMALL;
    /// A perceptron for rows of a table: [`Perceptron`](crate::Perceptron).
    Mlp: "mlp" in mlp;
    /// ResNet-50 for images of 224×224: [`ResNet`](crate::ResNet) by [`ResNetConfig::RESNET50`](crate::ResNetConfig::RESNET50).
    ResNet50: "resnet50" in resnet at R50;
    /// GPT-2 124M: [`Gpt2`](crate::Gpt2) by [`Gpt2Config::SMALL`](crate::Gpt2Config::SMALL).
    Gpt2: "gpt2" in gpt2;
    /// BERT-base: [`Bert`](crate::Bert) by [`BertConfig::BASE`](crate::BertConfig::BASE).
    BertBase: "bert-base" in bert;
    /// A small BERT: [`Bert`](crate::Bert) by [`BertConfig::MINI`](crate::BertConfig::MINI).
    BertMini: "bert-mini" in bert_mini;
    /// A small BERT for classes of texts: [`BertClassifier`](crate::BertClassifier).
    BertClassifier: "bert-classifier" in bert_classifier;
    /// A small BERT for tags of words: [`BertTagger`](crate::BertTagger).
    BertTagger: "bert-tagger" in bert_tagger;
    /// A small BERT that answers questions about texts: [`BertReader`](crate::BertReader).
    BertReader: "bert-reader" in bert_reader;
    /// A small DeepSpeech 2: [`DeepSpeech2`](crate::DeepSpeech2) by [`DeepSpeech2Config::SMALL`](crate::DeepSpeech2Config::SMALL).
    DeepSpeech2: "deepspeech2" in deep_speech;
    /// A small encoder-decoder for pairs of texts: [`Seq2Seq`](crate::Seq2Seq) by [`Seq2SeqConfig::SMALL`](crate::Seq2SeqConfig::SMALL).
    Transformer: "transformer" in transformer_small;
    /// ResNet-18 for images of 224×224: [`ResNetConfig::RESNET18`](crate::ResNetConfig::RESNET18).
    ResNet18Large: "resnet18-224" in resnet at R18;
    /// ResNet-34 for images of 224×224: [`ResNetConfig::RESNET34`](crate::ResNetConfig::RESNET34).
    ResNet34: "resnet34" in resnet at R34;
    /// ResNet-101 for images of 224×224: [`ResNetConfig::RESNET101`](crate::ResNetConfig::RESNET101).
    ResNet101: "resnet101" in resnet at R101;
    /// ResNet-152 for images of 224×224: [`ResNetConfig::RESNET152`](crate::ResNetConfig::RESNET152).
    ResNet152: "resnet152" in resnet at R152;
    /// VGG-11 for images of 224×224: [`VggConfig::VGG11`](crate::VggConfig::VGG11).
    Vgg11Large: "vgg11-224" in vgg at V11;
    /// VGG-13 for images of 224×224: [`VggConfig::VGG13`](crate::VggConfig::VGG13).
    Vgg13: "vgg13" in vgg at V13;
    /// VGG-16 for images of 224×224: [`VggConfig::VGG16`](crate::VggConfig::VGG16).
    Vgg16: "vgg16" in vgg at V16;
    /// VGG-19 for images of 224×224: [`VggConfig::VGG19`](crate::VggConfig::VGG19).
    Vgg19: "vgg19" in vgg at V19;
    /// VGG-11 with batch norm for images of 224×224: [`VggConfig::with_norm`](crate::VggConfig::with_norm).
    Vgg11Norm: "vgg11-bn" in vgg at V11_BN;
    /// VGG-13 with batch norm for images of 224×224: [`VggConfig::with_norm`](crate::VggConfig::with_norm).
    Vgg13Norm: "vgg13-bn" in vgg at V13_BN;
    /// VGG-16 with batch norm for images of 224×224: [`VggConfig::with_norm`](crate::VggConfig::with_norm).
    Vgg16Norm: "vgg16-bn" in vgg at V16_BN;
    /// VGG-19 with batch norm for images of 224×224: [`VggConfig::with_norm`](crate::VggConfig::with_norm).
    Vgg19Norm: "vgg19-bn" in vgg at V19_BN;
    /// Wide ResNet-28-10 for images of 32×32: [`WideResNetConfig::WRN_28_10`](crate::WideResNetConfig::WRN_28_10).
    WideResNet: "wide-resnet-28-10" in wide_resnet at WRN_28_10;
    /// MobileNetV2 for images of 224×224: [`MobileNetV2Config::IMAGENET`](crate::MobileNetV2Config::IMAGENET).
    MobileNetV2: "mobilenet-v2" in mobilenet_v2 at LARGE;
    /// MobileNetV2 for images of 32×32: [`MobileNetV2Config::small`](crate::MobileNetV2Config::small).
    MobileNetV2Small: "mobilenet-v2-32" in mobilenet_v2 at SMALL;
    /// YOLOv8n for images of 160×160: [`Yolo`](crate::Yolo) by [`YoloConfig::NANO`](crate::YoloConfig::NANO).
    YoloN: "yolo-n" in yolo at N_160;
    /// YOLOv8s for images of 160×160: [`YoloConfig::SMALL`](crate::YoloConfig::SMALL).
    YoloS: "yolo-s" in yolo at S_160;
    /// YOLOv8n for images of 640×640: [`YoloConfig::NANO`](crate::YoloConfig::NANO).
    YoloNLarge: "yolo-n-640" in yolo at N_640;
    /// YOLOv8s for images of 640×640: [`YoloConfig::SMALL`](crate::YoloConfig::SMALL).
    YoloSLarge: "yolo-s-640" in yolo at S_640;
    /// A small Faster R-CNN for images of 160×160: [`FasterRcnnConfig::SMALL`](crate::FasterRcnnConfig::SMALL).
    FasterRcnnSmall: "faster-rcnn-small" in faster_rcnn at SMALL;
    /// Faster R-CNN for images of 800×800: [`FasterRcnn`](crate::FasterRcnn) by [`FasterRcnnConfig::COCO`](crate::FasterRcnnConfig::COCO).
    FasterRcnn: "faster-rcnn" in faster_rcnn at COCO;
    /// R3D-18 of a quarter of the width, for clips of 8×32×32: [`VideoResNet`](crate::VideoResNet).
    R3dSmall: "r3d-small" in video_resnet at R3D_SMALL;
    /// R(2+1)D-18 of a quarter of the width, for clips of 8×32×32: [`VideoResNet`](crate::VideoResNet).
    R2Plus1dSmall: "r2plus1d-small" in video_resnet at R2PLUS1D_SMALL;
    /// Convolutions of frames and an LSTM, for clips of 8×32×32: [`ConvLstm`](crate::ConvLstm) by [`ConvLstmConfig::SMALL`](crate::ConvLstmConfig::SMALL).
    ConvLstm: "conv-lstm" in conv_lstm at SMALL;
    /// R3D-18 for clips of 16×112×112: [`VideoResNetConfig::R3D_18`](crate::VideoResNetConfig::R3D_18).
    R3d18: "r3d-18" in video_resnet at R3D_18;
    /// R(2+1)D-18 for clips of 16×112×112: [`VideoResNetConfig::R2PLUS1D_18`](crate::VideoResNetConfig::R2PLUS1D_18).
    R2Plus1d18: "r2plus1d-18" in video_resnet at R2PLUS1D_18;
    /// StyleGAN2 for images of 256×256: [`StyleGan2Config::paper`](crate::StyleGan2Config::paper).
    StyleGan2Large: "stylegan2-256" in stylegan2 at PAPER_256;
}

impl Model {
    /// The network with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Model::ALL.into_iter().find(|m| m.name() == name)
    }

    /// The shape of the input.
    pub const fn input(self) -> Input {
        self.card().input
    }

    /// The last dimension of the output of [`build`](Model::build)'s network: classes, characters, numbers; 0 for images.
    pub const fn outputs(self) -> usize {
        match self.card().output.size() {
            Some(outputs) => outputs,
            None => 0,
        }
    }

    /// These sizes, with the network's own where the data says nothing.
    fn sizes(self, sizes: Sizes) -> NetSizes {
        NetSizes {
            features: sizes.features.unwrap_or(self.input().shape[0]),
            vocabulary: sizes.vocabulary,
            image: sizes.image.or(self.input().image()).unwrap_or_default(),
            outputs: match (self.card().output, sizes.outputs) {
                (OutputKind::Tokens(own), Some(of_data)) => own.max(of_data),
                (_, of_data) => of_data.unwrap_or(self.outputs()),
            },
        }
    }

    /// The card of the network for data of these facts: for a text of the tokens of a tokenizer losses are of tokens.
    pub fn card_for(self, facts: &Facts) -> &'static Card {
        let of_tokens = |model: &Model| match model.card().values == text::VALUES {
            true => Card {
                values: text::VALUES_OF_TOKENS,
                ..*model.card()
            },
            false => *model.card(),
        };
        static OF_TOKENS: OnceLock<Vec<Card>> = OnceLock::new();
        match facts.tokens() {
            Some(_) => &OF_TOKENS.get_or_init(|| Model::ALL.iter().map(of_tokens).collect())[self as usize],
            None => self.card(),
        }
    }

    /// The way to train it.
    pub const fn recipe(self) -> &'static Recipe {
        &self.card().recipe
    }

    /// The transform from raw samples to the network's input; for a dataset to train on with the augmentation of its recipe, which may put
    /// several of its samples together.
    ///
    /// # Errors
    /// None for the networks of the table.
    pub fn transform(self, augment: Option<&Shared>) -> kiln_data::Result<Compose> {
        self.recipe().transform(self.input(), augment)
    }

    /// The network in f32 with the initial weights of a seed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory).
    pub fn build<B: Backend>(self, backend: &B, seed: u64) -> Result<Net<B>> {
        self.build_for(backend, seed, Sizes::default())
    }

    /// The network on another backend than it is trained on, with the losses of its phases: the twin of a network of the same seed and
    /// sizes.
    ///
    /// # Errors
    /// Sizes of 0, memory.
    pub fn twin<B: Backend>(self, backend: &B, seed: u64, sizes: Sizes) -> kiln_train::Result<Twin> {
        twin::of(backend, |backend| self.build_for(backend, seed, sizes))
    }

    /// The network of a seed with a batch of `count` made-up samples, for steps that are measured.
    ///
    /// # Errors
    /// No samples, memory.
    pub fn steps<B: Backend>(self, backend: &B, seed: u64, count: usize) -> kiln_train::Result<Steps<B>> {
        Steps::of(self.build(backend, seed)?, self.card(), backend, count)
    }
}
