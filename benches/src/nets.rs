//! The networks mnist-cnn and lenet, as in `kiln train`.

use kiln_core::{Backend, Result};
use kiln_models::{Lenet, MnistCnn};
use kiln_nn::{Init, Sequential};

/// The Keras MNIST network: images `[N, 28, 28, 1]` to logits `[N, 10]`.
///
/// # Errors
/// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory).
pub fn mnist_cnn<B: Backend>(init: &mut Init<B>) -> Result<Sequential<B>> {
    Ok(Sequential::new().push(MnistCnn::new(init.clone(), 10)?))
}

/// The PyTorch tutorial's CIFAR-10 network: images `[N, 32, 32, 3]` to logits `[N, 10]`.
///
/// # Errors
/// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory).
pub fn lenet<B: Backend>(init: &mut Init<B>) -> Result<Sequential<B>> {
    Ok(Sequential::new().push(Lenet::new(init.clone(), 10)?))
}
