//! Batches of images without labels, for networks that make images.

use crate::squares;
use crate::task::Purpose;
use kiln_core::Backend;
use kiln_core::philox::{Key, spaces};
use kiln_data::{Batch, Collate, DataError, Dataset, Labelled, Loader, LoaderOptions, Result, Sample, Stack};
use kiln_nn::Tensor;
use kiln_nn::layers::Noise;
use kiln_train::Output;
use ndarray::{Array2, ArrayD};
use std::sync::Arc;

/// A batch of images.
#[derive(Batch)]
pub(crate) struct Images {
    /// `[N, H, W, C]`, from 0 to 1.
    pub(crate) images: ArrayD<f32>,
    /// Standard normal numbers `[N, latent]`. Those of a sample that is measured belong to the sample, so that its values are the same
    /// whenever and in whatever batch it is measured. There are none in training: the network draws its own.
    pub(crate) noise: Option<Array2<f32>>,
}

impl<B: Backend> ImagesOn<B> {
    /// Latent vectors of this width for the samples of the batch: those that belong to them, or new ones.
    pub(crate) fn latent(&self, noise: &Noise<B>, width: usize) -> kiln_core::Result<Tensor<B>> {
        match &self.noise {
            Some(noise) => Ok(noise.clone()),
            None => noise.randn(&[self.images.shape()[0], width], self.images.dtype()),
        }
    }

    /// The images with values from −1 to 1.
    pub(crate) fn centred(&self) -> kiln_core::Result<Tensor<B>> {
        self.images.mul_scalar(2.0)?.add_scalar(-1.0)
    }
}

/// The mean of `ln(1 + eˣ)`: the cross-entropy of logits that are to be negative.
pub(crate) fn softplus_mean<B: Backend>(logits: &Tensor<B>) -> kiln_core::Result<Tensor<B>> {
    logits.softplus(1.0, 20.0)?.mean(&[], false)
}

/// The measurements of a GAN: a loss, the made images with values from 0 to 1, and their features.
pub(crate) fn measured<B: Backend>(loss: Tensor<B>, made: Tensor<B>) -> kiln_core::Result<Output<B>> {
    let features = squares::of_images(&made)?;
    Ok(Output::new(loss).with("features", features).with("made", made))
}

/// Stacks images; with noise of this width for each if it is given.
struct StackImages {
    noise: Option<usize>,
}

impl Collate<Sample> for StackImages {
    type Batch = Images;

    fn collate(&self, samples: &[Sample], indices: &[usize], spare: Option<Images>) -> Result<Images> {
        let spare = spare.map(|spare| Labelled {
            inputs: spare.images,
            ..Default::default()
        });
        let stacked = Stack::default().collate(samples, indices, spare)?;
        Ok(Images {
            images: stacked.inputs,
            noise: self.noise.map(|width| noise(indices, width)).transpose()?,
        })
    }
}

/// The noise of the samples with these indices: `[N, width]`.
fn noise(indices: &[usize], width: usize) -> Result<Array2<f32>> {
    let key = Key::new(0, *spaces::SAMPLING.start() + 2, 0);
    let of = |&index: &usize| (0..width).map(move |i| key.normal(index as u64 * width as u64 + i as u64));
    let values: Vec<f32> = indices.iter().flat_map(of).collect();
    Array2::from_shape_vec((indices.len(), width), values).map_err(|_| DataError::OutOfMemory {
        what: "the noise of a batch",
        bytes: 4 * indices.len() as u64 * width as u64,
    })
}

/// A loader of images for a network with latent vectors of this width.
pub(crate) fn loader<const LATENT: usize>(
    dataset: Arc<dyn Dataset<Sample = Sample>>,
    options: LoaderOptions,
    purpose: Purpose,
) -> Result<Loader<Sample, Images>> {
    let noise = (purpose == Purpose::Measuring).then_some(LATENT);
    Loader::with_collate(dataset, StackImages { noise }, options)
}

/// Logits of pixels `[N, H·W·C]` as images `[N, H, W, C]` from 0 to 1.
pub(crate) fn shown<B: Backend>(logits: &Tensor<B>, [h, w, c]: [usize; 3]) -> kiln_core::Result<Tensor<B>> {
    logits.sigmoid()?.reshape(&[logits.shape()[0], h, w, c])
}
