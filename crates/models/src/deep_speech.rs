//! DeepSpeech 2, which writes down what is said.

use crate::speech::{self, SpeechModel};
use crate::{Augment, Card, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, ScheduleKind};
use kiln_core::{Backend, Error, Result};
use kiln_data::DataKind;
use kiln_nn::layers::{BatchNorm, Conv2d, Gru, Linear};
use kiln_nn::{DType, Indices, Init, Layer, Module, Tensor, trace};

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a small DeepSpeech 2: convolutions and recurrent layers over mel spectrograms, trained with CTC",
    input: Input::speech(&[160, DeepSpeech2Config::SMALL.mels]),
    output: OutputKind::Letters(DeepSpeech2Config::SMALL.classes),
    values: speech::VALUES,
    monitor: speech::MONITOR,
    parameters: DeepSpeech2Config::SMALL.parameters(),
    recipe: Recipe {
        data: DataKind::Speech,
        augment: &[Augment::Speed, Augment::SpecAugment { frames: 30, bins: 8 }],
        epochs: 60,
        batch: 16,
        valid_batch: 16,
        optimizer: OptimizerOptions {
            lr: 2e-3,
            ..OptimizerOptions::of(OptimizerKind::AdamW)
        },
        schedule: ScheduleKind::WarmupCosine,
        clip_norm: Some(1.0),
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<speech::Task<B>> {
    let config = DeepSpeech2Config {
        classes: sizes.outputs,
        ..DeepSpeech2Config::SMALL
    };
    Ok(speech::task(DeepSpeech2::new(init, config)?))
}

/// The sizes of a [`DeepSpeech2`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeepSpeech2Config {
    /// Bins of a frame.
    pub mels: usize,
    /// Letters and the blank, which is class 0.
    pub classes: usize,
    /// Channels of the convolutions.
    pub channels: usize,
    /// Frames and bins of the kernels, odd numbers.
    pub kernels: [[usize; 2]; 2],
    /// Strides along frames and bins.
    pub strides: [[usize; 2]; 2],
    /// Elements of a recurrent layer's state, in each of its two directions.
    pub hidden: usize,
    /// Number of recurrent layers.
    pub layers: usize,
}

impl DeepSpeech2Config {
    /// The sizes of the recipe, for an hour of speech or less: 40 mel bins, 25 steps a second, two recurrent layers of 160.
    pub const SMALL: DeepSpeech2Config = DeepSpeech2Config {
        mels: 40,
        classes: 29,
        channels: 32,
        kernels: [[11, 21], [7, 7]],
        strides: [[2, 2], [2, 2]],
        hidden: 160,
        layers: 2,
    };

    /// The deepest network of the paper's table 1 with the convolutions of its section 3.4 and GRUs: 161 bins, kernels of 11×41 and 11×21, 50
    /// steps a second, seven recurrent layers of 1280.
    pub const PAPER: DeepSpeech2Config = DeepSpeech2Config {
        mels: 161,
        classes: 29,
        channels: 32,
        kernels: [[11, 41], [11, 21]],
        strides: [[2, 2], [1, 2]],
        hidden: 1280,
        layers: 7,
    };

    /// Elements of a step behind the convolutions.
    const fn features(&self) -> usize {
        let [[_, first], [_, second]] = self.strides;
        self.mels.div_ceil(first).div_ceil(second) * self.channels
    }

    /// The number of values in all parameters, which follows from the sizes.
    pub const fn parameters(&self) -> usize {
        let (c, h) = (self.channels, self.hidden);
        let [[t1, f1], [t2, f2]] = self.kernels;
        let convolutions = t1 * f1 * c + 2 * c + t2 * f2 * c * c + 2 * c;
        let first = 2 * 3 * h * (self.features() + h + 2);
        let other = 2 * h + 2 * 3 * h * (h + h + 2);
        convolutions + first + (self.layers - 1) * other + 2 * h + (h + 1) * self.classes
    }
}

/// DeepSpeech 2 (Amodei et al., "Deep Speech 2: End-to-End Speech Recognition in English and Mandarin", ICML 2016): two convolutions over
/// frames and bins, each with a batch norm and a ReLU that is clipped at 20, GRUs in both directions, whose results are added, with a
/// batch norm before each but the first, and a dense layer.
///
/// Steps after the end of an utterance are set to zero after every convolution, and the recurrent layers do not read them: in evaluation an
/// utterance has the logits that it has by itself.
#[derive(Clone, Debug, Module)]
pub struct DeepSpeech2<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    rnns: Vec<SpeechLayer<B>>,
    norm: BatchNorm<B>,
    fc: Linear<B>,
    strides: [usize; 2],
    mels: usize,
}

/// A GRU in both directions, whose results are added, behind a batch norm if there is one: `[T, N, in]` to `[T, N, H]`.
#[derive(Clone, Debug, Module)]
pub struct SpeechLayer<B: Backend> {
    norm: Option<BatchNorm<B>>,
    gru: Gru<B>,
}

impl<B: Backend> DeepSpeech2<B> {
    /// Creates the network.
    ///
    /// # Errors
    /// Sizes of 0, kernels of an even size, memory.
    pub fn new(mut init: Init<B>, config: DeepSpeech2Config) -> Result<Self> {
        let init = &mut init;
        if config.layers == 0 {
            return Err(Error::invalid("DeepSpeech2", "layers", 0, "at least 1"));
        }
        if let Some(even) = config.kernels.iter().flatten().find(|k| k.is_multiple_of(2)) {
            return Err(Error::invalid("DeepSpeech2", "kernels", even, "odd numbers"));
        }
        let conv = |init: &mut Init<B>, inputs: usize, i: usize| {
            let conv = Conv2d::builder(inputs, config.channels, config.kernels[i]).stride(config.strides[i]);
            // The same at any length, as `same` is not: a sequence is padded alike by itself and in a batch.
            conv.padding(config.kernels[i].map(|k| k / 2)).bias(false).build(init)
        };
        let layer = |init: &mut Init<B>, i: usize| -> Result<SpeechLayer<B>> {
            let inputs = if i == 0 { config.features() } else { config.hidden };
            Ok(SpeechLayer {
                norm: (i > 0).then(|| BatchNorm::new(init, inputs)).transpose()?,
                gru: Gru::builder(inputs, config.hidden).bidirectional(true).build(init)?,
            })
        };
        Ok(DeepSpeech2 {
            conv1: conv(init, 1, 0)?,
            bn1: BatchNorm::new(init, config.channels)?,
            conv2: conv(init, config.channels, 1)?,
            bn2: BatchNorm::new(init, config.channels)?,
            rnns: (0..config.layers).map(|i| layer(init, i)).collect::<Result<_>>()?,
            norm: BatchNorm::new(init, config.hidden)?,
            fc: Linear::new(init, config.hidden, config.classes)?,
            strides: config.strides.map(|[frames, _]| frames),
            mels: config.mels,
        })
    }

    /// Spectrograms `[N, T, F]`, zero behind their i32 lengths `frames` `[N]`, to logits `[N, T', classes]` and their lengths `[N]`: T' is T
    /// over the strides, rounded up.
    ///
    /// # Errors
    /// Spectrograms of another shape; lengths of another shape or dtype, or outside of `1..=T`.
    pub fn forward(&self, x: &Tensor<B>, frames: &Indices<B>) -> Result<(Tensor<B>, Indices<B>)> {
        let &[n, t, f] = x.shape().dims() else {
            return Err(Error::Rank {
                op: "DeepSpeech2",
                expected: "3",
                rank: x.rank(),
            });
        };
        if f != self.mels {
            let expected = format!("[N, T, {}]", self.mels);
            return Err(Error::invalid("DeepSpeech2", "x", x.shape(), expected));
        }
        let mut lengths = frames.clone();
        let logits = trace::scope(self, x, || {
            let mut y = x.reshape(&[n, t, f, 1])?;
            let convolutions = [(&self.conv1, &self.bn1), (&self.conv2, &self.bn2)];
            for ((conv, norm), stride) in convolutions.into_iter().zip(self.strides) {
                lengths = lengths.add(stride as i32 - 1)?.floor_divide(stride as i32)?;
                let clipped = conv.forward_norm(norm, &y)?.clamp(0.0, 20.0)?;
                let inside = mask(&lengths, clipped.shape()[1], clipped.dtype())?;
                y = clipped.mul(&inside.reshape(&[n, clipped.shape()[1], 1, 1])?)?;
            }
            let &[_, steps, bins, channels] = y.shape().dims() else {
                return Err(Error::invalid("DeepSpeech2", "x", y.shape(), "[N, T, F, C]"));
            };
            let mut y = y.reshape(&[n, steps, bins * channels])?.transpose(0, 1)?;
            for layer in &self.rnns {
                y = layer.forward(&y, &lengths)?;
            }
            self.fc.forward(&self.norm.forward(&y)?)?.transpose(0, 1)
        })?;
        Ok((logits, lengths))
    }
}

/// 1 for each of `steps` steps that lies before the length of its sequence, else 0: `[N, steps]`. Made on the device.
fn mask<B: Backend>(lengths: &Indices<B>, steps: usize, dtype: DType) -> Result<Tensor<B>> {
    let numbers = Indices::full(lengths.backend(), &[1, steps], 1i32)?.cumsum(1)?;
    numbers.le(&lengths.reshape(&[lengths.size(), 1])?)?.to_float(dtype)
}

impl<B: Backend> SpeechLayer<B> {
    /// Inputs `[T, N, in]` of i32 `lengths` `[N]` to states `[T, N, H]`, zero behind the lengths.
    fn forward(&self, x: &Tensor<B>, lengths: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let normed = match &self.norm {
                Some(norm) => norm.forward(x)?,
                None => x.clone(),
            };
            let (both, _) = self.gru.forward_packed(&normed, lengths, None)?;
            match *both.shape().dims() {
                [t, n, states] => both.reshape(&[t, n, 2, states / 2])?.sum(&[2], false),
                _ => Ok(both),
            }
        })
    }
}

impl<B: Backend> SpeechModel<B> for DeepSpeech2<B> {
    fn logits(&self, x: &Tensor<B>, frames: &Indices<B>) -> Result<(Tensor<B>, Indices<B>)> {
        self.forward(x, frames)
    }

    fn frames_of_a_step(&self) -> usize {
        self.strides.iter().product()
    }
}
