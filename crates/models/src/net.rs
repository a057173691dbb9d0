//! The networks by name, and what they take.

use crate::{Gpt, GptConfig, Lenet, MnistCnn, ResNet18, Vgg11};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Indices, Init, Layer, Module, Tensor, Walk, WalkMut, predict};
use std::fmt;

/// The networks by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// The convolutional net of the Keras tutorials: [`MnistCnn`].
    MnistCnn,
    /// The net of the PyTorch tutorial: [`Lenet`].
    Lenet,
    /// ResNet-18 for images of 32×32: [`ResNet18`].
    ResNet18,
    /// VGG-11 with batch norm for images of 32×32: [`Vgg11`].
    Vgg11,
    /// A GPT of 6 layers over characters: [`Gpt`] by [`GptConfig::MINI`].
    GptMini,
}

/// What a network takes, without the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Images `[H, W, C]`.
    Images([usize; 3]),
    /// Sequences of that many token ids.
    Tokens(usize),
}

/// A batch that a network takes.
#[derive(Clone, Debug)]
pub enum Input<B: Backend> {
    /// Images `[N, H, W, C]`.
    Images(Tensor<B>),
    /// Token ids `[N, T]`, i32.
    Tokens(Indices<B>),
}

/// A network of either kind.
pub enum Net<B: Backend> {
    /// From images `[N, H, W, C]` to logits `[N, classes]`.
    Images(Box<dyn Layer<B>>),
    /// From token ids `[N, T]` to logits `[N, T, classes]`.
    Tokens(Box<Gpt<B>>),
}

impl Model {
    /// All of them.
    pub const ALL: [Model; 5] = [
        Model::MnistCnn,
        Model::Lenet,
        Model::ResNet18,
        Model::Vgg11,
        Model::GptMini,
    ];

    /// Its name on command lines and in benches: `resnet18`.
    pub const fn name(self) -> &'static str {
        match self {
            Model::MnistCnn => "mnist-cnn",
            Model::Lenet => "lenet",
            Model::ResNet18 => "resnet18",
            Model::Vgg11 => "vgg11",
            Model::GptMini => "gpt-mini",
        }
    }

    /// The model of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Model::ALL.into_iter().find(|m| m.name() == name)
    }

    /// What it takes.
    pub const fn input(self) -> InputKind {
        match self {
            Model::MnistCnn => InputKind::Images([28, 28, 1]),
            Model::Lenet | Model::ResNet18 | Model::Vgg11 => InputKind::Images([32, 32, 3]),
            Model::GptMini => InputKind::Tokens(GptConfig::MINI.context),
        }
    }

    /// Number of classes, of tokens for a GPT: the last dimension of the logits.
    pub const fn classes(self) -> usize {
        match self {
            Model::GptMini => GptConfig::MINI.vocabulary,
            _ => 10,
        }
    }

    /// The network with the initial weights of a seed.
    ///
    /// # Errors
    /// Memory.
    pub fn build<B: Backend>(self, backend: &B, seed: u64) -> Result<Net<B>> {
        let init = Init::new(backend, seed);
        Ok(match self {
            Model::MnistCnn => Net::Images(Box::new(MnistCnn::new(init)?)),
            Model::Lenet => Net::Images(Box::new(Lenet::new(init)?)),
            Model::ResNet18 => Net::Images(Box::new(ResNet18::new(init, 10)?)),
            Model::Vgg11 => Net::Images(Box::new(Vgg11::new(init, 10)?)),
            Model::GptMini => Net::Tokens(Box::new(Gpt::new(init, GptConfig::MINI)?)),
        })
    }

    /// A batch of `batch` black images, or sequences of the first token.
    ///
    /// # Errors
    /// Memory.
    pub fn zeros<B: Backend>(self, backend: &B, batch: usize) -> Result<Input<B>> {
        Ok(match self.input() {
            InputKind::Images([h, w, c]) => Input::Images(Tensor::zeros(backend, &[batch, h, w, c], DType::F32)?),
            InputKind::Tokens(length) => {
                let ids = kiln_core::host::repeat(0i32, batch.saturating_mul(length))?;
                Input::Tokens(Indices::from_slice(backend, &ids, &[batch, length])?)
            }
        })
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<B: Backend> Net<B> {
    /// The logits of a batch.
    ///
    /// # Errors
    /// Images for a network of tokens or the reverse; as the layers.
    pub fn forward(&self, x: &Input<B>) -> Result<Tensor<B>> {
        match (self, x) {
            (Net::Images(net), Input::Images(x)) => net.forward(x),
            (Net::Tokens(net), Input::Tokens(ids)) => net.forward(ids),
            (Net::Images(_), Input::Tokens(ids)) => {
                Err(Error::invalid("forward", "input", ids.shape(), "images [N, H, W, C]"))
            }
            (Net::Tokens(_), Input::Images(x)) => {
                Err(Error::invalid("forward", "input", x.shape(), "token ids [N, T]"))
            }
        }
    }

    /// The logits of all samples of `x`, `batch_size` at a time, without recording: [`kiln_nn::predict()`].
    ///
    /// # Errors
    /// As [`Net::forward`] and [`kiln_nn::predict()`].
    pub fn predict(&self, x: &Input<B>, batch_size: usize) -> Result<Tensor<B>> {
        match (self, x) {
            (Net::Images(net), Input::Images(x)) => net.predict(x, batch_size),
            (Net::Tokens(net), Input::Tokens(ids)) => predict(&**net, ids, batch_size, |ids| net.forward(ids)),
            _ => self.forward(x),
        }
    }
}

impl<B: Backend> Module<B> for Net<B> {
    fn kind(&self) -> &'static str {
        match self {
            Net::Images(net) => net.kind(),
            Net::Tokens(net) => net.kind(),
        }
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        match self {
            Net::Images(net) => net.walk(walk),
            Net::Tokens(net) => net.walk(walk),
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        match self {
            Net::Images(net) => net.walk_mut(walk),
            Net::Tokens(net) => net.walk_mut(walk),
        }
    }
}
