//! A deep convolutional GAN.

use crate::images::{self, ImagesOn};
use crate::task::{Phase, Task, Views};
use crate::{
    Card, Form, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, PhaseRecipe, Recipe, Shown, squares,
};
use kiln_core::{Backend, Error, Result};
use kiln_data::DataKind;
use kiln_nn::layers::{BatchNorm, Conv2d, ConvTranspose2d, LeakyRelu, Noise, Relu, Tanh};
use kiln_nn::{Init, Initializer, Layer, Module, Param, Scheme, Sequential, Tensor, trace};
use kiln_train::Output;

/// Elements of a latent vector.
const LATENT: usize = DcganConfig::DIGITS.latent;

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "DCGAN, a deep convolutional GAN, which draws 28x28 digits, or images of 32 or 64 pixels",
    input: Input::images_of(&DcganConfig::DIGITS.image, &[28, 32, 64]),
    output: OutputKind::Images,
    values: &[
        Shown::new("discriminator/loss", Form::Number),
        Shown::new("generator/loss", Form::Number),
        Shown::labelled("loss", "discriminator", Form::Number),
        Shown::new("frechet", Form::Number),
    ],
    monitor: ("frechet", false),
    parameters: 898_304,
    recipe: Recipe {
        data: DataKind::Mnist,
        epochs: 25,
        batch: 64,
        optimizer: OptimizerOptions {
            lr: 2e-4,
            betas: Some([0.5, 0.999]),
            ..OptimizerOptions::of(OptimizerKind::Adam)
        },
        phases: &[PhaseRecipe::named("discriminator"), PhaseRecipe::named("generator")],
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<Task<B, Dcgan<B>, images::Images>> {
    let config = DcganConfig {
        image: sizes.image,
        ..DcganConfig::DIGITS
    };
    Ok(Task {
        net: Dcgan::new(init, config)?,
        prepare: None,
        loader: images::loader::<LATENT>,
        phases: vec![
            Phase {
                name: "discriminator",
                step: Dcgan::discriminator_loss,
                trains: |name| name.starts_with("discriminator."),
            },
            Phase {
                name: "generator",
                step: Dcgan::generator_loss,
                trains: |name| name.starts_with("generator."),
            },
        ],
        measure: Dcgan::measure,
        forward: |gan, batch| {
            trace::within(gan, &batch.images, || {
                gan.discriminator.main.forward(&gan.fakes(batch)?)
            })
        },
        metrics: squares::metrics,
        views: Views {
            decode: Some((LATENT, Dcgan::generate)),
            ..Views::default()
        },
    })
}

/// Sizes of a [`Dcgan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcganConfig {
    /// The shape of the images, `[H, W, C]`, squares whose side is 4 to 7 times a power of 2.
    pub image: [usize; 3],
    /// Elements of a latent vector.
    pub latent: usize,
    /// Channels of the layers next to the images; each layer farther away has twice as many (`ngf` and `ndf` of PyTorch's example).
    pub width: usize,
}

impl DcganConfig {
    /// For digits of 28×28, with the width and the latent vectors of PyTorch's example.
    pub const DIGITS: DcganConfig = DcganConfig {
        image: [28, 28, 1],
        latent: 100,
        width: 64,
    };

    /// The side of the first feature map, and how often it doubles.
    fn stages(&self) -> Result<(usize, u32)> {
        let [side, width, _] = self.image;
        let (mut first, mut doublings) = (side, 0);
        while first.is_multiple_of(2) && first >= 8 {
            (first, doublings) = (first / 2, doublings + 1);
        }
        if side != width || doublings == 0 || first > 7 {
            let expected = "a square whose side is 4 to 7 times a power of 2, such as 28, 32 or 64";
            return Err(Error::invalid("dcgan", "image", format!("{:?}", self.image), expected));
        }
        Ok((first, doublings))
    }

    /// The channels of the feature map that is to double so many times, or has been made by as many halvings.
    fn channels(&self, doublings: u32) -> usize {
        self.width.saturating_mul(1 << (doublings - 1))
    }

    /// The layers of the generator but for the last activation: latent vectors `[N, 1, 1, latent]` to images `[N, H, W, C]`.
    pub(crate) fn generator<B: Backend>(&self, init: &mut Init<B>) -> Result<Sequential<B>> {
        let (first, doublings) = self.stages()?;
        let mut channels = self.channels(doublings);
        let widest = ConvTranspose2d::builder(self.latent, channels, first);
        let mut net = Sequential::new()
            .push(widest.bias(false).build(init)?)
            .push(norm(init, channels)?)
            .push(Relu);
        let doubling = |inputs, outputs| {
            let double = ConvTranspose2d::builder(inputs, outputs, 4).stride(2).padding(1);
            double.bias(false)
        };
        for left in (1..doublings).rev() {
            let fewer = self.channels(left);
            net = net
                .push(doubling(channels, fewer).build(init)?)
                .push(norm(init, fewer)?)
                .push(Relu);
            channels = fewer;
        }
        Ok(net.push(doubling(channels, self.image[2]).build(init)?))
    }

    /// The layers from images `[N, H, W, C]` to scores `[N, 1, 1, 1]`, with batch norms, or with biases in their place.
    pub(crate) fn judge<B: Backend>(&self, init: &mut Init<B>, norms: bool) -> Result<Sequential<B>> {
        let (first, halvings) = self.stages()?;
        let leaky = LeakyRelu { negative_slope: 0.2 };
        let mut channels = self.image[2];
        let mut net = Sequential::new();
        for done in 1..=halvings {
            let more = self.channels(done);
            let halving = Conv2d::builder(channels, more, 4).stride(2).padding(1);
            net = net.push(halving.bias(!norms).build(init)?);
            // The images themselves are not normalised.
            if norms && done > 1 {
                net = net.push(norm(init, more)?);
            }
            net = net.push(leaky);
            channels = more;
        }
        Ok(net.push(Conv2d::builder(channels, 1, first).bias(false).build(init)?))
    }
}

/// A batch norm whose scales begin near 1.
fn norm<B: Backend>(init: &mut Init<B>, channels: usize) -> Result<BatchNorm<B>> {
    let mut norm = BatchNorm::new(init, channels)?;
    let scales = Initializer::Normal { mean: 1.0, std: 0.02 };
    norm.weight = Some(Param::new(init.tensor(&[channels], &scales)?));
    Ok(norm)
}

/// Latent vectors `[N, latent]` as images of one pixel.
pub(crate) fn as_pixels<B: Backend>(latent: &Tensor<B>) -> Result<Tensor<B>> {
    latent.reshape(&[latent.shape()[0], 1, 1, latent.shape()[1]])
}

/// The layers of one side of a [`Dcgan`], with the name that they have in PyTorch's example.
#[derive(Clone, Module)]
pub struct DcganSide<B: Backend> {
    /// The layers in order.
    pub main: Sequential<B>,
}

/// A deep convolutional GAN (Radford et al. 2015): a generator of transposed convolutions from latent vectors to images, and a
/// discriminator of convolutions that tells them from real ones, which follow the binary cross-entropy against each other. Layers, their
/// names and initial weights are those of PyTorch's example.
#[derive(Clone, Module)]
pub struct Dcgan<B: Backend> {
    generator: DcganSide<B>,
    discriminator: DcganSide<B>,
    noise: Noise<B>,
    latent: usize,
}

impl<B: Backend> Dcgan<B> {
    /// The net with initial weights of `init`'s seed, drawn from N(0, 0.02).
    ///
    /// # Errors
    /// Images that are no squares of such a side as the config says, memory.
    pub fn new(init: Init<B>, config: DcganConfig) -> Result<Self> {
        let init = &mut init.scheme(Scheme::With {
            weight: Initializer::Normal { mean: 0.0, std: 0.02 },
            bias: Initializer::Zeros,
        });
        let generator = config.generator(init)?.push(Tanh);
        Ok(Dcgan {
            generator: DcganSide { main: generator },
            discriminator: DcganSide {
                main: config.judge(init, true)?,
            },
            noise: Noise::new(init)?,
            latent: config.latent,
        })
    }

    /// The images `[N, H, W, C]`, with values from 0 to 1, of latent vectors `[N, latent]`.
    ///
    /// # Errors
    /// Another shape, memory.
    pub fn generate(&self, latent: &Tensor<B>) -> Result<Tensor<B>> {
        let images = self.generator.main.forward(&as_pixels(latent)?)?;
        images.add_scalar(1.0)?.mul_scalar(0.5)
    }

    /// As many made images as a batch has real ones, with values from −1 to 1.
    fn fakes(&self, batch: &ImagesOn<B>) -> Result<Tensor<B>> {
        let latent = batch.latent(&self.noise, self.latent)?;
        self.generator.main.forward(&as_pixels(&latent)?)
    }

    /// The logits that images, with values from −1 to 1, are real.
    fn logits(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        self.discriminator.main.forward(images)
    }

    /// The cross-entropy of telling real images from made ones.
    fn discriminator_loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let real = images::softplus_mean(&self.logits(&batch.centred()?)?.neg()?)?;
            let fake = images::softplus_mean(&self.logits(&self.fakes(batch)?.detach())?)?;
            Ok(Output::new(real.add(&fake)?).part("real", &real).part("fake", &fake))
        })
    }

    /// The cross-entropy of made images with real ones.
    fn generator_loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let logits = self.logits(&self.fakes(batch)?)?;
            Ok(Output::new(images::softplus_mean(&logits.neg()?)?))
        })
    }

    /// The loss of the discriminator, and the features of made images.
    fn measure(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let made = self.fakes(batch)?;
            let real = images::softplus_mean(&self.logits(&batch.centred()?)?.neg()?)?;
            let loss = real.add(&images::softplus_mean(&self.logits(&made)?)?)?;
            let made = made.add_scalar(1.0)?.mul_scalar(0.5)?;
            images::measured(loss, made)
        })
    }
}
