//! Batches as tensors.

use super::HostBatch;
use crate::Result;
use kiln_core::Backend;
use kiln_nn::{Indices, Tensor};

/// A batch on a backend's device.
#[derive(Debug)]
pub struct Batch<B: Backend> {
    /// The inputs `[N, …]` in f32; images `[N, H, W, C]`.
    pub inputs: Tensor<B>,
    /// A class per sample, `[N]`.
    pub labels: Indices<B>,
    /// Regression targets `[N, width]` in f32, where the dataset has them.
    pub targets: Option<Tensor<B>>,
}

impl HostBatch {
    /// Copies the batch to a device. The host memory can be dropped at once: it goes back to the loader.
    ///
    /// # Errors
    /// [`DataError::Tensor`](crate::DataError::Tensor): the device's memory, or vectors that were changed so that they
    /// no longer fit `input_shape`.
    pub fn to_device<B: Backend>(&self, backend: &B) -> Result<Batch<B>> {
        let n = self.labels.len();
        let targets = match self.target_width {
            0 => None,
            width => Some(Tensor::from_slice(backend, &self.targets, &[n, width])?),
        };
        Ok(Batch {
            inputs: Tensor::from_slice(backend, &self.inputs, &self.input_shape)?,
            labels: Indices::from_slice(backend, &self.labels, &[n])?,
            targets,
        })
    }
}
