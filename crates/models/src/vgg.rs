//! VGG-11 with batch norm, for small images.

use crate::{Card, Input, NetSizes, OutputKind, Recipe, classes};
use kiln_core::{Backend, Result};
use kiln_nn::layers::{BatchNorm, Conv2d, Flatten, Linear, MaxPool2d, Relu};
use kiln_nn::{Init, Layer, Module, Sequential, Tensor};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "VGG-11 with batch norm, for 32x32 colour images",
    input: Input::images(&[32, 32, 3]),
    output: OutputKind::Classes(10),
    values: classes::VALUES,
    monitor: classes::MONITOR,
    parameters: 9_231_114,
    recipe: Recipe::cifar(0.05),
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<classes::Task<B>> {
    Ok(classes::task(Vgg11::new(init, sizes.outputs)?))
}

/// Channels of the convolutions; 0 is a max-pool.
const PLAN: [usize; 13] = [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0];

/// VGG-11 (Simonyan and Zisserman 2014, configuration A) with batch norm after each convolution, as it is used on CIFAR:
/// eight 3×3 convolutions, five max-pools that leave one position of 512 channels, and one dense layer. Images
/// `[N, 32, 32, 3]` to logits `[N, classes]`. Parameters of the convolutions have torchvision's names.
#[derive(Clone, Module)]
pub struct Vgg11<B: Backend> {
    features: Sequential<B>,
    flatten: Flatten,
    classifier: Linear<B>,
}

impl<B: Backend> Vgg11<B> {
    /// The net with PyTorch's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No classes, memory.
    pub fn new(mut init: Init<B>, classes: usize) -> Result<Self> {
        let init = &mut init;
        let (mut features, mut inputs) = (Sequential::new(), 3);
        for outputs in PLAN {
            if outputs == 0 {
                features = features.push(MaxPool2d::new(2));
                continue;
            }
            features = features
                .push(Conv2d::builder(inputs, outputs, 3).padding(1).build(init)?)
                .push(BatchNorm::new(init, outputs)?)
                .push(Relu);
            inputs = outputs;
        }
        Ok(Vgg11 {
            features,
            flatten: Flatten::default(),
            classifier: Linear::new(init, 512, classes)?,
        })
    }
}

impl<B: Backend> Layer<B> for Vgg11<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.flatten.forward(&self.features.forward(x)?)?;
        self.classifier.forward(&x)
    }
}
