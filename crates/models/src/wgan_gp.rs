//! A Wasserstein GAN with gradient penalty.

use crate::images::{self, ImagesOn};
use crate::task::{Phase, Task, Views};
use crate::{Card, Form, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, PhaseRecipe, Recipe, Shown};
use kiln_core::{Backend, DType, Error, Result};
use kiln_data::DataKind;
use kiln_data::{Dataset, Sample};
use kiln_nn::layers::{AvgPool2d, LeakyRelu, Linear, Noise, Relu};
use kiln_nn::{Init, Layer, Module, Sequential, Tensor, grad, trace};
use kiln_train::{FeatureStatistics, FrechetDistance, Output};

/// The shape of the images.
const SHAPE: [usize; 3] = [28, 28, 1];
/// Pixels of an image.
const PIXELS: usize = 28 * 28;
/// Elements of a latent vector.
const LATENT: usize = 64;
/// The factor of the penalty.
const LAMBDA: f64 = 10.0;
/// The side of the squares of pixels whose means are the features that distances are measured by.
const SQUARE: usize = 4;
/// The number of these features.
const FEATURES: usize = PIXELS / (SQUARE * SQUARE);

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a Wasserstein GAN with gradient penalty, which draws 28x28 digits",
    input: Input::images(&SHAPE),
    output: OutputKind::Images,
    values: &[
        Shown::new("critic/loss", Form::Number),
        Shown::new("generator/loss", Form::Number),
        Shown::labelled("loss", "distance", Form::Number),
        Shown::new("frechet", Form::Number),
    ],
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
        phases: &[
            PhaseRecipe {
                name: "critic",
                every: 1,
                optimizer: None,
                schedule: None,
            },
            PhaseRecipe {
                name: "generator",
                every: 5,
                optimizer: None,
                schedule: None,
            },
        ],
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, _: NetSizes) -> Result<Task<B, WganGp<B>, images::Images>> {
    Ok(Task {
        net: WganGp::new(init)?,
        prepare: None,
        loader: images::loader::<LATENT>,
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
        forward: |gan, batch| {
            trace::within(gan, &batch.images, || {
                gan.critic
                    .forward(&gan.generator.forward(&gan.latent(batch)?)?.sigmoid()?)
            })
        },
        metrics: |held_back| {
            Ok(vec![Box::new(
                FrechetDistance::new(real_features(held_back)?).named("frechet"),
            )])
        },
        views: Views {
            draw: Some(|gan, backend, count, rng| {
                let latent = Tensor::randn(backend, &[count, LATENT], DType::F32, rng)?;
                images::shown(&gan.generator.forward(&latent)?, SHAPE)
            }),
            ..Views::default()
        },
    })
}

/// The means of squares of pixels of the samples held back.
fn real_features(held_back: &dyn Dataset<Sample = Sample>) -> kiln_train::Result<FeatureStatistics> {
    let mut statistics = FeatureStatistics::new(FEATURES);
    let mut sample = Sample::default();
    let [height, width, _] = SHAPE;
    for index in 0..held_back.len() {
        held_back.read(index, &mut sample)?;
        let mut means = vec![0.0; FEATURES];
        for (i, pixel) in sample.input.iter().take(PIXELS).enumerate() {
            let (y, x) = (i / width % height, i % width);
            means[y / SQUARE * (width / SQUARE) + x / SQUARE] += f64::from(*pixel) / 255.0;
        }
        means.iter_mut().for_each(|sum| *sum /= (SQUARE * SQUARE) as f64);
        statistics.add(&means)?;
    }
    Ok(statistics)
}

/// A Wasserstein GAN (Arjovsky et al. 2017) whose critic is held to slopes of 1 by a penalty of its gradient (Gulrajani et al. 2017):
/// a generator of three dense layers from latent vectors of 64 to images, and a critic of three dense layers from images to a score.
#[derive(Clone, Module)]
pub struct WganGp<B: Backend> {
    generator: Sequential<B>,
    critic: Sequential<B>,
    noise: Noise<B>,
}

impl<B: Backend> WganGp<B> {
    /// The net with PyTorch's initial weights of `init`'s seed.
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
        })
    }

    /// Latent vectors for the samples of a batch.
    fn latent(&self, batch: &ImagesOn<B>) -> Result<Tensor<B>> {
        match &batch.noise {
            Some(noise) => Ok(noise.clone()),
            None => self
                .noise
                .randn(&[batch.images.shape()[0], LATENT], batch.images.dtype()),
        }
    }

    /// As many made images as a batch has real ones, as pixels `[N, 784]` from 0 to 1.
    fn fakes(&self, batch: &ImagesOn<B>) -> Result<Tensor<B>> {
        self.generator.forward(&self.latent(batch)?)?.sigmoid()
    }

    /// The mean score of pixels `[N, 784]`.
    fn score(&self, pixels: &Tensor<B>) -> Result<Tensor<B>> {
        self.critic.forward(pixels)?.mean(&[], false)
    }

    /// The Wasserstein distance as the critic sees it, with its sign changed, and the penalty for slopes other than 1 between real and
    /// made images.
    fn critic_loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let real = batch.images.flatten(1, -1)?;
            let fake = self.fakes(batch)?.detach();
            // Where x and y are standard normal, exp(−(x² + y²)/2) is uniform from 0 to 1.
            let pairs = match &batch.noise {
                Some(noise) => noise.narrow(1, 0, 2)?,
                None => self.noise.randn(&[real.shape()[0], 2], real.dtype())?,
            };
            let share = pairs.square()?.sum(&[1], true)?.mul_scalar(-0.5)?.exp()?;
            let between = fake.add(&real.sub(&fake)?.mul(&share)?)?.detach().requires_grad();
            let score = self.critic.forward(&between)?.sum(&[], false)?;
            let slopes = grad(&score, &[&between], None, true)?.into_iter().next().flatten();
            let Some(slopes) = slopes else {
                return Err(Error::invalid(
                    "wgan-gp",
                    "critic",
                    "constant",
                    "a score that depends on the image",
                ));
            };
            let excess = slopes.norm(2.0, &[1], false)?.add_scalar(-1.0)?;
            let penalty = excess.square()?.mean(&[], false)?;
            let distance = self.score(&real)?.sub(&self.score(&fake)?)?;
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
            let distance = self.score(&batch.images.flatten(1, -1)?)?.sub(&self.score(&fake)?)?;
            let [h, w, c] = SHAPE;
            let fake = fake.reshape(&[fake.shape()[0], h, w, c])?;
            let means = AvgPool2d::new(SQUARE).forward(&fake)?;
            Ok(Output::new(distance).with("features", means.flatten(1, -1)?))
        })
    }
}
