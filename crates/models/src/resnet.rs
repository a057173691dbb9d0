//! The residual networks of He et al. 2015, of basic blocks or of bottlenecks, for large and for small images.

use crate::classes::Row;
use crate::{NetSizes, Recipe, classes};
use kiln_core::{Backend, Result};
use kiln_nn::init::{Nonlinearity, Scaled};
use kiln_nn::layers::{BatchNorm, Conv2d, GlobalAvgPool2d, Linear, MaxPool2d};
use kiln_nn::{Init, Initializer, Layer, Module, Scheme, Tensor};

/// The rows of the table of models.
pub(crate) const SMALL_18: Row<ResNetConfig> = Row {
    card: classes::card(
        "ResNet-18 as it is used on CIFAR, for 32x32 colour images",
        &[32, 32, 3],
        10,
        ResNetConfig::RESNET18.small(10).parameters(),
        Recipe::cifar(0.1),
    ),
    config: ResNetConfig::RESNET18.small(10),
};
pub(crate) const R18: Row<ResNetConfig> = large("ResNet-18 for 224x224 colour images", ResNetConfig::RESNET18);
pub(crate) const R34: Row<ResNetConfig> = large("ResNet-34 for 224x224 colour images", ResNetConfig::RESNET34);
pub(crate) const R50: Row<ResNetConfig> = large("ResNet-50 for 224x224 colour images", ResNetConfig::RESNET50);
pub(crate) const R101: Row<ResNetConfig> = large("ResNet-101 for 224x224 colour images", ResNetConfig::RESNET101);
pub(crate) const R152: Row<ResNetConfig> = large("ResNet-152 for 224x224 colour images", ResNetConfig::RESNET152);

/// A row of ImageNet, trained as torchvision does, on eight devices with 32 images each.
const fn large(description: &'static str, config: ResNetConfig) -> Row<ResNetConfig> {
    Row {
        card: classes::card(
            description,
            &[224, 224, 3],
            config.classes,
            config.parameters(),
            Recipe::imagenet(0.1, 1e-4),
        ),
        config,
    }
}

/// The network of a row with its task.
pub(crate) fn task<B: Backend>(row: &Row<ResNetConfig>, init: Init<B>, sizes: NetSizes) -> Result<classes::Task<B>> {
    let config = ResNetConfig {
        classes: sizes.outputs,
        ..row.config
    };
    Ok(classes::task(ResNet::new(init, config)?))
}

/// The first layers of a [`ResNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResNetStem {
    /// A 7×7 convolution of stride 2 and a 3×3 max-pool of stride 2, for images of some hundred pixels.
    Large,
    /// A 3×3 convolution of stride 1, as it is used on CIFAR.
    Small,
}

/// The sizes of a [`ResNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResNetConfig {
    /// Number of classes.
    pub classes: usize,
    /// Channels of the stem. Each stage has twice the channels of the one before, the first as many as the stem; between bottlenecks there
    /// are four times as many.
    pub width: usize,
    /// Blocks of each stage.
    pub blocks: [usize; 4],
    /// True for blocks of three convolutions, 1×1, 3×3 and 1×1; false for blocks of two, both 3×3.
    pub bottleneck: bool,
    /// The first layers.
    pub stem: ResNetStem,
}

impl ResNetConfig {
    /// 18 layers with weights for ImageNet: a stem of 64 channels, two basic blocks in each stage, 1000 classes.
    pub const RESNET18: ResNetConfig = ResNetConfig {
        classes: 1000,
        width: 64,
        blocks: [2, 2, 2, 2],
        bottleneck: false,
        stem: ResNetStem::Large,
    };
    /// 34 layers for ImageNet: 3, 4, 6 and 3 basic blocks.
    pub const RESNET34: ResNetConfig = ResNetConfig {
        blocks: [3, 4, 6, 3],
        ..ResNetConfig::RESNET18
    };
    /// 50 layers for ImageNet: 3, 4, 6 and 3 bottlenecks.
    pub const RESNET50: ResNetConfig = ResNetConfig {
        bottleneck: true,
        ..ResNetConfig::RESNET34
    };
    /// 101 layers for ImageNet: 3, 4, 23 and 3 bottlenecks.
    pub const RESNET101: ResNetConfig = ResNetConfig {
        blocks: [3, 4, 23, 3],
        ..ResNetConfig::RESNET50
    };
    /// 152 layers for ImageNet: 3, 8, 36 and 3 bottlenecks.
    pub const RESNET152: ResNetConfig = ResNetConfig {
        blocks: [3, 8, 36, 3],
        ..ResNetConfig::RESNET50
    };

    /// The same blocks behind the stem for small images, with so many classes: `ResNetConfig::RESNET18.small(10)` is the ResNet-18 of CIFAR.
    pub const fn small(self, classes: usize) -> ResNetConfig {
        ResNetConfig {
            classes,
            stem: ResNetStem::Small,
            ..self
        }
    }

    /// Channels between the blocks of a stage, and inside of them.
    const fn channels(&self, stage: usize) -> (usize, usize) {
        let inner = self.width << stage;
        (if self.bottleneck { 4 * inner } else { inner }, inner)
    }

    /// Number of values in all parameters.
    pub const fn parameters(&self) -> usize {
        let kernel = match self.stem {
            ResNetStem::Large => 7 * 7,
            ResNetStem::Small => 3 * 3,
        };
        let mut sum = kernel * 3 * self.width + 2 * self.width;
        let (mut inputs, mut stage) = (self.width, 0);
        while stage < self.blocks.len() {
            let (outputs, inner) = self.channels(stage);
            let mut block = 0;
            while block < self.blocks[stage] {
                sum += match self.bottleneck {
                    true => inputs * inner + 9 * inner * inner + inner * outputs + 2 * (2 * inner + outputs),
                    false => 9 * inputs * inner + 9 * inner * outputs + 2 * (inner + outputs),
                };
                if block == 0 && (stage > 0 || inputs != outputs) {
                    sum += inputs * outputs + 2 * outputs;
                }
                (inputs, block) = (outputs, block + 1);
            }
            stage += 1;
        }
        sum + inputs * self.classes + self.classes
    }
}

/// A residual network (He et al., "Deep Residual Learning for Image Recognition", 2015) as torchvision has it: a stem, four stages of
/// blocks of which the first halves height and width in all stages but the first, then the mean over positions and one dense layer.
/// The stride of a bottleneck is in its 3×3 convolution. Images `[N, H, W, 3]` of any height and width to logits `[N, classes]`.
/// Parameters have torchvision's names.
///
/// ```
/// use kiln_models::{ResNet, ResNetConfig};
/// use kiln_nn::{DType, Init, Layer, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let config = ResNetConfig { width: 4, ..ResNetConfig::RESNET18.small(10) };
/// let net = ResNet::new(Init::new(&cpu, 0), config)?;
/// let images = Tensor::zeros(&cpu, &[2, 16, 16, 3], DType::F32)?;
/// assert_eq!(net.forward(&images)?.shape().dims(), [2, 10]);
/// # Ok::<(), kiln_core::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct ResNet<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    maxpool: Option<MaxPool2d>,
    layer1: Vec<ResNetBlock<B>>,
    layer2: Vec<ResNetBlock<B>>,
    layer3: Vec<ResNetBlock<B>>,
    layer4: Vec<ResNetBlock<B>>,
    avgpool: GlobalAvgPool2d,
    fc: Linear<B>,
}

/// Two or three convolutions with batch norm, and a shortcut around them: torchvision's `BasicBlock` of two 3×3, or its `Bottleneck` of
/// 1×1 to fewer channels, 3×3, and 1×1 to more.
#[derive(Clone, Debug, Module)]
pub struct ResNetBlock<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    conv3: Option<Conv2d<B>>,
    bn3: Option<BatchNorm<B>>,
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

/// torchvision's initial weights of convolutions: normal, by the outputs of the kernel (He et al. 2015), and biases of 0.
pub(crate) fn kaiming() -> Scheme {
    Scheme::With {
        weight: Initializer::kaiming_normal(Scaled::FanOut, Nonlinearity::Relu),
        bias: Initializer::Zeros,
    }
}

impl<B: Backend> ResNet<B> {
    /// The net with initial weights of `init`'s seed: torchvision's with the large stem, PyTorch's default ones with the small stem.
    ///
    /// # Errors
    /// No classes, a size of 0, memory.
    pub fn new(mut init: Init<B>, config: ResNetConfig) -> Result<Self> {
        let init = &mut init;
        let large = config.stem == ResNetStem::Large;
        if large {
            init.set_scheme(kaiming());
        }
        let width = config.width;
        let (kernel, stride) = if large { (7, 2) } else { (3, 1) };
        let (conv1, bn1) = (conv(init, 3, width, kernel, stride)?, BatchNorm::new(init, width)?);
        let mut inputs = width;
        let mut stage = |number: usize| -> Result<Vec<ResNetBlock<B>>> {
            let (outputs, inner) = config.channels(number);
            let mut blocks = Vec::with_capacity(config.blocks[number]);
            for block in 0..config.blocks[number] {
                let stride = if number > 0 && block == 0 { 2 } else { 1 };
                blocks.push(match config.bottleneck {
                    true => ResNetBlock::bottleneck(init, inputs, inner, stride)?,
                    false => ResNetBlock::basic(init, inputs, outputs, stride)?,
                });
                inputs = outputs;
            }
            Ok(blocks)
        };
        let (layer1, layer2, layer3, layer4) = (stage(0)?, stage(1)?, stage(2)?, stage(3)?);
        init.set_scheme(Scheme::Torch);
        Ok(ResNet {
            conv1,
            bn1,
            maxpool: large.then(|| MaxPool2d::new(3).stride(2).padding(1)),
            layer1,
            layer2,
            layer3,
            layer4,
            avgpool: GlobalAvgPool2d::default(),
            fc: Linear::new(init, inputs, config.classes)?,
        })
    }
}

impl<B: Backend> Layer<B> for ResNet<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = self.conv1.forward_norm_relu(&self.bn1, x, None)?;
        if let Some(pool) = &self.maxpool {
            // Not beside it: the result of the stem is four times as large, and would lie there until the end.
            x = pool.forward(&x)?;
        }
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4]
            .into_iter()
            .flatten()
        {
            x = block.forward(&x)?;
        }
        self.fc.forward(&self.avgpool.forward(&x)?)
    }
}

impl<B: Backend> ResNetBlock<B> {
    /// A basic block from `inputs` to `outputs` channels whose first convolution has the stride.
    ///
    /// # Errors
    /// No channels, a stride of 0, memory.
    pub fn basic(init: &mut Init<B>, inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        Ok(ResNetBlock {
            conv1: conv(init, inputs, outputs, 3, stride)?,
            bn1: BatchNorm::new(init, outputs)?,
            conv2: conv(init, outputs, outputs, 3, 1)?,
            bn2: BatchNorm::new(init, outputs)?,
            conv3: None,
            bn3: None,
            downsample: Shortcut::between(init, inputs, outputs, stride)?,
        })
    }

    /// A bottleneck from `inputs` to `4·channels` channels, with `channels` between and a stride of its 3×3 convolution.
    ///
    /// # Errors
    /// No channels, a stride of 0, memory.
    pub fn bottleneck(init: &mut Init<B>, inputs: usize, channels: usize, stride: usize) -> Result<Self> {
        let outputs = 4 * channels;
        Ok(ResNetBlock {
            conv1: conv(init, inputs, channels, 1, 1)?,
            bn1: BatchNorm::new(init, channels)?,
            conv2: conv(init, channels, channels, 3, stride)?,
            bn2: BatchNorm::new(init, channels)?,
            conv3: Some(conv(init, channels, outputs, 1, 1)?),
            bn3: Some(BatchNorm::new(init, outputs)?),
            downsample: Shortcut::between(init, inputs, outputs, stride)?,
        })
    }
}

impl<B: Backend> Layer<B> for ResNetBlock<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut y = self.conv1.forward_norm_relu(&self.bn1, x, None)?;
        let (mut conv, mut norm) = (&self.conv2, &self.bn2);
        if let (Some(conv3), Some(bn3)) = (&self.conv3, &self.bn3) {
            y = conv.forward_norm_relu(norm, &y, None)?;
            (conv, norm) = (conv3, bn3);
        }
        let shortcut = self.downsample.as_ref().map(|s| s.forward(x)).transpose()?;
        conv.forward_norm_relu(norm, &y, Some(shortcut.as_ref().unwrap_or(x)))
    }
}

impl<B: Backend> Shortcut<B> {
    /// The shortcut of a block with this stride; `None` where the block keeps the shape.
    fn between(init: &mut Init<B>, inputs: usize, outputs: usize, stride: usize) -> Result<Option<Self>> {
        if stride == 1 && inputs == outputs {
            return Ok(None);
        }
        Ok(Some(Shortcut {
            conv: conv(init, inputs, outputs, 1, stride)?,
            bn: BatchNorm::new(init, outputs)?,
        }))
    }
}

impl<B: Backend> Layer<B> for Shortcut<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.conv.forward_norm(&self.bn, x)
    }
}
