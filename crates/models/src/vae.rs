//! A variational autoencoder.

use crate::images::{self, ImagesOn};
use crate::task::{Phase, Task, Views};
use crate::{Card, Form, Input, NetSizes, OutputKind, Recipe, Shown};
use kiln_core::ops::Activation;
use kiln_core::{Backend, Result};
use kiln_data::DataKind;
use kiln_nn::layers::{Linear, Noise};
use kiln_nn::{Init, Layer, Module, Reduction, Tensor, trace};
use kiln_train::Output;

/// The shape of the images.
const SHAPE: [usize; 3] = [28, 28, 1];
/// Pixels of an image.
const PIXELS: usize = 28 * 28;
/// Outputs of the hidden layers.
const HIDDEN: usize = 400;
/// Elements of a latent vector.
const LATENT: usize = 20;

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "the variational autoencoder of PyTorch's examples, which draws 28x28 digits",
    input: Input::images(&SHAPE),
    output: OutputKind::Images,
    values: &[
        Shown::new("loss", Form::Unit("nats/image")),
        Shown::new("reconstruction", Form::Number),
        Shown::new("kl", Form::Number),
    ],
    monitor: ("loss", false),
    parameters: 652_824,
    recipe: Recipe {
        data: DataKind::Mnist,
        epochs: 30,
        batch: 128,
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, _: NetSizes) -> Result<Task<B, Vae<B>, images::Images>> {
    Ok(Task {
        net: Vae::new(init)?,
        prepare: None,
        loader: images::loader::<LATENT>,
        phases: vec![Phase {
            name: "",
            step: Vae::loss,
            trains: |_| true,
        }],
        measure: Vae::loss,
        forward: |vae, batch| vae.reconstruct(&batch.images),
        metrics: |_| Ok(Vec::new()),
        views: Views {
            reconstruct: Some(Vae::reconstruct),
            decode: Some((LATENT, |vae, latent| images::shown(&vae.decode(latent)?, SHAPE))),
            ..Views::default()
        },
    })
}

/// A variational autoencoder (Kingma and Welling 2014) of one hidden layer each way: images `[N, 28, 28, 1]` to the mean and the
/// logarithm of the variance of a latent vector of 20, and such vectors to the logits of pixels. Parameters have the names of PyTorch's
/// example, which it is.
#[derive(Clone, Debug, Module)]
pub struct Vae<B: Backend> {
    fc1: Linear<B>,
    fc21: Linear<B>,
    fc22: Linear<B>,
    fc3: Linear<B>,
    fc4: Linear<B>,
    noise: Noise<B>,
}

impl<B: Backend> Vae<B> {
    /// The net with PyTorch's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// Memory.
    pub fn new(mut init: Init<B>) -> Result<Self> {
        let init = &mut init;
        let relu = Activation::Relu;
        Ok(Vae {
            fc1: Linear::<B>::builder(PIXELS, HIDDEN).activation(relu).build(init)?,
            fc21: Linear::new(init, HIDDEN, LATENT)?,
            fc22: Linear::new(init, HIDDEN, LATENT)?,
            fc3: Linear::<B>::builder(LATENT, HIDDEN).activation(relu).build(init)?,
            fc4: Linear::new(init, HIDDEN, PIXELS)?,
            noise: Noise::new(init)?,
        })
    }

    /// Mean and logarithm of the variance of the latent vectors, `[N, 20]` each, of pixels `[N, 784]`.
    ///
    /// # Errors
    /// Another shape, memory.
    pub fn encode(&self, pixels: &Tensor<B>) -> Result<[Tensor<B>; 2]> {
        let hidden = self.fc1.forward(pixels)?;
        Ok([self.fc21.forward(&hidden)?, self.fc22.forward(&hidden)?])
    }

    /// The logits of pixels `[N, 784]` of latent vectors `[N, 20]`.
    ///
    /// # Errors
    /// Another shape, memory.
    pub fn decode(&self, latent: &Tensor<B>) -> Result<Tensor<B>> {
        self.fc4.forward(&self.fc3.forward(latent)?)
    }

    /// The images of the mean latent vectors of images `[N, 28, 28, 1]`.
    fn reconstruct(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        trace::within(self, images, || {
            let [mean, _] = self.encode(&images.flatten(1, -1)?)?;
            images::shown(&self.decode(&mean)?, SHAPE)
        })
    }

    /// The evidence lower bound with its sign changed, in nats per image: the cross-entropy of the pixels, which counts grey as a
    /// probability, and the divergence of the latent vectors from the standard normal distribution.
    fn loss(&self, batch: &ImagesOn<B>) -> Result<Output<B>> {
        trace::within(self, &batch.images, || {
            let pixels = batch.images.flatten(1, -1)?;
            let count = pixels.shape()[0] as f64;
            let [mean, log_variance] = self.encode(&pixels)?;
            let noise = match &batch.noise {
                Some(noise) => noise.clone(),
                None => self.noise.randn(mean.shape(), mean.dtype())?,
            };
            let latent = log_variance.mul_scalar(0.5)?.exp()?.mul(&noise)?.add(&mean)?;
            let logits = self.decode(&latent)?;
            trace::part(pixels.backend(), "loss", || {
                let reconstruction = logits.bce_with_logits(&pixels, None, Reduction::Sum)?;
                let reconstruction = reconstruction.mul_scalar(1.0 / count)?;
                let variance = log_variance.exp()?;
                let terms = variance.add(&mean.square()?)?.sub(&log_variance)?.add_scalar(-1.0)?;
                let kl = terms.sum(&[], false)?.mul_scalar(0.5 / count)?;
                Ok(Output::new(reconstruction.add(&kl)?)
                    .part("reconstruction", &reconstruction)
                    .part("kl", &kl))
            })
        })
    }
}
