//! The table of networks: a row each, with what the network's own file says about it.

use crate::{Net, Recipe};
use kiln_core::{Backend, Result};
use kiln_nn::Init;
use std::fmt;

/// The shape of what a network takes, without the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Images `[H, W, C]`.
    Images([usize; 3]),
    /// Sequences of that many token ids.
    Tokens(usize),
}

/// All that is known about a network before it is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// One line for people.
    pub description: &'static str,
    /// The input.
    pub input: InputKind,
    /// Number of classes, of tokens for a GPT: the last dimension of the logits.
    pub classes: usize,
    /// Number of values in all parameters, for that many classes.
    pub parameters: usize,
    /// The way to train it.
    pub recipe: Recipe,
}

/// Makes the enum, its names and its builders from rows `Name: "name" in file`; the file has a `CARD` and a `build`.
macro_rules! registry {
    ($($(#[$doc:meta])* $model:ident: $name:literal in $file:ident;)*) => {
        /// The networks by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Model {
            $($(#[$doc])* $model,)*
        }

        impl Model {
            /// All of them.
            pub const ALL: [Model; [$($name),*].len()] = [$(Model::$model),*];

            /// Its name on command lines and in benches: `resnet18`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Model::$model => $name,)*
                }
            }

            /// All that is known about it before it is built.
            pub const fn card(self) -> &'static Card {
                match self {
                    $(Model::$model => &crate::$file::CARD,)*
                }
            }

            /// The network for another number of classes, or a vocabulary of that size.
            ///
            /// # Errors
            /// No classes, memory that could not be had.
            pub fn build_for<B: Backend>(self, backend: &B, seed: u64, classes: usize) -> Result<Net<B>> {
                let init = Init::new(backend, seed);
                match self {
                    $(Model::$model => crate::$file::build(init, classes),)*
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
}

impl Model {
    /// The model of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Model::ALL.into_iter().find(|m| m.name() == name)
    }

    /// The input.
    pub const fn input(self) -> InputKind {
        self.card().input
    }

    /// Number of classes, of tokens for a GPT: the last dimension of the logits.
    pub const fn classes(self) -> usize {
        self.card().classes
    }

    /// The way to train it.
    pub const fn recipe(self) -> &'static Recipe {
        &self.card().recipe
    }

    /// The network with the initial weights of a seed.
    ///
    /// # Errors
    /// Memory that could not be had.
    pub fn build<B: Backend>(self, backend: &B, seed: u64) -> Result<Net<B>> {
        self.build_for(backend, seed, self.classes())
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
