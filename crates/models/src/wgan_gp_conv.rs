//! A Wasserstein GAN of convolutions.

use crate::task::Task;
use crate::{
    Card, DcganConfig, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, WganGp, images, wgan_gp,
};
use kiln_core::{Backend, Result};
use kiln_data::DataKind;
use kiln_nn::Init;

/// The sizes of the network.
const CONFIG: DcganConfig = DcganConfig {
    latent: LATENT,
    ..DcganConfig::DIGITS
};

/// Elements of a latent vector.
const LATENT: usize = 64;

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a Wasserstein GAN with gradient penalty of convolutions, which draws 28x28 digits, or images of 32 or 64 pixels",
    input: Input::images_of(&CONFIG.image, &[28, 32, 64]),
    output: OutputKind::Images,
    values: wgan_gp::VALUES,
    monitor: ("frechet", false),
    parameters: 672_448,
    recipe: Recipe {
        data: DataKind::Mnist,
        epochs: 50,
        batch: 64,
        optimizer: OptimizerOptions {
            lr: 1e-4,
            betas: Some([0.0, 0.9]),
            ..OptimizerOptions::of(OptimizerKind::Adam)
        },
        phases: wgan_gp::PHASES,
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<Task<B, WganGp<B>, images::Images>> {
    let config = DcganConfig {
        image: sizes.image,
        ..CONFIG
    };
    Ok(wgan_gp::of(
        WganGp::convolutional(init, config)?,
        images::loader::<LATENT>,
    ))
}
