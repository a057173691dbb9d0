//! The residual networks for video of Tran et al. 2018: R3D, whose convolutions are in space and time, and R(2+1)D, where one in time
//! follows one in space.

use crate::classes::Row;
use crate::resnet::kaiming;
use crate::{NetSizes, Recipe, classes};
use kiln_core::{Backend, ModuleId, Result};
use kiln_nn::layers::{BatchNorm, Conv3d, GlobalAvgPool3d, Linear};
use kiln_nn::module::Runnable;
use kiln_nn::{Init, Initializer, Layer, Module, Scheme, Tensor, Walk, WalkMut, Walkable};

/// The rows of the table of models.
pub(crate) const R3D_18: Row<VideoResNetConfig> =
    large("R3D-18 for clips of 16 frames of 112x112", VideoResNetConfig::R3D_18);
pub(crate) const R2PLUS1D_18: Row<VideoResNetConfig> = large(
    "R(2+1)D-18 for clips of 16 frames of 112x112",
    VideoResNetConfig::R2PLUS1D_18,
);
pub(crate) const R3D_SMALL: Row<VideoResNetConfig> = small(
    "R3D-18 of a quarter of the width, for clips of 8 frames of 32x32",
    VideoResNetConfig::R3D_18.small(),
);
pub(crate) const R2PLUS1D_SMALL: Row<VideoResNetConfig> = small(
    "R(2+1)D-18 of a quarter of the width, for clips of 8 frames of 32x32",
    VideoResNetConfig::R2PLUS1D_18.small(),
);

/// A row of Kinetics-400.
const fn large(description: &'static str, config: VideoResNetConfig) -> Row<VideoResNetConfig> {
    Row {
        card: classes::of_clips(
            description,
            &[16, 112, 112, 3],
            config.classes,
            config.parameters(),
            Recipe::KINETICS,
        ),
        config,
    }
}

/// A row of the clips that ship.
const fn small(description: &'static str, config: VideoResNetConfig) -> Row<VideoResNetConfig> {
    Row {
        card: classes::of_clips(
            description,
            &[8, 32, 32, 3],
            config.classes,
            config.parameters(),
            Recipe::MOTIONS,
        ),
        config,
    }
}

/// The network of a row with its task.
pub(crate) fn task<B: Backend>(
    row: &Row<VideoResNetConfig>,
    init: Init<B>,
    sizes: NetSizes,
) -> Result<classes::Task<B>> {
    let config = VideoResNetConfig {
        classes: sizes.outputs,
        ..row.config
    };
    Ok(classes::task(VideoResNet::new(init, config)?))
}

/// The sizes of a [`VideoResNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoResNetConfig {
    /// Number of classes.
    pub classes: usize,
    /// Channels of the stem and of the first stage; each other stage has twice the channels of the one before.
    pub width: usize,
    /// Blocks of each stage, each of two convolutions.
    pub blocks: [usize; 4],
    /// False for convolutions of 3×3×3; true for one of 1×3×3 and one of 3×1×1 in their place, with as many channels between that there are
    /// about as many weights.
    pub factored: bool,
}

impl VideoResNetConfig {
    /// R3D-18 for Kinetics-400: a stem of 64 channels, two blocks in each stage, 400 classes.
    pub const R3D_18: VideoResNetConfig = VideoResNetConfig {
        classes: 400,
        width: 64,
        blocks: [2, 2, 2, 2],
        factored: false,
    };
    /// R(2+1)D-18 for Kinetics-400.
    pub const R2PLUS1D_18: VideoResNetConfig = VideoResNetConfig {
        factored: true,
        ..VideoResNetConfig::R3D_18
    };

    /// The same blocks with a quarter of the channels, for the eight classes of the clips that ship.
    const fn small(self) -> VideoResNetConfig {
        VideoResNetConfig {
            classes: 8,
            width: self.width / 4,
            ..self
        }
    }

    /// Channels between the two convolutions of a factored stem: 45 of 64 in the original.
    const fn stem_between(&self) -> usize {
        self.width * 45 / 64
    }

    /// Channels between the two convolutions of a factored one, of a block with these channels.
    const fn between(inputs: usize, outputs: usize) -> usize {
        27 * inputs * outputs / (9 * inputs + 3 * outputs)
    }

    /// Values of a convolution of a block, between whose two there would be so many channels, and of the norm inside of it.
    const fn convolution(&self, inputs: usize, outputs: usize, between: usize) -> usize {
        match self.factored {
            false => 27 * inputs * outputs,
            true => 9 * inputs * between + 2 * between + 3 * between * outputs,
        }
    }

    /// Number of values in all parameters.
    pub const fn parameters(&self) -> usize {
        let stem = self.stem_between();
        let mut sum = match self.factored {
            false => 3 * 49 * 3 * self.width,
            true => 49 * 3 * stem + 2 * stem + 3 * stem * self.width,
        } + 2 * self.width;
        let (mut inputs, mut stage) = (self.width, 0);
        while stage < self.blocks.len() {
            let outputs = self.width << stage;
            let mut block = 0;
            while block < self.blocks[stage] {
                let between = VideoResNetConfig::between(inputs, outputs);
                sum += self.convolution(inputs, outputs, between) + self.convolution(outputs, outputs, between);
                sum += 4 * outputs;
                if inputs != outputs {
                    sum += inputs * outputs + 2 * outputs;
                }
                (inputs, block) = (outputs, block + 1);
            }
            stage += 1;
        }
        sum + inputs * self.classes + self.classes
    }
}

/// A residual network for video (Tran et al., "A Closer Look at Spatiotemporal Convolutions for Action Recognition", 2018) as torchvision has
/// it: a stem that halves height and width, four stages of blocks of which the first halves time, height and width in all stages but the
/// first, then the mean over positions and one dense layer. Clips `[N, T, H, W, 3]` of any length, height and width to logits
/// `[N, classes]`. Parameters have the names of torchvision's `VideoResNet`.
///
/// ```
/// use kiln_models::{VideoResNet, VideoResNetConfig};
/// use kiln_nn::{DType, Init, Layer, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let config = VideoResNetConfig { classes: 5, width: 4, ..VideoResNetConfig::R2PLUS1D_18 };
/// let net = VideoResNet::new(Init::new(&cpu, 0), config)?;
/// let clips = Tensor::zeros(&cpu, &[2, 8, 16, 16, 3], DType::F32)?;
/// assert_eq!(net.forward(&clips)?.shape().dims(), [2, 5]);
/// # Ok::<(), kiln_core::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct VideoResNet<B: Backend> {
    stem: VideoStem<B>,
    layer1: Vec<VideoBlock<B>>,
    layer2: Vec<VideoBlock<B>>,
    layer3: Vec<VideoBlock<B>>,
    layer4: Vec<VideoBlock<B>>,
    avgpool: GlobalAvgPool3d,
    fc: Linear<B>,
}

/// The first layers of a [`VideoResNet`]: a convolution of 3×7×7 with a stride of 2 in space, or one of 1×7×7 and one of 3×1×1, each with a norm
/// and a ReLU.
#[derive(Clone, Debug, Module)]
pub struct VideoStem<B: Backend> {
    #[module(rename = "0")]
    conv: Conv3d<B>,
    #[module(rename = "1")]
    bn: BatchNorm<B>,
    #[module(rename = "3")]
    time: Option<Conv3d<B>>,
    #[module(rename = "4")]
    time_bn: Option<BatchNorm<B>>,
}

/// Two convolutions with batch norm and a shortcut around them: torchvision's `BasicBlock` for video.
#[derive(Clone, Debug, Module)]
pub struct VideoBlock<B: Backend> {
    conv1: NormedVideoConv<B>,
    conv2: NormedVideoConv<B>,
    downsample: Option<VideoShortcut<B>>,
}

/// A convolution of a block with the norm behind it.
#[derive(Clone, Debug, Module)]
pub struct NormedVideoConv<B: Backend> {
    #[module(rename = "0")]
    conv: VideoConv<B>,
    #[module(rename = "1")]
    bn: BatchNorm<B>,
}

/// A convolution in space and time, without a bias.
#[derive(Clone, Debug)]
pub enum VideoConv<B: Backend> {
    /// Of 3×3×3.
    Whole(Box<Conv3d<B>>),
    /// Of 1×3×3 and then of 3×1×1.
    Factored(Box<FactoredConv<B>>),
}

/// A convolution in space, a norm and a ReLU, and a convolution in time: torchvision's `Conv2Plus1D`.
#[derive(Clone, Debug, Module)]
pub struct FactoredConv<B: Backend> {
    #[module(rename = "0")]
    space: Conv3d<B>,
    #[module(rename = "1")]
    bn: BatchNorm<B>,
    #[module(rename = "3")]
    time: Conv3d<B>,
}

/// A 1×1×1 convolution with batch norm: the shortcut where the block changes the shape.
#[derive(Clone, Debug, Module)]
pub struct VideoShortcut<B: Backend> {
    #[module(rename = "0")]
    conv: Conv3d<B>,
    #[module(rename = "1")]
    bn: BatchNorm<B>,
}

/// A convolution without bias, padded so that a stride of 1 keeps the size.
fn conv<B: Backend>(
    init: &mut Init<B>,
    inputs: usize,
    outputs: usize,
    kernel: [usize; 3],
    stride: [usize; 3],
) -> Result<Conv3d<B>> {
    let builder = Conv3d::builder(inputs, outputs, kernel).bias(false).stride(stride);
    builder.padding(kernel.map(|taps| taps / 2)).build(init)
}

impl<B: Backend> VideoResNet<B> {
    /// The net with torchvision's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No classes, a size of 0, memory.
    pub fn new(mut init: Init<B>, config: VideoResNetConfig) -> Result<Self> {
        let init = &mut init;
        init.set_scheme(kaiming());
        let stem = VideoStem::new(init, config)?;
        let mut inputs = config.width;
        let mut stage = |number: usize| -> Result<Vec<VideoBlock<B>>> {
            let outputs = config.width << number;
            let mut blocks = Vec::with_capacity(config.blocks[number]);
            for block in 0..config.blocks[number] {
                let stride = if number > 0 && block == 0 { 2 } else { 1 };
                blocks.push(VideoBlock::new(init, inputs, outputs, stride, config.factored)?);
                inputs = outputs;
            }
            Ok(blocks)
        };
        let (layer1, layer2, layer3, layer4) = (stage(0)?, stage(1)?, stage(2)?, stage(3)?);
        init.set_scheme(Scheme::With {
            weight: Initializer::Normal { mean: 0.0, std: 0.01 },
            bias: Initializer::Zeros,
        });
        let fc = Linear::new(init, inputs, config.classes)?;
        Ok(VideoResNet {
            stem,
            layer1,
            layer2,
            layer3,
            layer4,
            avgpool: GlobalAvgPool3d::default(),
            fc,
        })
    }
}

impl<B: Backend> Layer<B> for VideoResNet<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = self.stem.forward(x)?;
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4]
            .into_iter()
            .flatten()
        {
            x = block.forward(&x)?;
        }
        self.fc.forward(&self.avgpool.forward(&x)?)
    }
}

impl<B: Backend> VideoStem<B> {
    fn new(init: &mut Init<B>, config: VideoResNetConfig) -> Result<Self> {
        let (width, stride) = (config.width, [1, 2, 2]);
        if !config.factored {
            return Ok(VideoStem {
                conv: conv(init, 3, width, [3, 7, 7], stride)?,
                bn: BatchNorm::new(init, width)?,
                time: None,
                time_bn: None,
            });
        }
        let between = config.stem_between();
        Ok(VideoStem {
            conv: conv(init, 3, between, [1, 7, 7], stride)?,
            bn: BatchNorm::new(init, between)?,
            time: Some(conv(init, between, width, [3, 1, 1], [1; 3])?),
            time_bn: Some(BatchNorm::new(init, width)?),
        })
    }
}

impl<B: Backend> Layer<B> for VideoStem<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.conv.forward_norm_relu(&self.bn, x, None)?;
        match (&self.time, &self.time_bn) {
            (Some(time), Some(bn)) => time.forward_norm_relu(bn, &x, None),
            _ => Ok(x),
        }
    }
}

impl<B: Backend> VideoBlock<B> {
    /// A block from `inputs` to `outputs` channels whose first convolution has the stride, in time as well.
    ///
    /// # Errors
    /// No channels, a stride of 0, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, outputs: usize, stride: usize, factored: bool) -> Result<Self> {
        // As in the original, the second convolution has as many channels between as the first.
        let between = factored.then(|| VideoResNetConfig::between(inputs, outputs));
        Ok(VideoBlock {
            conv1: NormedVideoConv::new(init, inputs, outputs, stride, between)?,
            conv2: NormedVideoConv::new(init, outputs, outputs, 1, between)?,
            downsample: match stride == 1 && inputs == outputs {
                true => None,
                false => Some(VideoShortcut {
                    conv: conv(init, inputs, outputs, [1; 3], [stride; 3])?,
                    bn: BatchNorm::new(init, outputs)?,
                }),
            },
        })
    }
}

impl<B: Backend> Layer<B> for VideoBlock<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.conv1.forward_relu(x, None)?;
        let shortcut = self.downsample.as_ref().map(|s| s.forward(x)).transpose()?;
        self.conv2.forward_relu(&y, Some(shortcut.as_ref().unwrap_or(x)))
    }
}

impl<B: Backend> NormedVideoConv<B> {
    /// A convolution with a stride; factored if it has channels between.
    fn new(init: &mut Init<B>, inputs: usize, outputs: usize, stride: usize, between: Option<usize>) -> Result<Self> {
        Ok(NormedVideoConv {
            conv: match between {
                None => VideoConv::Whole(Box::new(conv(init, inputs, outputs, [3; 3], [stride; 3])?)),
                Some(between) => VideoConv::Factored(Box::new(FactoredConv {
                    space: conv(init, inputs, between, [1, 3, 3], [1, stride, stride])?,
                    bn: BatchNorm::new(init, between)?,
                    time: conv(init, between, outputs, [3, 1, 1], [stride, 1, 1])?,
                })),
            },
            bn: BatchNorm::new(init, outputs)?,
        })
    }

    /// The convolution, the norm, a residual that is added, and a ReLU.
    fn forward_relu(&self, x: &Tensor<B>, residual: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        match &self.conv {
            VideoConv::Whole(conv) => conv.forward_norm_relu(&self.bn, x, residual),
            VideoConv::Factored(factored) => {
                let FactoredConv { space, bn, time } = &**factored;
                let x = space.forward_norm_relu(bn, x, None)?;
                time.forward_norm_relu(&self.bn, &x, residual)
            }
        }
    }
}

impl<B: Backend> Walkable<B> for VideoConv<B> {
    fn kind(&self) -> &'static str {
        match self {
            VideoConv::Whole(conv) => conv.kind(),
            VideoConv::Factored(conv) => conv.kind(),
        }
    }
    fn module_id(&self) -> ModuleId {
        match self {
            VideoConv::Whole(conv) => conv.module_id(),
            VideoConv::Factored(conv) => conv.module_id(),
        }
    }
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        match self {
            VideoConv::Whole(conv) => conv.copied(),
            VideoConv::Factored(conv) => conv.copied(),
        }
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        match self {
            VideoConv::Whole(conv) => conv.walk(walk),
            VideoConv::Factored(conv) => conv.walk(walk),
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        match self {
            VideoConv::Whole(conv) => conv.walk_mut(walk),
            VideoConv::Factored(conv) => conv.walk_mut(walk),
        }
    }
}

impl<B: Backend> Layer<B> for VideoShortcut<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.conv.forward_norm(&self.bn, x)
    }
}
