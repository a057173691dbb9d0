//! MobileNetV2 of Sandler et al. 2018, for large and for small images.

use crate::classes::Row;
use crate::resnet::kaiming;
use crate::{NetSizes, Recipe, ScheduleKind, classes};
use kiln_core::{Backend, Error, Result};
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, GlobalAvgPool2d, Linear, Relu6};
use kiln_nn::{Init, Initializer, Layer, Module, Scheme, Sequential, Tensor};

/// The rows of the table of models: that of ImageNet learns as small nets do, with little weight decay, by half a cosine.
pub(crate) const LARGE: Row<MobileNetV2Config> = Row {
    card: classes::card(
        "MobileNetV2 for 224x224 colour images",
        &[224, 224, 3],
        1000,
        MobileNetV2Config::IMAGENET.parameters(),
        Recipe {
            epochs: 150,
            schedule: ScheduleKind::Cosine,
            ..Recipe::imagenet(0.05, 4e-5)
        },
    ),
    config: MobileNetV2Config::IMAGENET,
};
pub(crate) const SMALL: Row<MobileNetV2Config> = Row {
    card: classes::card(
        "MobileNetV2 for 32x32 colour images",
        &[32, 32, 3],
        10,
        MobileNetV2Config::IMAGENET.small(10).parameters(),
        Recipe::cifar(0.1),
    ),
    config: MobileNetV2Config::IMAGENET.small(10),
};

/// The network of a row with its task.
pub(crate) fn task<B: Backend>(
    row: &Row<MobileNetV2Config>,
    init: Init<B>,
    sizes: NetSizes,
) -> Result<classes::Task<B>> {
    let config = MobileNetV2Config {
        classes: sizes.outputs,
        ..row.config
    };
    Ok(classes::task(MobileNetV2::new(init, config)?))
}

/// Blocks of the same channels of a [`MobileNetV2`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobileNetV2Stage {
    /// The factor of the channels inside of a block; 1 for none of their own.
    pub expansion: usize,
    /// Channels between the blocks, at a width of 1.
    pub channels: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// The stride of the first block.
    pub stride: usize,
}

/// The sizes of a [`MobileNetV2`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MobileNetV2Config {
    /// Number of classes.
    pub classes: usize,
    /// The factor of all channels, which are rounded to multiples of 8; those of the last convolution grow with it, and never shrink.
    pub width: f64,
    /// The stride of the first convolution.
    pub stride: usize,
    /// The stages of blocks.
    pub stages: [MobileNetV2Stage; 7],
    /// Channels of the last convolution.
    pub last: usize,
    /// Probability of the dropout before the dense layer.
    pub dropout: f64,
}

/// A stage of the paper's table.
const fn stage(expansion: usize, channels: usize, blocks: usize, stride: usize) -> MobileNetV2Stage {
    MobileNetV2Stage {
        expansion,
        channels,
        blocks,
        stride,
    }
}

/// Channels at a width: the nearest multiple of 8, but no less than 8 and nine tenths of the product.
const fn scaled(channels: usize, width: f64) -> usize {
    let exact = channels as f64 * width;
    let nearest = (exact + 4.0) as usize / 8 * 8;
    let nearest = if nearest < 8 { 8 } else { nearest };
    if (nearest as f64) < 0.9 * exact {
        nearest + 8
    } else {
        nearest
    }
}

impl MobileNetV2Config {
    /// Table 2 of the paper: 53 layers with weights for ImageNet.
    pub const IMAGENET: MobileNetV2Config = MobileNetV2Config {
        classes: 1000,
        width: 1.0,
        stride: 2,
        stages: [
            stage(1, 16, 1, 1),
            stage(6, 24, 2, 2),
            stage(6, 32, 3, 2),
            stage(6, 64, 4, 2),
            stage(6, 96, 3, 1),
            stage(6, 160, 3, 2),
            stage(6, 320, 1, 1),
        ],
        last: 1280,
        dropout: 0.2,
    };

    /// The same net for images of 32×32 with so many classes: the first convolution and the second stage keep height and width, so that the
    /// last stages have 4×4 positions, and nothing is dropped.
    pub const fn small(mut self, classes: usize) -> MobileNetV2Config {
        self.dropout = 0.0;
        self.classes = classes;
        self.stride = 1;
        self.stages[1].stride = 1;
        self
    }

    /// Channels of the first convolution.
    const fn first(&self) -> usize {
        scaled(32, self.width)
    }

    /// Channels of the last convolution.
    const fn final_channels(&self) -> usize {
        scaled(self.last, if self.width < 1.0 { 1.0 } else { self.width })
    }

    /// Number of values in all parameters.
    pub const fn parameters(&self) -> usize {
        let mut inputs = self.first();
        let (mut sum, mut number) = (27 * inputs + 2 * inputs, 0);
        while number < self.stages.len() {
            let stage = self.stages[number];
            let (outputs, mut block) = (scaled(stage.channels, self.width), 0);
            while block < stage.blocks {
                let inner = inputs * stage.expansion;
                if stage.expansion != 1 {
                    sum += inputs * inner + 2 * inner;
                }
                sum += 9 * inner + 2 * inner + inner * outputs + 2 * outputs;
                (inputs, block) = (outputs, block + 1);
            }
            number += 1;
        }
        let last = self.final_channels();
        sum + inputs * last + 2 * last + last * self.classes + self.classes
    }
}

/// MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018) as torchvision has it: a 3×3 convolution,
/// blocks with depthwise convolutions between more channels than go in and out, a 1×1 convolution, then the mean over positions, dropout
/// and one dense layer. Images `[N, H, W, 3]` of any height and width to logits `[N, classes]`. Parameters have torchvision's names.
///
/// ```
/// use kiln_models::{MobileNetV2, MobileNetV2Config};
/// use kiln_nn::{DType, Init, Layer, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let config = MobileNetV2Config { width: 0.25, last: 64, ..MobileNetV2Config::IMAGENET.small(10) };
/// let net = MobileNetV2::new(Init::new(&cpu, 0), config)?;
/// let images = Tensor::zeros(&cpu, &[2, 32, 32, 3], DType::F32)?;
/// assert_eq!(net.forward(&images)?.shape().dims(), [2, 10]);
/// # Ok::<(), kiln_core::Error>(())
/// ```
#[derive(Clone, Module)]
pub struct MobileNetV2<B: Backend> {
    features: Sequential<B>,
    avgpool: GlobalAvgPool2d,
    classifier: (Dropout<B>, Linear<B>),
}

/// A convolution with batch norm and a ReLU6 (torchvision's `Conv2dNormActivation`).
#[derive(Clone, Debug, Module)]
pub struct ConvNormRelu6<B: Backend> {
    #[module(rename = "0")]
    conv: Conv2d<B>,
    #[module(rename = "1")]
    norm: BatchNorm<B>,
    #[module(rename = "2")]
    activation: Relu6,
}

/// A 1×1 convolution to more channels, a depthwise one, and a 1×1 convolution without an activation to the channels of the output; the input
/// is added where it has the output's shape.
#[derive(Clone, Module)]
pub struct InvertedResidual<B: Backend> {
    conv: Sequential<B>,
    adds_input: bool,
}

impl<B: Backend> MobileNetV2<B> {
    /// The net with torchvision's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No classes, a stage without channels, a width that is not above 0 and finite, a stride of 0, a probability outside `0..=1`, memory.
    pub fn new(mut init: Init<B>, config: MobileNetV2Config) -> Result<Self> {
        if !(config.width > 0.0 && config.width.is_finite()) {
            let expected = "a finite number above 0";
            return Err(Error::invalid("mobilenet v2", "width", config.width, expected));
        }
        let init = &mut init;
        init.set_scheme(kaiming());
        let mut inputs = config.first();
        let first = ConvNormRelu6::new(init, (3, inputs), 3, config.stride, 1)?;
        let mut features = Sequential::new().push(first);
        for stage in config.stages {
            let outputs = scaled(stage.channels, config.width);
            for block in 0..stage.blocks {
                let stride = if block == 0 { stage.stride } else { 1 };
                let block = InvertedResidual::new(init, (inputs, outputs), stage.expansion, stride)?;
                (features, inputs) = (features.push(block), outputs);
            }
        }
        let last = config.final_channels();
        let features = features.push(ConvNormRelu6::new(init, (inputs, last), 1, 1, 1)?);
        init.set_scheme(Scheme::With {
            weight: Initializer::Normal { mean: 0.0, std: 0.01 },
            bias: Initializer::Zeros,
        });
        Ok(MobileNetV2 {
            features,
            avgpool: GlobalAvgPool2d::default(),
            classifier: (
                Dropout::new(init, config.dropout)?,
                Linear::new(init, last, config.classes)?,
            ),
        })
    }
}

impl<B: Backend> Layer<B> for MobileNetV2<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.avgpool.forward(&self.features.forward(x)?)?;
        self.classifier.forward(&x)
    }
}

impl<B: Backend> ConvNormRelu6<B> {
    /// A convolution in groups from so many to so many channels, which keeps height and width but for its stride.
    ///
    /// # Errors
    /// No channels, channels that the groups do not divide, a kernel or stride of 0, memory.
    pub fn new(
        init: &mut Init<B>,
        (inputs, outputs): (usize, usize),
        kernel: usize,
        stride: usize,
        groups: usize,
    ) -> Result<Self> {
        let builder = Conv2d::builder(inputs, outputs, kernel).bias(false).groups(groups);
        Ok(ConvNormRelu6 {
            conv: builder.stride(stride).padding(kernel / 2).build(init)?,
            norm: BatchNorm::new(init, outputs)?,
            activation: Relu6,
        })
    }
}

impl<B: Backend> Layer<B> for ConvNormRelu6<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.activation.forward(&self.conv.forward_norm(&self.norm, x)?)
    }
}

impl<B: Backend> InvertedResidual<B> {
    /// A block from so many to so many channels whose depthwise convolution, over `expansion` times the channels of the input, has the
    /// stride.
    ///
    /// # Errors
    /// No channels, an expansion or stride of 0, memory.
    pub fn new(init: &mut Init<B>, (inputs, outputs): (usize, usize), expansion: usize, stride: usize) -> Result<Self> {
        let (inner, mut conv) = (inputs * expansion, Sequential::new());
        if expansion != 1 {
            conv = conv.push(ConvNormRelu6::new(init, (inputs, inner), 1, 1, 1)?);
        }
        conv = conv.push(ConvNormRelu6::new(init, (inner, inner), 3, stride, inner)?);
        let project = Conv2d::builder(inner, outputs, 1).bias(false).build(init)?;
        Ok(InvertedResidual {
            conv: conv.push(project).push(BatchNorm::new(init, outputs)?),
            adds_input: stride == 1 && inputs == outputs,
        })
    }
}

impl<B: Backend> Layer<B> for InvertedResidual<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.conv.forward(x)?;
        match self.adds_input {
            true => x.add(&y),
            false => Ok(y),
        }
    }
}
