//! ResNet-50 for ImageNet.

use crate::resnet::{Shortcut, conv};
use crate::{
    Augment, Card, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, ScheduleKind, classes,
};
use kiln_core::{Backend, Result};
use kiln_data::DataKind;
use kiln_nn::init::{Nonlinearity, Scaled};
use kiln_nn::layers::{BatchNorm, Conv2d, GlobalAvgPool2d, Linear, MaxPool2d};
use kiln_nn::{Init, Initializer, Layer, Module, Scheme, Tensor};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "ResNet-50 for 224x224 colour images",
    input: Input::images(&[224, 224, 3]),
    output: OutputKind::Classes(1000),
    values: classes::VALUES,
    monitor: classes::MONITOR,
    parameters: 25_557_032,
    // As torchvision trains it, on eight devices with 32 images each; but images are scaled to the input before they are cropped.
    recipe: Recipe {
        data: DataKind::ImageFolder,
        normalise: Some((&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225])),
        augment: &[Augment::Crop { padding: 28 }, Augment::Flip],
        epochs: 90,
        batch: 256,
        optimizer: OptimizerOptions {
            lr: 0.1,
            momentum: Some(0.9),
            weight_decay: Some(1e-4),
            ..OptimizerOptions::of(OptimizerKind::Sgd)
        },
        schedule: ScheduleKind::Thirds,
        workers: 8,
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<classes::Task<B>> {
    let config = ResNet50Config {
        classes: sizes.outputs,
        ..ResNet50Config::IMAGENET
    };
    Ok(classes::task(ResNet50::new(init, config)?))
}

/// The sizes of a [`ResNet50`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResNet50Config {
    /// Number of classes.
    pub classes: usize,
    /// Channels of the stem. Each stage has twice the channels of the one before, the first as many as the stem, and four times as many
    /// between its blocks.
    pub width: usize,
    /// Blocks of each stage.
    pub blocks: [usize; 4],
}

impl ResNet50Config {
    /// 50 layers with weights: a stem of 64 channels, 3, 4, 6 and 3 blocks, 1000 classes.
    pub const IMAGENET: ResNet50Config = ResNet50Config {
        classes: 1000,
        width: 64,
        blocks: [3, 4, 6, 3],
    };
}

/// ResNet-50 (He et al. 2015) as torchvision has it, with the stride of a stage in its first 3×3 convolution: a 7×7 stem of stride 2 and a
/// max-pool before four stages of bottlenecks, then the mean over positions and one dense layer. Images `[N, 224, 224, 3]`, or of any
/// other height and width, to logits `[N, classes]`. Parameters have torchvision's names.
#[derive(Clone, Debug, Module)]
pub struct ResNet50<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    maxpool: MaxPool2d,
    layer1: Vec<Bottleneck<B>>,
    layer2: Vec<Bottleneck<B>>,
    layer3: Vec<Bottleneck<B>>,
    layer4: Vec<Bottleneck<B>>,
    avgpool: GlobalAvgPool2d,
    fc: Linear<B>,
}

/// Three convolutions with batch norm, 1×1 to fewer channels, 3×3, and 1×1 to more, and a shortcut around them.
#[derive(Clone, Debug, Module)]
pub struct Bottleneck<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    conv3: Conv2d<B>,
    bn3: BatchNorm<B>,
    downsample: Option<Shortcut<B>>,
}

impl<B: Backend> ResNet50<B> {
    /// The net with torchvision's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No classes, a size of 0, memory.
    pub fn new(mut init: Init<B>, config: ResNet50Config) -> Result<Self> {
        let init = &mut init;
        init.set_scheme(Scheme::With {
            weight: Initializer::kaiming_normal(Scaled::FanOut, Nonlinearity::Relu),
            bias: Initializer::Zeros,
        });
        let width = config.width;
        let (conv1, bn1) = (conv(init, 3, width, 7, 2)?, BatchNorm::new(init, width)?);
        let mut inputs = width;
        let mut stage = |number: usize| -> Result<Vec<Bottleneck<B>>> {
            let channels = width << number;
            let mut blocks = Vec::with_capacity(config.blocks[number]);
            for block in 0..config.blocks[number] {
                let stride = if number > 0 && block == 0 { 2 } else { 1 };
                blocks.push(Bottleneck::new(init, inputs, channels, stride)?);
                inputs = 4 * channels;
            }
            Ok(blocks)
        };
        let (layer1, layer2, layer3, layer4) = (stage(0)?, stage(1)?, stage(2)?, stage(3)?);
        init.set_scheme(Scheme::Torch);
        Ok(ResNet50 {
            conv1,
            bn1,
            maxpool: MaxPool2d::new(3).stride(2).padding(1),
            layer1,
            layer2,
            layer3,
            layer4,
            avgpool: GlobalAvgPool2d::default(),
            fc: Linear::new(init, inputs, config.classes)?,
        })
    }
}

impl<B: Backend> Layer<B> for ResNet50<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = self.conv1.forward_norm_relu(&self.bn1, x, None)?;
        // Not beside it: the result of the stem is four times as large, and would lie there until the end.
        x = self.maxpool.forward(&x)?;
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4]
            .into_iter()
            .flatten()
        {
            x = block.forward(&x)?;
        }
        self.fc.forward(&self.avgpool.forward(&x)?)
    }
}

impl<B: Backend> Bottleneck<B> {
    /// A block from `inputs` to `4·channels` channels, with `channels` between and a stride of its 3×3 convolution.
    ///
    /// # Errors
    /// No channels, a stride of 0, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, channels: usize, stride: usize) -> Result<Self> {
        let outputs = 4 * channels;
        let changes = stride != 1 || inputs != outputs;
        Ok(Bottleneck {
            conv1: conv(init, inputs, channels, 1, 1)?,
            bn1: BatchNorm::new(init, channels)?,
            conv2: conv(init, channels, channels, 3, stride)?,
            bn2: BatchNorm::new(init, channels)?,
            conv3: conv(init, channels, outputs, 1, 1)?,
            bn3: BatchNorm::new(init, outputs)?,
            downsample: changes
                .then(|| Shortcut::new(init, inputs, outputs, stride))
                .transpose()?,
        })
    }
}

impl<B: Backend> Layer<B> for Bottleneck<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.conv1.forward_norm_relu(&self.bn1, x, None)?;
        let y = self.conv2.forward_norm_relu(&self.bn2, &y, None)?;
        let shortcut = self.downsample.as_ref().map(|s| s.forward(x)).transpose()?;
        self.conv3
            .forward_norm_relu(&self.bn3, &y, Some(shortcut.as_ref().unwrap_or(x)))
    }
}
