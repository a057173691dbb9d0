//! The wide residual networks of Zagoruyko and Komodakis 2016, for small images.

use crate::classes::Row;
use crate::resnet::{conv, kaiming};
use crate::{NetSizes, OptimizerOptions, Recipe, classes};
use kiln_core::{Backend, Error, Result};
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, GlobalAvgPool2d, Linear};
use kiln_nn::{Init, Layer, Module, Scheme, Tensor};

/// The row of the table of models, trained as in the paper but for the learning rate, which falls by half a cosine in place of steps.
pub(crate) const WRN_28_10: Row<WideResNetConfig> = Row {
    card: classes::card(
        "Wide ResNet-28-10, for 32x32 colour images",
        &[32, 32, 3],
        10,
        WideResNetConfig::WRN_28_10.parameters(),
        Recipe {
            optimizer: OptimizerOptions {
                nesterov: Some(true),
                ..Recipe::cifar(0.1).optimizer
            },
            ..Recipe::cifar(0.1)
        },
    ),
    config: WideResNetConfig::WRN_28_10,
};

/// The network of a row with its task.
pub(crate) fn task<B: Backend>(
    row: &Row<WideResNetConfig>,
    init: Init<B>,
    sizes: NetSizes,
) -> Result<classes::Task<B>> {
    let config = WideResNetConfig {
        classes: sizes.outputs,
        ..row.config
    };
    Ok(classes::task(WideResNet::new(init, config)?))
}

/// The sizes of a [`WideResNet`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WideResNetConfig {
    /// Number of classes.
    pub classes: usize,
    /// Layers with weights, 4 and six for each block of a stage: 10, 16, 22, 28, …
    pub depth: usize,
    /// Channels of the first convolution, 16 in the paper.
    pub width: usize,
    /// The factor of the stages' channels: the first has so many times those of the first convolution, each other twice as many as the
    /// one before.
    pub widen: usize,
    /// Probability of the dropout between the two convolutions of a block; 0 for none. The paper also has 0.3.
    pub dropout: f64,
}

impl WideResNetConfig {
    /// WRN-28-10 of the paper, without dropout: 28 layers, ten times the channels, ten classes.
    pub const WRN_28_10: WideResNetConfig = WideResNetConfig {
        classes: 10,
        depth: 28,
        width: 16,
        widen: 10,
        dropout: 0.0,
    };

    /// Blocks of a stage, of which each has six layers in the three stages.
    const fn blocks(&self) -> usize {
        self.depth.saturating_sub(4) / 6
    }

    /// Channels of a stage.
    const fn channels(&self, stage: usize) -> usize {
        (self.width << stage) * self.widen
    }

    /// Number of values in all parameters.
    pub const fn parameters(&self) -> usize {
        let (mut sum, mut inputs, mut stage) = (9 * 3 * self.width, self.width, 0);
        while stage < 3 {
            let outputs = self.channels(stage);
            let mut block = 0;
            while block < self.blocks() {
                sum += 2 * inputs + 9 * inputs * outputs + 2 * outputs + 9 * outputs * outputs;
                if inputs != outputs {
                    sum += inputs * outputs;
                }
                (inputs, block) = (outputs, block + 1);
            }
            stage += 1;
        }
        sum + 2 * inputs + inputs * self.classes + self.classes
    }
}

/// A wide residual network (Zagoruyko and Komodakis, "Wide Residual Networks", 2016): a 3×3 convolution, three stages of
/// blocks whose norms and ReLUs come before the convolutions (He et al., "Identity Mappings in Deep Residual Networks", 2016), a norm
/// and a ReLU, then the mean over positions and one dense layer. Images `[N, H, W, 3]`, made for 32×32, to logits `[N, classes]`.
///
/// ```
/// use kiln_models::{WideResNet, WideResNetConfig};
/// use kiln_nn::{DType, Init, Layer, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let config = WideResNetConfig { depth: 10, width: 4, widen: 2, dropout: 0.3, ..WideResNetConfig::WRN_28_10 };
/// let net = WideResNet::new(Init::new(&cpu, 0), config)?;
/// let images = Tensor::zeros(&cpu, &[2, 8, 8, 3], DType::F32)?;
/// assert_eq!(net.forward(&images)?.shape().dims(), [2, 10]);
/// # Ok::<(), kiln_core::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct WideResNet<B: Backend> {
    conv1: Conv2d<B>,
    layer1: Vec<PreActivationBlock<B>>,
    layer2: Vec<PreActivationBlock<B>>,
    layer3: Vec<PreActivationBlock<B>>,
    bn: BatchNorm<B>,
    avgpool: GlobalAvgPool2d,
    fc: Linear<B>,
}

/// Two 3×3 convolutions behind a batch norm and a ReLU each, and a shortcut around them: of the input where the block keeps its channels,
/// else a 1×1 convolution behind the first ReLU.
#[derive(Clone, Debug, Module)]
pub struct PreActivationBlock<B: Backend> {
    bn1: BatchNorm<B>,
    conv1: Conv2d<B>,
    bn2: BatchNorm<B>,
    dropout: Option<Dropout<B>>,
    conv2: Conv2d<B>,
    shortcut: Option<Conv2d<B>>,
}

impl<B: Backend> WideResNet<B> {
    /// The net with the paper's initial weights of `init`'s seed: normal, by the outputs of the kernel (He et al. 2015); those of the dense
    /// layer are PyTorch's.
    ///
    /// # Errors
    /// A depth other than 4 and a multiple of 6, a size of 0, a probability outside `0..=1`, memory.
    pub fn new(mut init: Init<B>, config: WideResNetConfig) -> Result<Self> {
        if config.blocks() == 0 || config.depth != 6 * config.blocks() + 4 {
            let expected = "4 more than a multiple of 6, at least 10";
            return Err(Error::invalid("wide resnet", "depth", config.depth, expected));
        }
        let init = &mut init;
        init.set_scheme(kaiming());
        let conv1 = conv(init, 3, config.width, 3, 1)?;
        let mut inputs = config.width;
        let mut stage = |number: usize| -> Result<Vec<PreActivationBlock<B>>> {
            let outputs = config.channels(number);
            let mut blocks = Vec::with_capacity(config.blocks());
            for block in 0..config.blocks() {
                let stride = if number > 0 && block == 0 { 2 } else { 1 };
                let dropout = config.dropout;
                blocks.push(PreActivationBlock::new(init, (inputs, outputs), stride, dropout)?);
                inputs = outputs;
            }
            Ok(blocks)
        };
        let (layer1, layer2, layer3) = (stage(0)?, stage(1)?, stage(2)?);
        init.set_scheme(Scheme::Torch);
        Ok(WideResNet {
            conv1,
            layer1,
            layer2,
            layer3,
            bn: BatchNorm::new(init, inputs)?,
            avgpool: GlobalAvgPool2d::default(),
            fc: Linear::new(init, inputs, config.classes)?,
        })
    }
}

impl<B: Backend> Layer<B> for WideResNet<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = self.conv1.forward(x)?;
        for block in [&self.layer1, &self.layer2, &self.layer3].into_iter().flatten() {
            x = block.forward(&x)?;
        }
        let x = self.bn.forward_relu(&x, None)?;
        self.fc.forward(&self.avgpool.forward(&x)?)
    }
}

impl<B: Backend> PreActivationBlock<B> {
    /// A block from so many to so many channels whose first convolution has the stride.
    ///
    /// # Errors
    /// No channels, a stride of 0, a probability outside `0..=1`, memory.
    pub fn new(init: &mut Init<B>, (inputs, outputs): (usize, usize), stride: usize, dropout: f64) -> Result<Self> {
        Ok(PreActivationBlock {
            bn1: BatchNorm::new(init, inputs)?,
            conv1: conv(init, inputs, outputs, 3, stride)?,
            bn2: BatchNorm::new(init, outputs)?,
            dropout: (dropout != 0.0).then(|| Dropout::new(init, dropout)).transpose()?,
            conv2: conv(init, outputs, outputs, 3, 1)?,
            shortcut: (stride != 1 || inputs != outputs)
                .then(|| conv(init, inputs, outputs, 1, stride))
                .transpose()?,
        })
    }
}

impl<B: Backend> Layer<B> for PreActivationBlock<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let active = self.bn1.forward_relu(x, None)?;
        let mut y = self.conv1.forward_norm_relu(&self.bn2, &active, None)?;
        if let Some(dropout) = &self.dropout {
            y = dropout.forward(&y)?;
        }
        let y = self.conv2.forward(&y)?;
        match &self.shortcut {
            Some(shortcut) => y.add(&shortcut.forward(&active)?),
            None => y.add(x),
        }
    }
}
