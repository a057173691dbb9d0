//! A batch of images on a device as the host knows it: which images, and which window of each.

use crate::Result;
use kiln_core::{Backend, Error};
use kiln_nn::{Indices, Tensor};
use ndarray::Array2;
use std::any::Any;
use std::sync::Arc;

/// Where images lie: their bytes on a backend, whose type is forgotten, as a batch is made for any.
#[derive(Clone)]
pub(crate) struct Home {
    /// [`Indices`] of a backend, u8 `[N, H, W, C]`.
    bytes: Arc<dyn Any + Send + Sync>,
    device: Arc<str>,
}

impl Home {
    pub(crate) fn new<B: Backend>(bytes: &Indices<B>) -> Self {
        Home {
            bytes: Arc::new(bytes.clone()),
            device: bytes.backend().name().into(),
        }
    }
}

impl PartialEq for Home {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "images on {}", self.device)
    }
}

/// Windows of images that lie on a device, a few numbers for each: the inputs of a batch of
/// [`DeviceImages`](crate::DeviceImages). On the device they become a batch of floats `[n, H, W, C]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// For each sample the index of an image, the row and the column of the window, and 1 if it is mirrored.
    pub(crate) windows: Array2<i32>,
    /// The value of each byte and of what lies outside of the image, `[C, 257]`.
    pub(crate) values: Array2<f32>,
    /// Their shape on the device, `[n, H, W, C]`.
    pub(crate) shape: [usize; 4],
    pub(crate) home: Home,
}

impl Windows {
    fn bytes<B: Backend>(&self) -> Result<&Indices<B>> {
        self.home.bytes.downcast_ref().ok_or_else(|| {
            let expected = "the device that the batch is for";
            Error::invalid("to_device", "images", format!("on {}", self.home.device), expected).into()
        })
    }

    /// True if no value of a byte is NaN or infinite.
    pub(crate) fn is_finite(&self) -> bool {
        self.values.iter().all(|value| value.is_finite())
    }

    /// The floats on the device where the images lie.
    pub(crate) fn floats<B: Backend>(&self, backend: &B) -> Result<Tensor<B>> {
        let bytes = self.bytes::<B>()?;
        let (windows, values) = self.numbers(backend)?;
        Ok(bytes.crop_images(&windows, (self.shape[1], self.shape[2]), &values)?)
    }

    /// Copies the floats over a tensor of their shape.
    pub(crate) fn write_over<B: Backend>(&self, on: &mut Tensor<B>) -> Result<()> {
        let bytes = self.bytes::<B>()?;
        let (windows, values) = self.numbers(&on.backend().clone())?;
        Ok(on.write_images(bytes, &windows, &values)?)
    }

    /// The windows and the values of bytes on a device.
    fn numbers<B: Backend>(&self, backend: &B) -> Result<(Indices<B>, Tensor<B>)> {
        let windows = Indices::from_ndarray(backend, &self.windows)?;
        Ok((windows, Tensor::from_ndarray(backend, &self.values)?))
    }
}
