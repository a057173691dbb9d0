//! The table of networks, one row for each.

use crate::steps::{self, Steps};
use crate::twin;
use crate::{Card, InputKind, Net, Recipe};
use kiln_core::{Backend, Result};
use kiln_data::Compose;
use kiln_nn::Init;
use kiln_train::Twin;

/// Makes the enum, its names and its builders from rows `Name: "name" in file`; the file has a `CARD` and a `task`.
macro_rules! registry {
    ($($(#[$doc:meta])* $model:ident: $name:literal in $file:ident;)*) => {
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
                    $(Model::$model => &crate::$file::CARD,)*
                }
            }

            /// The network in f32 with the initial weights of a seed, for `classes` classes, or a vocabulary of that size.
            ///
            /// # Errors
            /// No classes, memory.
            pub fn build_for<B: Backend>(self, backend: &B, seed: u64, classes: usize) -> Result<Net<B>> {
                let init = Init::new(backend, seed);
                Ok(match self {
                    $(Model::$model => Net::new(crate::$file::task(init, classes)?),)*
                })
            }

            /// The network on another backend than it is trained on, with the losses of its phases: the twin of a network of the same
            /// seed and classes.
            ///
            /// # Errors
            /// No classes, memory.
            pub fn twin<B: Backend>(self, backend: &B, seed: u64, classes: usize) -> kiln_train::Result<Twin> {
                match self {
                    $(Model::$model => twin::of(backend, |backend| crate::$file::task(Init::new(backend, seed), classes)),)*
                }
            }

            /// The network of a seed with a batch of `count` made-up samples, for steps that are measured.
            ///
            /// # Errors
            /// No samples, memory.
            pub fn steps<B: Backend>(self, backend: &B, seed: u64, count: usize) -> kiln_train::Result<Box<dyn Steps<B>>> {
                let init = Init::new(backend, seed);
                let classes = self.classes();
                match self {
                    $(Model::$model => steps::fixed(crate::$file::task(init, classes)?, self.card(), backend, count),)*
                }
            }
        }
    };
}

registry! {
    /// The convolutional net of the Keras tutorials: [`MnistCnn`](crate::MnistCnn).
    MnistCnn: "mnist-cnn" in mnist_cnn;
    /// The net of the PyTorch tutorial: [`Lenet`](crate::Lenet).
    Lenet: "lenet" in lenet;
    /// ResNet-18 for images of 32×32: [`ResNet18`](crate::ResNet18).
    ResNet18: "resnet18" in resnet;
    /// VGG-11 with batch norm for images of 32×32: [`Vgg11`](crate::Vgg11).
    Vgg11: "vgg11" in vgg;
    /// A GPT of 6 layers over characters: [`Gpt`](crate::Gpt) by [`GptConfig::MINI`](crate::GptConfig::MINI).
    GptMini: "gpt-mini" in gpt;
    /// A variational autoencoder for digits: [`Vae`](crate::Vae).
    Vae: "vae" in vae;
    /// A Wasserstein GAN for digits: [`WganGp`](crate::WganGp).
    WganGp: "wgan-gp" in wgan_gp;
}

impl Model {
    /// The network with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Model::ALL.into_iter().find(|m| m.name() == name)
    }

    /// The shape of the input.
    pub const fn input(self) -> InputKind {
        self.card().input
    }

    /// Number of classes, or of tokens for a GPT: the last dimension of the logits; 0 for a network that makes images.
    pub const fn classes(self) -> usize {
        match self.card().output.classes() {
            Some(classes) => classes,
            None => 0,
        }
    }

    /// The way to train it.
    pub const fn recipe(self) -> &'static Recipe {
        &self.card().recipe
    }

    /// The transform from raw samples to the network's input; in training with the augmentation of its recipe.
    ///
    /// # Errors
    /// None for the networks of the table.
    pub fn transform(self, augment: bool) -> kiln_data::Result<Compose> {
        self.recipe().transform(self.input(), augment)
    }

    /// The network in f32 with the initial weights of a seed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory).
    pub fn build<B: Backend>(self, backend: &B, seed: u64) -> Result<Net<B>> {
        self.build_for(backend, seed, self.classes())
    }
}
