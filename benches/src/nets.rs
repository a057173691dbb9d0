//! The nets that are measured, layer by layer as `kiln train` has them.

use kiln_core::ops::Activation;
use kiln_core::{Backend, Result};
use kiln_nn::layers::{Conv2d, Flatten, Linear, MaxPool2d};
use kiln_nn::{Init, Sequential};

fn conv<B: Backend>(init: &mut Init<B>, inputs: usize, outputs: usize, kernel: usize) -> Result<Conv2d<B>> {
    let builder = Conv2d::builder(inputs, outputs, kernel).activation(Activation::Relu);
    builder.build(init)
}

fn dense<B: Backend>(init: &mut Init<B>, inputs: usize, outputs: usize) -> Result<Linear<B>> {
    let builder = Linear::builder(inputs, outputs).activation(Activation::Relu);
    builder.build(init)
}

/// The Keras MNIST net, images `[N, 28, 28, 1]`.
///
/// # Errors
/// Memory that could not be had.
pub fn mnist_cnn<B: Backend>(init: &mut Init<B>) -> Result<Sequential<B>> {
    Ok(Sequential::new()
        .push(conv(init, 1, 32, 3)?)
        .push(MaxPool2d::new(2))
        .push(conv(init, 32, 64, 3)?)
        .push(MaxPool2d::new(2))
        .push(conv(init, 64, 64, 3)?)
        .push(Flatten::default())
        .push(dense(init, 576, 64)?)
        .push(Linear::new(init, 64, 10)?))
}

/// The PyTorch tutorial's CIFAR-10 net, images `[N, 32, 32, 3]`.
///
/// # Errors
/// Memory that could not be had.
pub fn lenet<B: Backend>(init: &mut Init<B>) -> Result<Sequential<B>> {
    Ok(Sequential::new()
        .push(conv(init, 3, 6, 5)?)
        .push(MaxPool2d::new(2))
        .push(conv(init, 6, 16, 5)?)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(dense(init, 400, 120)?)
        .push(dense(init, 120, 84)?)
        .push(Linear::new(init, 84, 10)?))
}
