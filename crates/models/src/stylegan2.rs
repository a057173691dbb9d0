//! StyleGAN2: its sizes, its losses and its recipe.

mod config;
mod discriminator;
mod generator;
mod layers;
#[cfg(test)]
mod tests;

pub use config::StyleGan2Config;
pub use discriminator::{DiscriminatorBlock, DiscriminatorEpilogue, StyleDiscriminator};
pub use generator::{StyleGenerator, StyleMapping, Synthesis, SynthesisBlock, SynthesisLayer, ToRgb};
pub use layers::{EqualConv, EqualLinear};

use crate::classes::Row;
use crate::images::{self, ImagesOn};
use crate::task::{MakeLoader, Phase, Step, Task, Views};
use crate::{
    Augment, Card, Form, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, PhaseRecipe, Recipe, Shown,
    squares,
};
use kiln_core::{Backend, Error, Result};
use kiln_data::DataKind;
use kiln_nn::layers::Noise;
use kiln_nn::{Init, Layer, Module, Pad, State, Tensor, grad, trace};
use kiln_train::Output;

/// The penalties are computed in each so many-th step.
const LAZY_R1: u64 = 16;
const LAZY_PATH: u64 = 4;
/// The factor of the penalty of path lengths, and how fast their average follows.
const PATH_WEIGHT: f64 = 2.0;
const PATH_RATE: f64 = 0.01;
/// The share of images that are made of two styles.
const MIXED: f64 = 0.9;
/// How far the styles of images that are shown stay from the average of all.
const TRUNCATION: f64 = 0.7;
/// The learning rate of steps without lazy penalties.
const LR: f64 = 2.5e-3;

/// Adam for `c` = k/(k + 1) of the updates that a penalty in each k-th step leaves to a loss: its rate is `c` times as large, and the decay
/// of squares, which is given, the `c`-th power of 0.99.
const fn lazy_adam(every: u64, beta2: f64) -> OptimizerOptions {
    OptimizerOptions {
        lr: LR * every as f64 / (every + 1) as f64,
        betas: Some([0.0, beta2]),
        ..OptimizerOptions::of(OptimizerKind::Adam)
    }
}

/// A size of the network, and the loader for its latent vectors.
pub(crate) struct Size {
    config: StyleGan2Config,
    loader: MakeLoader<images::Images>,
}

/// A size with latent vectors of `LATENT` numbers.
const fn size<const LATENT: usize>(config: StyleGan2Config) -> Size {
    Size {
        config: StyleGan2Config {
            latent: LATENT,
            ..config
        },
        loader: images::loader::<LATENT>,
    }
}

/// The values of an epoch that are shown.
const VALUES: &[Shown] = &[
    Shown::new("generator/loss", Form::Number),
    Shown::new("path/loss", Form::Number),
    Shown::new("discriminator/loss", Form::Number),
    Shown::new("r1/loss", Form::Number),
    Shown::labelled("loss", "discriminator", Form::Number),
    Shown::new("frechet", Form::Number),
];

/// The card of a row.
const fn card(description: &'static str, input: Input, parameters: usize, recipe: Recipe) -> Card {
    Card {
        description,
        input,
        output: OutputKind::Images,
        values: VALUES,
        monitor: ("frechet", false),
        parameters,
        recipe,
    }
}

/// For 28×28 digits, in minutes on a processor.
pub(crate) const SMALL: Row<Size> = Row {
    card: card(
        "a small StyleGAN2, which draws 28x28 digits, or images of 32 to 256 pixels",
        Input::images_of(&StyleGan2Config::SMALL.image, &[28, 32, 64, 128, 256]),
        1_719_308,
        Recipe {
            data: DataKind::Mnist,
            epochs: 10,
            batch: 16,
            ema: Some(0.998),
            ..RECIPE
        },
    ),
    config: size::<{ StyleGan2Config::SMALL.latent }>(StyleGan2Config::SMALL),
};

/// `paper256` of `stylegan2-ada-pytorch`: half as many channels as for 1024 pixels, and an average of weights
/// whose half-life is 20,000 images.
pub(crate) const PAPER_256: Row<Size> = Row {
    card: card(
        "StyleGAN2 as published, for a folder of images of 256x256, or of 64 to 512 pixels",
        Input::images_of(&PAPER.image, &[64, 128, 256, 512]),
        48_768_547,
        Recipe {
            data: DataKind::ImageFolder,
            augment: &[Augment::Flip],
            epochs: 100,
            batch: 64,
            ema: Some(0.997_784),
            ..RECIPE
        },
    ),
    config: size::<{ PAPER.latent }>(PAPER),
};
const PAPER: StyleGan2Config = StyleGan2Config::paper(256);

/// The recipe of both rows but for data, epochs, batch and average.
const RECIPE: Recipe = Recipe {
    phases: &[
        PhaseRecipe {
            optimizer: Some(lazy_adam(LAZY_PATH, 0.991_991_967_8)),
            ..PhaseRecipe::named("generator")
        },
        PhaseRecipe {
            every: LAZY_PATH,
            shares: Some("generator"),
            ..PhaseRecipe::named("path")
        },
        PhaseRecipe {
            optimizer: Some(lazy_adam(LAZY_R1, 0.990_585_457_3)),
            ..PhaseRecipe::named("discriminator")
        },
        PhaseRecipe {
            every: LAZY_R1,
            shares: Some("discriminator"),
            ..PhaseRecipe::named("r1")
        },
    ],
    ..Recipe::CLASSES
};

/// The network of a row with its task.
pub(crate) fn task<B: Backend>(
    row: &Row<Size>,
    init: Init<B>,
    sizes: NetSizes,
) -> Result<Task<B, StyleGan2<B>, images::Images>> {
    let config = StyleGan2Config {
        image: sizes.image,
        ..row.config.config
    };
    Ok(of(StyleGan2::new(init, config)?, &row.config))
}

/// The task of a network of this size but for its images.
pub(crate) fn of<B: Backend>(net: StyleGan2<B>, size: &Size) -> Task<B, StyleGan2<B>, images::Images> {
    let generator = |name: &str| name.starts_with("generator.");
    let discriminator = |name: &str| name.starts_with("discriminator.");
    Task {
        net,
        prepare: None,
        loader: size.loader,
        phases: vec![
            phase("generator", StyleGan2::generator_loss, generator),
            phase("path", StyleGan2::path_loss, generator),
            phase("discriminator", StyleGan2::discriminator_loss, discriminator),
            phase("r1", StyleGan2::r1_loss, discriminator),
        ],
        measure: StyleGan2::measure,
        forward: |gan, batch| trace::within(gan, &batch.images, || gan.discriminator.forward(&gan.fakes(batch)?)),
        metrics: squares::metrics,
        views: Views {
            decode: Some((size.config.latent, |gan, latent| gan.generate(latent, TRUNCATION))),
            ..Views::default()
        },
    }
}

/// An update of the parameters whose names a function accepts.
fn phase<B: Backend>(
    name: &'static str,
    step: Step<B, StyleGan2<B>, images::Images>,
    trains: fn(&str) -> bool,
) -> Phase<B, StyleGan2<B>, images::Images> {
    Phase { name, step, trains }
}

/// StyleGAN2 (Karras et al. 2020): a generator of images by styles of every resolution, and a discriminator with residual blocks. The
/// losses are the logistic ones, which do not saturate; slopes of the discriminator at real images (R1, Mescheder et al. 2018) and lengths of
/// paths in the space of styles are penalised, each in some steps alone. Parameters have the names of `stylegan2-ada-pytorch`.
#[derive(Clone, Debug, Module)]
pub struct StyleGan2<B: Backend> {
    /// Latent vectors to images.
    pub generator: StyleGenerator<B>,
    /// Images to logits that they are real.
    pub discriminator: StyleDiscriminator<B>,
    /// The average of path lengths.
    pl_mean: State<B>,
    noise: Noise<B>,
    /// The numbers of the styles of an image, `[1, styles, 1]`.
    #[module(skip)]
    order: Tensor<B>,
    #[module(skip)]
    config: StyleGan2Config,
}

impl<B: Backend> StyleGan2<B> {
    /// The net with initial weights of `init`'s seed.
    ///
    /// # Errors
    /// Images that are no squares, or too small or too large; a mapping without layers; memory.
    pub fn new(mut init: Init<B>, config: StyleGan2Config) -> Result<Self> {
        config.check()?;
        let init = &mut init;
        let generator = StyleGenerator::new(init, &config)?;
        let styles = generator.synthesis.styles();
        let order = Tensor::arange(init.backend(), 0.0, styles as f64, 1.0, init.param_dtype())?;
        Ok(StyleGan2 {
            generator,
            discriminator: StyleDiscriminator::new(init, &config)?,
            pl_mean: State::new(Tensor::zeros(init.backend(), &[], init.state_dtype())?),
            noise: Noise::new(init)?,
            order: order.reshape(&[1, styles, 1])?,
            config,
        })
    }

    /// The images `[N, H, W, C]`, with values from 0 to 1, of latent vectors `[N, latent]`, whose styles are moved towards the average of
    /// all: with `truncation` 0 to it, with 1 not at all. The noise is that of the layers.
    ///
    /// # Errors
    /// Another shape, memory.
    pub fn generate(&self, latent: &Tensor<B>, truncation: f64) -> Result<Tensor<B>> {
        let mapping = &self.generator.mapping;
        let style = mapping.truncate(&mapping.forward(latent)?, truncation)?;
        let images = self
            .generator
            .synthesis
            .forward(&self.generator.for_all(&style)?, None)?;
        self.shown(&images)
    }

    /// The network's images as those of the data, with values from 0 to 1.
    fn shown(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        let (before, side) = (self.border().0 as usize, self.config.image[0]);
        let images = images.narrow(1, before, side)?.narrow(2, before, side)?;
        images.mul_scalar(0.5)?.add_scalar(0.5)?.clamp_min(0.0)?.clamp_max(1.0)
    }

    /// Black pixels before and behind the rows and columns of an image.
    fn border(&self) -> (isize, isize) {
        let more = (self.config.side() - self.config.image[0]) as isize;
        (more / 2, more - more / 2)
    }

    /// The real images of a batch as the network sees them.
    fn real(&self, batch: &ImagesOn<B>) -> Result<Tensor<B>> {
        let images = batch.centred()?;
        match self.border() {
            (0, 0) => Ok(images),
            border => images.pad(&[(0, 0), border, border, (0, 0)], Pad::Constant(-1.0)),
        }
    }

    /// The noise of the layers: new, unless the latent vectors of the batch are given.
    fn noise(&self, batch: &ImagesOn<B>) -> Option<&Noise<B>> {
        batch.noise.is_none().then_some(&self.noise)
    }

    /// Styles for `count` of the images of a batch, `[count, styles, style]`. In training most images are of two styles: one up to a layer
    /// that is drawn, another from there on (the original draws one layer for the whole batch).
    fn styles(&self, batch: &ImagesOn<B>, count: usize) -> Result<Tensor<B>> {
        let generator = &self.generator;
        if let Some(latent) = &batch.noise {
            return generator.for_all(&generator.mapping.forward(&latent.narrow(0, 0, count)?)?);
        }
        let dtype = batch.images.dtype();
        let latent = self.noise.randn(&[2 * count, self.config.latent], dtype)?;
        let both = generator.mapping.forward(&latent)?;
        let first = generator.for_all(&both.narrow(0, 0, count)?)?;
        let second = generator.for_all(&both.narrow(0, count, count)?)?;
        // Where x and y are standard normal, exp(−(x² + y²)/2) is uniform from 0 to 1.
        let pairs = self.noise.randn(&[2, count, 2], dtype)?.square()?.sum(&[2], false)?;
        let drawn = pairs.mul_scalar(-0.5)?.exp()?;
        let styles = generator.synthesis.styles() as f64;
        // A layer behind the last one for images of one style.
        let whole = drawn
            .narrow(0, 0, 1)?
            .ge_scalar(MIXED)?
            .to_float(dtype)?
            .mul_scalar(styles)?;
        let layer = drawn.narrow(0, 1, 1)?.mul_scalar(styles - 1.0)?.add(&whole)?;
        let is_second = self.order.gt(&layer.reshape(&[count, 1, 1])?)?.to_float(dtype)?;
        first.add(&second.sub(&first)?.mul(&is_second)?)
    }

    /// As many made images as a batch has real ones.
    fn fakes(&self, batch: &ImagesOn<B>) -> Result<Tensor<B>> {
        let styles = self.styles(batch, batch.images.shape()[0])?;
        self.generator.synthesis.forward(&styles, self.noise(batch))
    }

    /// The logistic loss of made images that are taken for real ones.
    fn generator_loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let logits = self.discriminator.forward(&self.fakes(batch)?)?;
            Ok(Output::new(images::softplus_mean(&logits.neg()?)?))
        })
    }

    /// The logistic loss of telling real images from made ones.
    fn discriminator_loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let fake = self.discriminator.forward(&self.fakes(batch)?.detach())?;
            let real = self.discriminator.forward(&self.real(batch)?)?;
            let (fake, real) = (images::softplus_mean(&fake)?, images::softplus_mean(&real.neg()?)?);
            Ok(Output::new(fake.add(&real)?).part("real", &real).part("fake", &fake))
        })
    }

    /// The penalty of the discriminator's slopes at real images, as often as it is left out.
    fn r1_loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let real = self.real(batch)?.detach().requires_grad();
            let logits = self.discriminator.forward(&real)?;
            let slopes = slopes(&logits.sum(&[], false)?, &real)?;
            let penalty = slopes.square()?.sum(&[1, 2, 3], false)?.mean(&[], false)?;
            let loss = penalty.mul_scalar(0.5 * self.config.r1_gamma * LAZY_R1 as f64)?;
            // Every parameter has a gradient then, if only of 0.
            let loss = loss.add(&logits.mean(&[], false)?.mul_scalar(0.0)?)?;
            Ok(Output::new(loss).part("penalty", &penalty))
        })
    }

    /// The penalty of changes of images with styles that are not of the usual length, as often as it is left out: of half of the batch.
    fn path_loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let count = batch.images.shape()[0].div_ceil(2);
            let styles = self.styles(batch, count)?;
            let made = self.generator.synthesis.forward(&styles, self.noise(batch))?;
            let direction = match self.noise(batch) {
                Some(noise) => noise.randn(made.shape(), made.dtype())?,
                // Where nothing is drawn, the images do.
                None => self.real(batch)?.narrow(0, 0, count)?,
            };
            let pixels = (made.shape()[1] * made.shape()[2]) as f64;
            let along = made.mul(&direction.div_scalar(pixels.sqrt())?)?.sum(&[], false)?;
            let lengths = slopes(&along, &styles)?.square()?.sum(&[2], false)?.mean(&[1], false)?;
            let lengths = lengths.sqrt()?;
            let mean = lengths.mean(&[], false)?;
            let before = self.pl_mean.get().mul_scalar(1.0 - PATH_RATE)?;
            let usual = before.add(&mean.mul_scalar(PATH_RATE)?)?;
            self.pl_mean.blend(&mean.detach(), PATH_RATE)?;
            let penalty = lengths.sub(&usual)?.square()?.mean(&[], false)?;
            let loss = penalty.mul_scalar(PATH_WEIGHT * LAZY_PATH as f64)?;
            let loss = loss.add(&made.mean(&[], false)?.mul_scalar(0.0)?)?;
            Ok(Output::new(loss).part("penalty", &penalty).part("length", &mean))
        })
    }

    /// The loss of the discriminator, and the features of made images.
    fn measure(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let made = self.fakes(batch)?;
            let fake = self.discriminator.forward(&made)?;
            let real = self.discriminator.forward(&self.real(batch)?)?;
            let loss = images::softplus_mean(&fake)?.add(&images::softplus_mean(&real.neg()?)?)?;
            images::measured(loss, self.shown(&made)?)
        })
    }
}

/// The gradient of `y` by `x`, which has gradients itself.
fn slopes<B: Backend>(y: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    let slopes = grad(y, &[x], None, true)?.into_iter().next().flatten();
    slopes.ok_or_else(|| Error::invalid("stylegan2", "loss", "constant", "one that depends on its input"))
}
