//! The convolutional network of the Keras tutorials.

use crate::{Card, Input, NetSizes, OutputKind, Recipe, classes};
use kiln_core::ops::Activation;
use kiln_core::{Backend, Result};
use kiln_data::DataKind;
use kiln_nn::layers::{Conv2d, Flatten, Linear, MaxPool2d};
use kiln_nn::{Init, Layer, Module, Scheme, Tensor};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "the convolutional net of the Keras tutorials, for 28x28 digits",
    input: Input::images(&[28, 28, 1]),
    output: OutputKind::Classes(10),
    values: classes::VALUES,
    monitor: classes::MONITOR,
    parameters: 93_322,
    recipe: Recipe {
        data: DataKind::Mnist,
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<classes::Task<B>> {
    Ok(classes::task(MnistCnn::new(init, sizes.outputs)?))
}

/// Three 3×3 convolutions with 32, 64 and 64 channels, 2×2 pooling after the first two, a dense layer of 64 outputs and one of
/// `classes` outputs, with Keras's initial weights: images `[N, 28, 28, 1]` to logits `[N, classes]`.
#[derive(Clone, Debug, Module)]
pub struct MnistCnn<B: Backend> {
    conv1: Conv2d<B>,
    pool1: MaxPool2d,
    conv2: Conv2d<B>,
    pool2: MaxPool2d,
    conv3: Conv2d<B>,
    flatten: Flatten,
    dense1: Linear<B>,
    dense2: Linear<B>,
}

impl<B: Backend> MnistCnn<B> {
    /// The net with the initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No classes, memory.
    pub fn new(init: Init<B>, classes: usize) -> Result<Self> {
        let init = &mut init.scheme(Scheme::Keras);
        let mut conv = |inputs, outputs| {
            Conv2d::<B>::builder(inputs, outputs, 3)
                .activation(Activation::Relu)
                .build(init)
        };
        let (conv1, conv2, conv3) = (conv(1, 32)?, conv(32, 64)?, conv(64, 64)?);
        Ok(MnistCnn {
            conv1,
            pool1: MaxPool2d::new(2),
            conv2,
            pool2: MaxPool2d::new(2),
            conv3,
            flatten: Flatten::default(),
            dense1: Linear::<B>::builder(3 * 3 * 64, 64)
                .activation(Activation::Relu)
                .build(init)?,
            dense2: Linear::new(init, 64, classes)?,
        })
    }
}

impl<B: Backend> Layer<B> for MnistCnn<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.conv1.forward_pooled(&self.pool1, x)?;
        let x = self.conv2.forward_pooled(&self.pool2, &x)?;
        let x = self.flatten.forward(&self.conv3.forward(&x)?)?;
        self.dense2.forward(&self.dense1.forward(&x)?)
    }
}
