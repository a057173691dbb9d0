//! Copies batches to a device.

use super::HostBatch;
use crate::Result;
use kiln_core::{Backend, Error, Shape};
use kiln_nn::{Indices, Tensor};

/// A batch on a backend's device.
#[derive(Debug)]
pub struct Batch<B: Backend> {
    /// The inputs `[N, …]` in f32; images `[N, H, W, C]`.
    pub inputs: Tensor<B>,
    /// The class of each sample, `[N]` in i32.
    pub labels: Indices<B>,
    /// Regression targets `[N, target_width]` in f32; `None` for classification.
    pub targets: Option<Tensor<B>>,
}

impl HostBatch {
    /// Copies the batch to a device. The host batch can be dropped as soon as this returns.
    ///
    /// # Errors
    /// [`DataError::Tensor`](crate::DataError::Tensor) when the device has no memory left, or when the vectors were changed
    /// and no longer fit `input_shape`.
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

    /// Copies the batch over `batch`, which lies on a device and has the same shapes. A captured step reads its new inputs
    /// this way.
    ///
    /// # Errors
    /// [`DataError::Tensor`](crate::DataError::Tensor) when the shapes differ or when only one of the batches has targets.
    pub fn write_to<B: Backend>(&self, batch: &mut Batch<B>) -> Result<()> {
        let n = self.labels.len();
        let differ = |lhs, rhs| Error::ShapeMismatch {
            op: "write_to",
            lhs,
            rhs,
        };
        let targets = (self.target_width > 0).then_some(self.target_width);
        let present = batch.targets.as_ref().and_then(|t| t.shape().last().copied());
        if self.input_shape != *batch.inputs.shape() {
            return Err(differ(self.input_shape, *batch.inputs.shape()).into());
        }
        if targets != present {
            let shape = |width: Option<usize>| Shape::new(&[n, width.unwrap_or(0)]);
            return Err(differ(shape(targets)?, shape(present)?).into());
        }
        batch.labels.write(&self.labels)?;
        batch.inputs.write(&self.inputs)?;
        if let Some(to) = &mut batch.targets {
            to.write(&self.targets)?;
        }
        Ok(())
    }
}
