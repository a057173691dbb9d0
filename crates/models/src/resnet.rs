//! ResNet-18 for small images.

use crate::{Card, Input, NetSizes, OutputKind, Recipe, classes};
use kiln_core::{Backend, Result};
use kiln_nn::layers::{BatchNorm, Conv2d, GlobalAvgPool2d, Linear};
use kiln_nn::{Init, Layer, Module, Tensor};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "ResNet-18 as it is used on CIFAR, for 32x32 colour images",
    input: Input::images(&[32, 32, 3]),
    output: OutputKind::Classes(10),
    values: classes::VALUES,
    monitor: classes::MONITOR,
    parameters: 11_173_962,
    recipe: Recipe::cifar(0.1),
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<classes::Task<B>> {
    Ok(classes::task(ResNet18::new(init, sizes.outputs)?))
}

/// ResNet-18 (He et al. 2015) as it is used on CIFAR: a 3×3 stem of stride 1 and no max-pool before four stages of two
/// basic blocks with 64, 128, 256 and 512 channels, then the mean over positions and one dense layer. Images
/// `[N, 32, 32, 3]`, or of any other height and width, to logits `[N, classes]`. Parameters have torchvision's names.
#[derive(Clone, Debug, Module)]
pub struct ResNet18<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    layer1: Vec<BasicBlock<B>>,
    layer2: Vec<BasicBlock<B>>,
    layer3: Vec<BasicBlock<B>>,
    layer4: Vec<BasicBlock<B>>,
    avgpool: GlobalAvgPool2d,
    fc: Linear<B>,
}

/// Two 3×3 convolutions with batch norm, and a shortcut around them.
#[derive(Clone, Debug, Module)]
pub struct BasicBlock<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    downsample: Option<Shortcut<B>>,
}

/// A 1×1 convolution with batch norm: the shortcut where the block changes the shape.
#[derive(Clone, Debug, Module)]
pub struct Shortcut<B: Backend> {
    #[module(rename = "0")]
    conv: Conv2d<B>,
    #[module(rename = "1")]
    bn: BatchNorm<B>,
}

/// A convolution without bias; the batch norm after it has one.
pub(crate) fn conv<B: Backend>(
    init: &mut Init<B>,
    inputs: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
) -> Result<Conv2d<B>> {
    let builder = Conv2d::builder(inputs, outputs, kernel).bias(false);
    builder.stride(stride).padding(kernel / 2).build(init)
}

impl<B: Backend> ResNet18<B> {
    /// The net with PyTorch's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No classes, memory.
    pub fn new(mut init: Init<B>, classes: usize) -> Result<Self> {
        let init = &mut init;
        let (conv1, bn1) = (conv(init, 3, 64, 3, 1)?, BatchNorm::new(init, 64)?);
        let mut stage = |inputs, outputs, stride| -> Result<Vec<BasicBlock<B>>> {
            Ok(vec![
                BasicBlock::new(init, inputs, outputs, stride)?,
                BasicBlock::new(init, outputs, outputs, 1)?,
            ])
        };
        let (layer1, layer2) = (stage(64, 64, 1)?, stage(64, 128, 2)?);
        let (layer3, layer4) = (stage(128, 256, 2)?, stage(256, 512, 2)?);
        Ok(ResNet18 {
            conv1,
            bn1,
            layer1,
            layer2,
            layer3,
            layer4,
            avgpool: GlobalAvgPool2d::default(),
            fc: Linear::new(init, 512, classes)?,
        })
    }
}

impl<B: Backend> Layer<B> for ResNet18<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = self.conv1.forward_norm_relu(&self.bn1, x, None)?;
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4]
            .into_iter()
            .flatten()
        {
            x = block.forward(&x)?;
        }
        self.fc.forward(&self.avgpool.forward(&x)?)
    }
}

impl<B: Backend> BasicBlock<B> {
    /// A block from `inputs` to `outputs` channels whose first convolution has the stride.
    ///
    /// # Errors
    /// No channels, a stride of 0, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        let changes = stride != 1 || inputs != outputs;
        Ok(BasicBlock {
            conv1: conv(init, inputs, outputs, 3, stride)?,
            bn1: BatchNorm::new(init, outputs)?,
            conv2: conv(init, outputs, outputs, 3, 1)?,
            bn2: BatchNorm::new(init, outputs)?,
            downsample: changes
                .then(|| Shortcut::new(init, inputs, outputs, stride))
                .transpose()?,
        })
    }
}

impl<B: Backend> Layer<B> for BasicBlock<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.conv1.forward_norm_relu(&self.bn1, x, None)?;
        let shortcut = self.downsample.as_ref().map(|s| s.forward(x)).transpose()?;
        self.conv2
            .forward_norm_relu(&self.bn2, &y, Some(shortcut.as_ref().unwrap_or(x)))
    }
}

impl<B: Backend> Shortcut<B> {
    /// A shortcut from `inputs` to `outputs` channels.
    pub(crate) fn new(init: &mut Init<B>, inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        Ok(Shortcut {
            conv: conv(init, inputs, outputs, 1, stride)?,
            bn: BatchNorm::new(init, outputs)?,
        })
    }
}

impl<B: Backend> Layer<B> for Shortcut<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.conv.forward_norm(&self.bn, x)
    }
}
