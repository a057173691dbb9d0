//! The nets of the first benches, as `kiln train` has them.

use kiln_core::{Backend, Result};
use kiln_models::{Lenet, MnistCnn};
use kiln_nn::{Init, Sequential};

/// The Keras MNIST net, images `[N, 28, 28, 1]`.
///
/// # Errors
/// Memory that could not be had.
pub fn mnist_cnn<B: Backend>(init: &mut Init<B>) -> Result<Sequential<B>> {
    Ok(Sequential::new().push(MnistCnn::new(init.clone(), 10)?))
}

/// The PyTorch tutorial's CIFAR-10 net, images `[N, 32, 32, 3]`.
///
/// # Errors
/// Memory that could not be had.
pub fn lenet<B: Backend>(init: &mut Init<B>) -> Result<Sequential<B>> {
    Ok(Sequential::new().push(Lenet::new(init.clone(), 10)?))
}
