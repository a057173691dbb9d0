//! The network of the PyTorch tutorial "Training a classifier".

use crate::{Card, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, classes};
use kiln_core::ops::Activation;
use kiln_core::{Backend, Result};
use kiln_nn::layers::{Conv2d, Flatten, Linear, MaxPool2d};
use kiln_nn::{Init, Layer, Module, Tensor};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "the net of the PyTorch tutorial, for 32x32 colour images",
    input: Input::images(&[32, 32, 3]),
    output: OutputKind::Classes(10),
    values: classes::VALUES,
    monitor: classes::MONITOR,
    parameters: 62_006,
    recipe: Recipe {
        normalise: Some((&[0.5], &[0.5])),
        epochs: 2,
        batch: 4,
        optimizer: OptimizerOptions {
            momentum: Some(0.9),
            ..OptimizerOptions::of(OptimizerKind::Sgd)
        },
        workers: 2,
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<classes::Task<B>> {
    Ok(classes::task(Lenet::new(init, sizes.outputs)?))
}

/// Convolutions 3→6 and 6→16 of 5×5 with 2×2 pooling after each, then dense layers 400→120→84→classes, with PyTorch's
/// initial weights: images `[N, 32, 32, 3]` to logits `[N, classes]`. Parameters have the tutorial's names.
#[derive(Clone, Debug, Module)]
pub struct Lenet<B: Backend> {
    conv1: Conv2d<B>,
    pool: MaxPool2d,
    conv2: Conv2d<B>,
    flatten: Flatten,
    fc1: Linear<B>,
    fc2: Linear<B>,
    fc3: Linear<B>,
}

impl<B: Backend> Lenet<B> {
    /// The net with the initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No classes, memory.
    pub fn new(mut init: Init<B>, classes: usize) -> Result<Self> {
        let init = &mut init;
        let relu = Activation::Relu;
        Ok(Lenet {
            conv1: Conv2d::<B>::builder(3, 6, 5).activation(relu).build(init)?,
            pool: MaxPool2d::new(2),
            conv2: Conv2d::<B>::builder(6, 16, 5).activation(relu).build(init)?,
            flatten: Flatten::default(),
            fc1: Linear::<B>::builder(16 * 5 * 5, 120).activation(relu).build(init)?,
            fc2: Linear::<B>::builder(120, 84).activation(relu).build(init)?,
            fc3: Linear::new(init, 84, classes)?,
        })
    }
}

impl<B: Backend> Layer<B> for Lenet<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.conv1.forward_pooled(&self.pool, x)?;
        let x = self.conv2.forward_pooled(&self.pool, &x)?;
        let x = self.fc1.forward(&self.flatten.forward(&x)?)?;
        self.fc3.forward(&self.fc2.forward(&x)?)
    }
}
