//! Windows of images of bytes, profiled.

use super::{elements, moved};
use crate::backend::{Profiled, bytes, unless_recording};
use kiln_core::ops::{CropImagesParams, ImageOps};
use kiln_core::{Backend, Buffer, Result, checks};

impl<B: Backend> ImageOps for Profiled<B> {
    fn crop_images(
        &self,
        p: &CropImagesParams,
        x: &B::Buffer,
        windows: &B::Buffer,
        values: &B::Buffer,
        y: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, crop_images(p, x, windows, values, y));
        checks::crop_images(self, p, x, windows, values, y)?;
        // How much of the images is read depends on the windows: at most a byte for each element.
        let cost = moved(bytes(windows) + bytes(values) + y.len() as u64 + bytes(y));
        self.op("crop_images", cost, elements(y), |b| {
            b.crop_images(p, x, windows, values, y)
        })
    }
}
