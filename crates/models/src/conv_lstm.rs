//! A convolutional network of frames with a recurrent one behind it, for clips.

use crate::classes::Row;
use crate::{NetSizes, Recipe, classes};
use kiln_core::{Backend, Error, Result};
use kiln_nn::layers::{AdaptiveAvgPool2d, BatchNorm, Conv2d, Linear, Lstm};
use kiln_nn::{Init, Layer, Module, Tensor};

/// The row of the table of models.
pub(crate) const SMALL: Row<ConvLstmConfig> = Row {
    card: classes::of_clips(
        "three convolutions of each frame and an LSTM, for clips of 8 frames of 32x32",
        &[8, 32, 32, 3],
        ConvLstmConfig::SMALL.classes,
        ConvLstmConfig::SMALL.parameters(),
        Recipe::MOTIONS,
    ),
    config: ConvLstmConfig::SMALL,
};

/// The network of a row with its task.
pub(crate) fn task<B: Backend>(row: &Row<ConvLstmConfig>, init: Init<B>, sizes: NetSizes) -> Result<classes::Task<B>> {
    let config = ConvLstmConfig {
        classes: sizes.outputs,
        ..row.config
    };
    Ok(classes::task(ConvLstm::new(init, config)?))
}

/// The sizes of a [`ConvLstm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvLstmConfig {
    /// Number of classes.
    pub classes: usize,
    /// Channels of the three convolutions.
    pub channels: [usize; 3],
    /// Rows and columns that the last image of each frame is averaged to.
    pub grid: usize,
    /// Numbers that describe a frame.
    pub features: usize,
    /// Elements of the state of the LSTM.
    pub hidden: usize,
}

impl ConvLstmConfig {
    /// Sizes for frames of 32×32: 16, 32 and 64 channels, a grid of 4×4, and 128 features and elements of the state.
    pub const SMALL: ConvLstmConfig = ConvLstmConfig {
        classes: 8,
        channels: [16, 32, 64],
        grid: 4,
        features: 128,
        hidden: 128,
    };

    /// Number of values in all parameters.
    pub const fn parameters(&self) -> usize {
        let [a, b, c] = self.channels;
        let convolutions = 9 * (3 * a + a * b + b * c) + 2 * (a + b + c);
        let dense = c * self.grid * self.grid * self.features + self.features;
        let recurrent = 4 * self.hidden * (self.features + self.hidden + 2);
        convolutions + dense + recurrent + self.hidden * self.classes + self.classes
    }
}

/// A network for video that looks at each frame by itself and then at what it has seen in the order of time (Donahue et al., "Long-term
/// Recurrent Convolutional Networks for Visual Recognition and Description", 2015): three 3×3 convolutions of stride 2 with batch norm and
/// ReLU, the means over a grid, a dense layer with a ReLU, an LSTM over frames, and a dense layer of its last state. Clips `[N, T, H, W, 3]`
/// of any length, height and width to logits `[N, classes]`.
///
/// ```
/// use kiln_models::{ConvLstm, ConvLstmConfig};
/// use kiln_nn::{DType, Init, Layer, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let net = ConvLstm::new(Init::new(&cpu, 0), ConvLstmConfig { classes: 5, ..ConvLstmConfig::SMALL })?;
/// let clips = Tensor::zeros(&cpu, &[2, 6, 32, 32, 3], DType::F32)?;
/// assert_eq!(net.forward(&clips)?.shape().dims(), [2, 5]);
/// # Ok::<(), kiln_core::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct ConvLstm<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    conv3: Conv2d<B>,
    bn3: BatchNorm<B>,
    pool: AdaptiveAvgPool2d,
    fc1: Linear<B>,
    lstm: Lstm<B>,
    fc2: Linear<B>,
}

impl<B: Backend> ConvLstm<B> {
    /// The net with PyTorch's default initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No classes, a size of 0, memory.
    pub fn new(mut init: Init<B>, config: ConvLstmConfig) -> Result<Self> {
        let init = &mut init;
        let [a, b, c] = config.channels;
        let conv = |init: &mut Init<B>, inputs: usize, outputs: usize| {
            let builder = Conv2d::builder(inputs, outputs, 3).bias(false);
            builder.stride(2).padding(1).build(init)
        };
        Ok(ConvLstm {
            conv1: conv(init, 3, a)?,
            bn1: BatchNorm::new(init, a)?,
            conv2: conv(init, a, b)?,
            bn2: BatchNorm::new(init, b)?,
            conv3: conv(init, b, c)?,
            bn3: BatchNorm::new(init, c)?,
            pool: AdaptiveAvgPool2d::new(config.grid),
            fc1: Linear::new(init, c * config.grid * config.grid, config.features)?,
            lstm: Lstm::builder(config.features, config.hidden)
                .batch_first(true)
                .build(init)?,
            fc2: Linear::new(init, config.hidden, config.classes)?,
        })
    }
}

impl<B: Backend> Layer<B> for ConvLstm<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let (expected, rank) = ("5: [N, T, H, W, C]", x.rank());
        let &[n, frames, h, w, c] = x.shape().dims() else {
            return Err(Error::Rank {
                op: "conv_lstm",
                expected,
                rank,
            });
        };
        if frames == 0 {
            return Err(Error::invalid("conv_lstm", "frames", 0, "at least 1"));
        }
        let x = x.reshape(&[n * frames, h, w, c])?;
        let x = self.conv1.forward_norm_relu(&self.bn1, &x, None)?;
        let x = self.conv2.forward_norm_relu(&self.bn2, &x, None)?;
        let x = self.conv3.forward_norm_relu(&self.bn3, &x, None)?;
        // Channel by channel, as PyTorch has them.
        let x = self.pool.forward(&x)?.permute(&[0, 3, 1, 2])?;
        let size = x.shape()[1..].iter().product::<usize>();
        let x = self.fc1.forward(&x.reshape(&[n * frames, size])?)?.relu()?;
        let states = self.lstm.forward(&x.reshape(&[n, frames, x.shape()[1]])?)?;
        self.fc2.forward(&states.narrow(1, frames - 1, 1)?.squeeze(1)?)
    }
}
