//! Wasserstein GANs with gradient penalty, and the one of dense layers.

use crate::dcgan::as_pixels;
use crate::images::{self, ImagesOn};
use crate::task::{Phase, Task, Views};
use crate::{
    Card, DcganConfig, Form, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, PhaseRecipe, Recipe, Shown,
    squares,
};
use kiln_core::{Backend, Error, Result};
use kiln_data::DataKind;
use kiln_nn::layers::{LeakyRelu, Linear, Noise, Relu};
use kiln_nn::{Init, Layer, Module, Sequential, Tensor, grad, trace};
use kiln_train::Output;

/// The shape of the images.
const SHAPE: [usize; 3] = [28, 28, 1];
/// Pixels of an image.
const PIXELS: usize = 28 * 28;
/// Elements of a latent vector.
const LATENT: usize = 64;
/// The factor of the penalty.
const LAMBDA: f64 = 10.0;
/// The values that are shown of a Wasserstein GAN.
pub(crate) const VALUES: &[Shown] = &[
    Shown::new("critic/loss", Form::Number),
    Shown::new("generator/loss", Form::Number),
    Shown::labelled("loss", "distance", Form::Number),
    Shown::new("frechet", Form::Number),
];

/// The updates of a step: the generator's come after five of the critic.
pub(crate) const PHASES: &[PhaseRecipe] = &[
    PhaseRecipe::named("critic"),
    PhaseRecipe {
        every: 5,
        ..PhaseRecipe::named("generator")
    },
];

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a Wasserstein GAN with gradient penalty, which draws 28x28 digits",
    input: Input::images(&SHAPE),
    output: OutputKind::Images,
    values: VALUES,
    monitor: ("frechet", false),
    parameters: 550_928,
    recipe: Recipe {
        data: DataKind::Mnist,
        epochs: 100,
        batch: 64,
        optimizer: OptimizerOptions {
            lr: 2e-4,
            betas: Some([0.5, 0.9]),
            ..OptimizerOptions::of(OptimizerKind::Adam)
        },
        phases: PHASES,
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, _: NetSizes) -> Result<Task<B, WganGp<B>, images::Images>> {
    Ok(of(WganGp::new(init)?, images::loader::<LATENT>))
}

/// The task of a Wasserstein GAN, with a loader for its latent vectors.
pub(crate) fn of<B: Backend>(
    net: WganGp<B>,
    loader: crate::task::MakeLoader<images::Images>,
) -> Task<B, WganGp<B>, images::Images> {
    let latent = net.latent;
    Task {
        net,
        prepare: None,
        loader,
        phases: vec![
            Phase {
                name: "critic",
                step: WganGp::critic_loss,
                trains: |name| name.starts_with("critic."),
            },
            Phase {
                name: "generator",
                step: WganGp::generator_loss,
                trains: |name| name.starts_with("generator."),
            },
        ],
        measure: WganGp::measure,
        forward: |gan, batch| trace::within(gan, &batch.images, || gan.scores(&gan.fakes(batch)?)),
        metrics: squares::metrics,
        views: Views {
            decode: Some((latent, WganGp::generate)),
            ..Views::default()
        },
    }
}

/// A Wasserstein GAN (Arjovsky et al. 2017) whose critic is held to slopes of 1 by a penalty of its gradient (Gulrajani et al. 2017):
/// a generator from latent vectors to images, and a critic from images to a score, three dense layers each, or convolutions.
#[derive(Clone, Module)]
pub struct WganGp<B: Backend> {
    generator: Sequential<B>,
    critic: Sequential<B>,
    noise: Noise<B>,
    latent: usize,
    /// True if the critic takes images of pixels next to each other, and not rows of them.
    convolves: bool,
    #[module(skip)]
    image: [usize; 3],
}

impl<B: Backend> WganGp<B> {
    /// The net of dense layers for images `[28, 28, 1]`, with latent vectors of 64 and PyTorch's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// Memory.
    pub fn new(mut init: Init<B>) -> Result<Self> {
        let init = &mut init;
        Ok(WganGp {
            generator: Sequential::new()
                .push(Linear::new(init, LATENT, 256)?)
                .push(Relu)
                .push(Linear::new(init, 256, 256)?)
                .push(Relu)
                .push(Linear::new(init, 256, PIXELS)?),
            critic: Sequential::new()
                .push(Linear::new(init, PIXELS, 256)?)
                .push(LeakyRelu { negative_slope: 0.2 })
                .push(Linear::new(init, 256, 256)?)
                .push(LeakyRelu { negative_slope: 0.2 })
                // A bias would be the same for real and made images.
                .push(Linear::builder(256, 1).bias(false).build(init)?),
            noise: Noise::new(init)?,
            latent: LATENT,
            convolves: false,
            image: SHAPE,
        })
    }

    /// The net of the convolutions of a [`Dcgan`](crate::Dcgan), with PyTorch's initial weights of `init`'s seed. The critic has biases
    /// in the place of batch norms, with which the penalty of a sample would depend on the others.
    ///
    /// # Errors
    /// Images that are no squares of such a side as the config says, memory.
    pub fn convolutional(mut init: Init<B>, config: DcganConfig) -> Result<Self> {
        let init = &mut init;
        Ok(WganGp {
            generator: config.generator(init)?,
            critic: config.judge(init, false)?,
            noise: Noise::new(init)?,
            latent: config.latent,
            convolves: true,
            image: config.image,
        })
    }

    /// The images `[N, H, W, C]`, with values from 0 to 1, of latent vectors `[N, latent]`.
    ///
    /// # Errors
    /// Another shape, memory.
    pub fn generate(&self, latent: &Tensor<B>) -> Result<Tensor<B>> {
        let logits = match self.convolves {
            true => self.generator.forward(&as_pixels(latent)?)?,
            false => self.generator.forward(latent)?,
        };
        images::shown(&logits, self.image)
    }

    /// As many made images as a batch has real ones, with values from 0 to 1.
    fn fakes(&self, batch: &ImagesOn<B>) -> Result<Tensor<B>> {
        self.generate(&batch.latent(&self.noise, self.latent)?)
    }

    /// The scores `[N, …]` of images `[N, H, W, C]`, one for each.
    fn scores(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        match self.convolves {
            true => self.critic.forward(images),
            false => self.critic.forward(&images.flatten(1, -1)?),
        }
    }

    /// The mean score of images.
    fn score(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        self.scores(images)?.mean(&[], false)
    }

    /// The Wasserstein distance as the critic sees it, with its sign changed, and the penalty for slopes other than 1 between real and
    /// made images.
    fn critic_loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let real = &batch.images;
            let count = real.shape()[0];
            let fake = self.fakes(batch)?.detach();
            // Where x and y are standard normal, exp(−(x² + y²)/2) is uniform from 0 to 1.
            let pairs = match &batch.noise {
                Some(noise) => noise.narrow(1, 0, 2)?,
                None => self.noise.randn(&[count, 2], real.dtype())?,
            };
            let share = pairs.square()?.sum(&[1], true)?.mul_scalar(-0.5)?.exp()?;
            let share = share.reshape(&[count, 1, 1, 1])?;
            let between = fake.add(&real.sub(&fake)?.mul(&share)?)?.detach().requires_grad();
            let score = self.scores(&between)?.sum(&[], false)?;
            let slopes = grad(&score, &[&between], None, true)?.into_iter().next().flatten();
            let Some(slopes) = slopes else {
                return Err(Error::invalid(
                    "wgan-gp",
                    "critic",
                    "constant",
                    "a score that depends on the image",
                ));
            };
            let excess = slopes.flatten(1, -1)?.norm(2.0, &[1], false)?.add_scalar(-1.0)?;
            let penalty = excess.square()?.mean(&[], false)?;
            let distance = self.score(real)?.sub(&self.score(&fake)?)?;
            Ok(Output::new(penalty.mul_scalar(LAMBDA)?.sub(&distance)?)
                .part("distance", &distance)
                .part("penalty", &penalty))
        })
    }

    /// The mean score of made images, with its sign changed.
    fn generator_loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            Ok(Output::new(self.score(&self.fakes(batch)?)?.neg()?))
        })
    }

    /// The Wasserstein distance as the critic sees it, as the loss, and the features of made images.
    fn measure(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let fake = self.fakes(batch)?;
            let distance = self.score(&batch.images)?.sub(&self.score(&fake)?)?;
            images::measured(distance, fake)
        })
    }
}
